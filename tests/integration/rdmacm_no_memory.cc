// rdmacm_no_memory ADDRESS: connection requests to a program that has no memory for one of the
// allocations of rdma_get_cm_event, each in turn. It gets the request, now or with its next call,
// or the request is refused; in any case its listener can be destroyed.
#include <arpa/inet.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

[[noreturn]] void fail(const char* what, int line) {
  std::fprintf(stderr, "FAILED: line %d: %s: %s\n", line, what, std::strerror(errno));
  std::_Exit(1);
}
#define CHECK(holds) ((holds) ? void() : fail(#holds, __LINE__))

thread_local int allocations_left = -1;  // until the one that fails; negative: none does

}  // namespace

#if !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)  // they have a malloc of their own
extern "C" {
void* __libc_malloc(size_t size);
void* malloc(size_t size) {
  if (allocations_left >= 0 && allocations_left-- == 0) {
    errno = ENOMEM;
    return nullptr;
  }
  return __libc_malloc(size);
}
}
#endif

namespace {

bool is_readable(const rdma_event_channel* channel, int timeout_ms) {
  pollfd state{channel->fd, POLLIN, 0};
  return ::poll(&state, 1, timeout_ms) == 1;
}

rdma_cm_event_type next(rdma_event_channel* channel) {
  CHECK(is_readable(channel, 10'000));
  rdma_cm_event* event = nullptr;
  CHECK(rdma_get_cm_event(channel, &event) == 0);
  const rdma_cm_event_type type = event->event;
  CHECK(rdma_ack_cm_event(event) == 0);
  return type;
}

rdma_cm_id* ask(rdma_event_channel* channel, sockaddr_in address) {
  rdma_cm_id* id = nullptr;
  CHECK(rdma_create_id(channel, &id, nullptr, RDMA_PS_TCP) == 0);
  CHECK(rdma_resolve_addr(id, nullptr, reinterpret_cast<sockaddr*>(&address), 2000) == 0);
  CHECK(next(channel) == RDMA_CM_EVENT_ADDR_RESOLVED);
  CHECK(rdma_resolve_route(id, 2000) == 0);
  CHECK(next(channel) == RDMA_CM_EVENT_ROUTE_RESOLVED);
  ibv_qp_init_attr attr{};
  attr.cap.max_send_wr = attr.cap.max_recv_wr = attr.cap.max_send_sge = attr.cap.max_recv_sge = 1;
  attr.qp_type = IBV_QPT_RC;
  CHECK(rdma_create_qp(id, nullptr, &attr) == 0);
  rdma_conn_param param{};
  param.retry_count = 7;
  CHECK(rdma_connect(id, &param) == 0);
  return id;
}

// Whether the program got the request, of which allocation `number` failed.
bool take(rdma_event_channel* channel, int number) {
  CHECK(is_readable(channel, 10'000));
  rdma_cm_event* event = nullptr;
  allocations_left = number;
  const int got = rdma_get_cm_event(channel, &event);
  const int why = errno;
  allocations_left = -1;
  if (got != 0) {
    errno = why;
    CHECK(why == ENOMEM);
    if (!is_readable(channel, 0)) return false;
    CHECK(rdma_get_cm_event(channel, &event) == 0);
  }
  CHECK(event->event == RDMA_CM_EVENT_CONNECT_REQUEST);
  rdma_cm_id* const id = event->id;
  CHECK(rdma_ack_cm_event(event) == 0);
  CHECK(rdma_destroy_id(id) == 0);
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  constexpr int kMost = 16;  // more than there are allocations
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(7479);
  if (argc != 2 || ::inet_pton(AF_INET, argv[1], &address.sin_addr) != 1) {
    std::fprintf(stderr, "usage: rdmacm_no_memory IPV4\n");
    return 2;
  }
  rdma_event_channel* const servers = rdma_create_event_channel();
  rdma_event_channel* const clients = rdma_create_event_channel();
  CHECK(servers != nullptr && clients != nullptr);
  rdma_cm_id* listener = nullptr;
  CHECK(rdma_create_id(servers, &listener, nullptr, RDMA_PS_TCP) == 0);
  CHECK(rdma_bind_addr(listener, reinterpret_cast<sockaddr*>(&address)) == 0);
  CHECK(rdma_listen(listener, 8) == 0);
  int lost = 0;
  for (int number = 0; number < kMost; ++number) {
    rdma_cm_id* const client = ask(clients, address);
    if (!take(servers, number)) ++lost;
    const rdma_cm_event_type told = next(clients);
    CHECK(told == RDMA_CM_EVENT_REJECTED || told == RDMA_CM_EVENT_UNREACHABLE);
    rdma_destroy_qp(client);
    CHECK(rdma_destroy_id(client) == 0);
  }
  CHECK(rdma_destroy_id(listener) == 0);
  std::printf("%d of %d requests were refused for lack of memory\n", lost, kMost);
  return 0;
}
