/* ucx_connect ADDRESS PORT ROUNDS DONE [client]: two programs of UCX that meet by address, as those
 * of databases and of storage do: a listener and an endpoint to it (ucp_listener, rdma_cm below),
 * then messages there and back, eager and by rendezvous. Each makes the file DONE.server or
 * DONE.client after its last message, and closes when it sees both. */
#include <arpa/inet.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <ucp/api/ucp.h>
#include <unistd.h>

static ucp_worker_h worker;
static ucp_conn_request_h asked;
static char message[1 << 17];

static void must(ucs_status_t status, const char* what) {
  if (status == UCS_OK) return;
  fprintf(stderr, "FAILED: %s: %s\n", what, ucs_status_string(status));
  exit(1);
}

static void on_request(ucp_conn_request_h request, void* unused) {
  (void)unused;
  asked = request;
}

static void on_error(void* unused, ucp_ep_h endpoint, ucs_status_t status) {
  (void)unused;
  (void)endpoint;
  fprintf(stderr, "the endpoint: %s\n", ucs_status_string(status));
}

static void finish(ucs_status_ptr_t request, const char* what) {
  if (request == NULL) return;
  if (UCS_PTR_IS_ERR(request)) must(UCS_PTR_STATUS(request), what);
  while (ucp_request_check_status(request) == UCS_INPROGRESS) ucp_worker_progress(worker);
  must(ucp_request_check_status(request), what);
  ucp_request_free(request);
}

static void receive(size_t size, unsigned round) {
  const ucp_request_param_t param = {0};
  memset(message, 0, size);
  finish(ucp_tag_recv_nbx(worker, message, size, round, (ucp_tag_t)-1, &param), "to receive");
  for (size_t i = 0; i < size; ++i)
    if (message[i] != (char)(round + i)) {
      fprintf(stderr, "FAILED: byte %zu of message %u is another\n", i, round);
      exit(1);
    }
}

static void send_to(ucp_ep_h endpoint, size_t size, unsigned round) {
  const ucp_request_param_t param = {0};
  for (size_t i = 0; i < size; ++i) message[i] = (char)(round + i);
  finish(ucp_tag_send_nbx(endpoint, message, size, round, &param), "to send");
}

/* A completed send is not yet received, and an endpoint that is closed takes what it sent with it.
 */
static void wait_for_both(const char* done, int client) {
  char own[256], other[256];
  snprintf(own, sizeof own, "%s.%s", done, client ? "client" : "server");
  snprintf(other, sizeof other, "%s.%s", done, client ? "server" : "client");
  const int fd = open(own, O_CREAT | O_WRONLY, 0600);
  if (fd < 0) {
    perror(own);
    exit(1);
  }
  close(fd);
  struct stat unused;
  while (stat(other, &unused) != 0) ucp_worker_progress(worker);
}

int main(int argc, char** argv) {
  if (argc < 5) return 2;
  const int client = argc > 5;
  struct sockaddr_in address = {.sin_family = AF_INET};
  address.sin_port = htons((uint16_t)atoi(argv[2]));
  if (inet_pton(AF_INET, argv[1], &address.sin_addr) != 1) return 2;
  const ucs_sock_addr_t there = {(struct sockaddr*)&address, sizeof address};

  const ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES, .features = UCP_FEATURE_TAG};
  const ucp_worker_params_t worker_params = {.field_mask = 0};
  ucp_context_h context;
  must(ucp_init(&params, NULL, &context), "ucp_init");
  must(ucp_worker_create(context, &worker_params, &worker), "ucp_worker_create");

  ucp_ep_params_t ep = {
      .field_mask = UCP_EP_PARAM_FIELD_ERR_HANDLER | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE,
      .err_mode = UCP_ERR_HANDLING_MODE_PEER,
      .err_handler = {.cb = on_error}};
  ucp_listener_h listener = NULL;
  if (client) {
    ep.field_mask |= UCP_EP_PARAM_FIELD_FLAGS | UCP_EP_PARAM_FIELD_SOCK_ADDR;
    ep.flags = UCP_EP_PARAMS_FLAGS_CLIENT_SERVER;
    ep.sockaddr = there;
  } else {
    const ucp_listener_params_t listen = {
        .field_mask = UCP_LISTENER_PARAM_FIELD_SOCK_ADDR | UCP_LISTENER_PARAM_FIELD_CONN_HANDLER,
        .sockaddr = there,
        .conn_handler = {.cb = on_request}};
    must(ucp_listener_create(worker, &listen, &listener), "ucp_listener_create");
    puts("listening");
    fflush(stdout);
    while (asked == NULL) ucp_worker_progress(worker);
    ep.field_mask |= UCP_EP_PARAM_FIELD_CONN_REQUEST;
    ep.conn_request = asked;
  }
  ucp_ep_h endpoint;
  must(ucp_ep_create(worker, &ep, &endpoint), "ucp_ep_create");
  const unsigned rounds = (unsigned)atoi(argv[3]);
  for (unsigned round = 1; round <= rounds; ++round) {
    const size_t size = round % 4 == 0 ? sizeof message : 8u << round % 8;
    if (client) send_to(endpoint, size, round);
    receive(size, round);
    if (!client) send_to(endpoint, size, round);
  }
  wait_for_both(argv[4], client);
  /* The side that closes last may find the other gone. */
  const ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS,
                                     .flags = UCP_EP_CLOSE_FLAG_FORCE};
  finish(ucp_ep_close_nbx(endpoint, &param), "to close");
  if (listener != NULL) ucp_listener_destroy(listener);
  ucp_worker_destroy(worker);
  ucp_cleanup(context);
  printf("%u rounds\n", rounds);
  return 0;
}
