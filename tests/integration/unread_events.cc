// One connection of rdma_cm, whose events the test lets each side read one by one.
//
//   vrdma_unread_events server ADDRESS PORT GO
//   vrdma_unread_events client ADDRESS PORT GO
//
// Before its n-th event the server waits for the file GO.n. It prints what it reads:
// CONNECT_REQUEST, which it accepts, ESTABLISHED, DISCONNECTED, which it answers, and
// TIMEWAIT_EXIT; then nothing more may be there. The client connects, and disconnects when GO.1
// exists. Both exit with 0, or print what failed.
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <rdma/rdma_cma.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace {

[[noreturn]] void fail(const char* what) {
  std::fprintf(stderr, "%s: %s\n", what, std::strerror(errno));
  std::exit(1);
}
void must(int status, const char* what) {
  if (status != 0) fail(what);
}
void say(const char* what) {
  std::puts(what);
  std::fflush(stdout);
}
void await(const std::string& go, int step) {
  constexpr useconds_t kPause = 10'000;
  while (::access((go + "." + std::to_string(step)).c_str(), F_OK) != 0) ::usleep(kPause);
}

// The id of the next event, which must be of that type.
rdma_cm_id* next(rdma_event_channel* channel, rdma_cm_event_type type) {
  rdma_cm_event* event = nullptr;
  must(rdma_get_cm_event(channel, &event), "read an event");
  const rdma_cm_event got = *event;
  must(rdma_ack_cm_event(event), "acknowledge an event");
  say(rdma_event_str(got.event) + std::strlen("RDMA_CM_EVENT_"));
  if (got.event != type || got.status != 0) {
    std::fprintf(stderr, "status %d, expected %s\n", got.status, rdma_event_str(type));
    std::exit(1);
  }
  return got.id;
}

void make_queue_pair(rdma_cm_id* id) {
  ibv_qp_init_attr wanted{};
  wanted.qp_type = IBV_QPT_RC;
  wanted.cap = {4, 4, 1, 1, 0};
  must(rdma_create_qp(id, nullptr, &wanted), "make a queue pair");
}

void serve(rdma_event_channel* channel, rdma_cm_id* listener, sockaddr* address,
           const std::string& go) {
  rdma_conn_param parameters{};
  must(rdma_bind_addr(listener, address), "bind");
  must(rdma_listen(listener, 4), "listen");
  say("listening");
  await(go, 1);
  rdma_cm_id* const id = next(channel, RDMA_CM_EVENT_CONNECT_REQUEST);
  make_queue_pair(id);
  must(rdma_accept(id, &parameters), "accept");
  await(go, 2);
  next(channel, RDMA_CM_EVENT_ESTABLISHED);
  await(go, 3);
  next(channel, RDMA_CM_EVENT_DISCONNECTED);
  must(rdma_disconnect(id), "disconnect");
  await(go, 4);
  next(channel, RDMA_CM_EVENT_TIMEWAIT_EXIT);
  rdma_cm_event* more = nullptr;
  must(::fcntl(channel->fd, F_SETFL, O_NONBLOCK), "make the channel non-blocking");
  if (rdma_get_cm_event(channel, &more) == 0) {
    say(rdma_event_str(more->event));
    std::exit(1);
  }
  if (errno != EAGAIN) fail("look for another event");
  say("no more");
}

void visit(rdma_event_channel* channel, rdma_cm_id* id, sockaddr* address, const std::string& go) {
  constexpr int kPatience = 5000;
  rdma_conn_param parameters{};
  must(rdma_resolve_addr(id, nullptr, address, kPatience), "resolve the address");
  next(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
  must(rdma_resolve_route(id, kPatience), "resolve the route");
  next(channel, RDMA_CM_EVENT_ROUTE_RESOLVED);
  make_queue_pair(id);
  must(rdma_connect(id, &parameters), "connect");
  next(channel, RDMA_CM_EVENT_ESTABLISHED);
  await(go, 1);
  must(rdma_disconnect(id), "disconnect");
  next(channel, RDMA_CM_EVENT_DISCONNECTED);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) return 2;
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(std::atoi(argv[3])));
  if (inet_pton(AF_INET, argv[2], &address.sin_addr) != 1) return 2;
  rdma_event_channel* const channel = rdma_create_event_channel();
  if (channel == nullptr) fail("make a channel");
  rdma_cm_id* id = nullptr;
  must(rdma_create_id(channel, &id, nullptr, RDMA_PS_TCP), "make an id");
  auto* const at = reinterpret_cast<sockaddr*>(&address);
  (std::strcmp(argv[1], "server") == 0 ? serve : visit)(channel, id, at, argv[4]);
  return 0;
}
