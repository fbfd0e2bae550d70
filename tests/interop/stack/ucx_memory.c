// ucx_memory SEED SECONDS: allocates, sends by UCX to itself, reallocates and frees at random, with
// whatever malloc the process has. UCX keeps freed buffers registered. After each step all buffers
// have the bytes that they should have, and memory of calloc() is zero. Prints the number of steps.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <ucp/api/ucp.h>

enum { kBuffers = 24, kMost = 3 << 19 };

struct Buffer {
  uint8_t* data;
  uint8_t* right;  // what it should have, in memory that is never registered
  size_t size;
};
static struct Buffer buffers[kBuffers];
static uint64_t state;
static unsigned long steps;
static int done;

static uint64_t below(uint64_t most) {
  state = state * 6364136223846793005u + 1442695040888963407u;
  return (state >> 33) % most;
}
static void fail(const char* what) {
  printf("FAILED in step %lu: %s\n", steps, what);
  exit(1);
}
static void sent(void* request, ucs_status_t status, void* user) {
  (void)request, (void)user;
  if (status != UCS_OK) fail(ucs_status_string(status));
  ++done;
}
static void received(void* request, ucs_status_t status, const ucp_tag_recv_info_t* info,
                     void* user) {
  (void)info;
  sent(request, status, user);
}
static void fill(struct Buffer* buffer, size_t from) {
  for (size_t i = from; i < buffer->size; ++i)
    buffer->data[i] = buffer->right[i] = (uint8_t)(below(255) + 1);
}
// Mostly small ones; some that malloc maps by themselves.
static size_t some_size(void) {
  return below(3) == 0 ? 200000 + below(kMost - 200000) : 1 + below(70000);
}

static void make(struct Buffer* buffer, int zeroed) {
  buffer->size = some_size();
  buffer->data = zeroed ? calloc(1, buffer->size) : malloc(buffer->size);
  if (buffer->data == NULL) fail("malloc");
  if (zeroed)
    for (size_t i = 0; i < buffer->size; ++i)
      if (buffer->data[i] != 0) fail("memory of calloc() is not zero");
  fill(buffer, 0);
}
static void resize(struct Buffer* buffer) {
  const size_t before = buffer->size;
  buffer->size = below(2) == 0 ? some_size() : before + below(kMost - before + 1);
  buffer->data = realloc(buffer->data, buffer->size);
  if (buffer->data == NULL) fail("realloc");
  fill(buffer, before < buffer->size ? before : buffer->size);
}

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  state = strtoull(argv[1], NULL, 0);
  const time_t end = time(NULL) + atoi(argv[2]);
  ucp_config_t* config;
  ucp_context_h context;
  ucp_worker_h worker;
  ucp_ep_h peer;
  ucp_address_t* address;
  size_t length;
  const ucp_params_t features = {.field_mask = UCP_PARAM_FIELD_FEATURES,
                                 .features = UCP_FEATURE_TAG};
  const ucp_worker_params_t plain = {0};
  if (ucp_config_read(NULL, NULL, &config) != UCS_OK ||
      ucp_init(&features, config, &context) != UCS_OK ||
      ucp_worker_create(context, &plain, &worker) != UCS_OK ||
      ucp_worker_get_address(worker, &address, &length) != UCS_OK)
    fail("UCX does not start");
  const ucp_ep_params_t self = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS,
                                .address = address};
  if (ucp_ep_create(worker, &self, &peer) != UCS_OK) fail("ucp_ep_create");
  for (int i = 0; i < kBuffers; ++i)
    buffers[i].right =
        mmap(NULL, kMost, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  for (; time(NULL) < end; ++steps) {
    struct Buffer* const one = &buffers[below(kBuffers)];
    struct Buffer* const other = &buffers[below(kBuffers)];
    if (one->data == NULL) {
      make(one, below(2) == 0);
    } else if (one != other && other->data != NULL && below(2) == 0) {
      const size_t size = one->size < other->size ? one->size : other->size;
      const ucp_request_param_t send = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK,
                                        .cb.send = sent};
      const ucp_request_param_t receive = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK,
                                           .cb.recv = received};
      done = 0;
      void* const in = ucp_tag_recv_nbx(worker, other->data, size, 1, (ucp_tag_t)-1, &receive);
      void* const out = ucp_tag_send_nbx(peer, one->data, size, 1, &send);
      while (done < (in != NULL) + (out != NULL)) ucp_worker_progress(worker);
      memcpy(other->right, one->right, size);
    } else if (below(2) == 0) {
      resize(one);
    } else {
      free(one->data);
      one->data = NULL;
    }
    for (int i = 0; i < kBuffers; ++i)
      if (buffers[i].data != NULL &&
          memcmp(buffers[i].data, buffers[i].right, buffers[i].size) != 0)
        fail("a buffer has other bytes than it should");
  }
  printf("%lu steps\n", steps);
  return 0;
}
