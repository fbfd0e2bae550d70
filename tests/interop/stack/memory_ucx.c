// memory.c by UCX: one process, which sends to itself.
#include <ucp/api/ucp.h>

#include "tests/interop/stack/memory.h"

static ucp_worker_h worker;
static ucp_address_t* address;
static ucp_ep_h peer;
static int done;

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

void begin(int* sides, int* side) {
  ucp_config_t* config;
  ucp_context_h context;
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
  *sides = 1;
  *side = 0;
}

void exchange(const void* out, void* in, size_t size) {
  const ucp_request_param_t send = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK, .cb.send = sent};
  const ucp_request_param_t receive = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK,
                                       .cb.recv = received};
  done = 0;
  void* const coming = ucp_tag_recv_nbx(worker, in, size, 1, (ucp_tag_t)-1, &receive);
  void* const going = ucp_tag_send_nbx(peer, out, size, 1, &send);
  while (done < (coming != NULL) + (going != NULL)) ucp_worker_progress(worker);
}

int on_any_side(int so) { return so; }
// UCX's thread of events ends with the worker. Beside an exit without that it may find its table of
// events gone, and aborts ("failed to modify ... event handler", ucp_worker.c of 1.13). The context
// stays: without a cache, uct_ib_md_close() of 1.13 deregisters a region that nobody has set.
void end(void) {
  const ucp_request_param_t flush = {0};
  void* const closing = ucp_ep_close_nbx(peer, &flush);
  if (UCS_PTR_IS_PTR(closing)) {
    while (ucp_request_check_status(closing) == UCS_INPROGRESS) ucp_worker_progress(worker);
    ucp_request_free(closing);
  }
  ucp_worker_release_address(worker, address);
  ucp_worker_destroy(worker);
}
