// rdmacm_storm server|client ADDRESS PORT CONNECTIONS WINDOW [polls|stops]
//
// Opens and closes connections by rdma_cm, WINDOW at a time, each with its own queue pair and
// through its complete end. `polls`: its channel is non-blocking and used with edge-triggered
// epoll; `stops`: it stops itself after its first event. Prints the rate per second. Fails if a
// connection is refused or lost, or gets an unexpected event.
#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <sys/epoll.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace {

[[noreturn]] void fail(const std::string& what) {
  std::fprintf(stderr, "FAILED: %s: %s\n", what.c_str(), std::strerror(errno));
  std::_Exit(1);
}
void must(bool holds, const char* what) {
  if (!holds) fail(what);
}

struct Side {
  sockaddr_in address{};
  rdma_event_channel* channel = rdma_create_event_channel();
  ibv_cq* cq = nullptr;
  int epoll = -1;  // -1: the channel blocks
  unsigned asked = 0, established = 0, disconnected = 0, ended = 0;

  void make_queue_pair(rdma_cm_id* id) {
    if (cq == nullptr) cq = ibv_create_cq(id->verbs, 16, nullptr, nullptr, 0);
    must(cq != nullptr, "ibv_create_cq");
    ibv_qp_init_attr attr{};
    attr.send_cq = attr.recv_cq = cq;
    attr.cap.max_send_wr = attr.cap.max_recv_wr = attr.cap.max_send_sge = attr.cap.max_recv_sge = 1;
    attr.qp_type = IBV_QPT_RC;
    must(rdma_create_qp(id, nullptr, &attr) == 0, "rdma_create_qp");
  }
  void destroy(rdma_cm_id* id) {
    if (id->qp != nullptr) rdma_destroy_qp(id);
    must(rdma_destroy_id(id) == 0, "rdma_destroy_id");
  }
  void poll() {
    must(::fcntl(channel->fd, F_SETFL, O_NONBLOCK) == 0, "fcntl");
    epoll = ::epoll_create1(0);
    epoll_event event{};
    event.events = EPOLLIN | EPOLLET;
    must(::epoll_ctl(epoll, EPOLL_CTL_ADD, channel->fd, &event) == 0, "epoll_ctl");
  }
  void stop_at_first() const {
    pollfd ready{channel->fd, POLLIN, 0};
    must(::poll(&ready, 1, -1) == 1, "poll");
    must(std::raise(SIGSTOP) == 0, "raise");
  }
  // Returns the event's type and id, and acknowledges it.
  rdma_cm_event_type next(rdma_cm_id** id) {
    rdma_cm_event* event = nullptr;
    epoll_event ready{};
    while (rdma_get_cm_event(channel, &event) != 0) {
      must(epoll >= 0 && errno == EAGAIN, "rdma_get_cm_event");
      // EINTR: it was stopped for a moment (signal(7)).
      must(::epoll_wait(epoll, &ready, 1, -1) == 1 || errno == EINTR, "epoll_wait");
    }
    const rdma_cm_event_type type = event->event;
    const int status = event->status;
    *id = event->id;
    rdma_ack_cm_event(event);
    if (status != 0) fail(std::string(rdma_event_str(type)) + " with " + std::to_string(status));
    return type;
  }
};

void serve(Side& side, unsigned connections) {
  rdma_cm_id* listener = nullptr;
  must(rdma_create_id(side.channel, &listener, nullptr, RDMA_PS_TCP) == 0, "rdma_create_id");
  must(rdma_bind_addr(listener, reinterpret_cast<sockaddr*>(&side.address)) == 0, "rdma_bind_addr");
  must(rdma_listen(listener, 1024) == 0, "rdma_listen");
  std::puts("listening");
  std::fflush(stdout);
  while (side.ended < connections) {
    rdma_cm_id* id = nullptr;
    switch (const auto type = side.next(&id)) {
      case RDMA_CM_EVENT_CONNECT_REQUEST: {
        ++side.asked;
        side.make_queue_pair(id);
        rdma_conn_param param{};
        param.responder_resources = param.initiator_depth = 1;
        must(rdma_accept(id, &param) == 0, "rdma_accept");
        break;
      }
      case RDMA_CM_EVENT_ESTABLISHED:
        ++side.established;
        break;
      case RDMA_CM_EVENT_DISCONNECTED:
        ++side.disconnected;
        must(rdma_disconnect(id) == 0, "rdma_disconnect");
        side.destroy(id);
        ++side.ended;
        break;
      case RDMA_CM_EVENT_TIMEWAIT_EXIT:
        break;
      default:
        fail(std::string("an event that must not come: ") + rdma_event_str(type));
    }
  }
  must(rdma_destroy_id(listener) == 0, "rdma_destroy_id");
}

void begin(Side& side) {
  rdma_cm_id* id = nullptr;
  must(rdma_create_id(side.channel, &id, nullptr, RDMA_PS_TCP) == 0, "rdma_create_id");
  must(rdma_resolve_addr(id, nullptr, reinterpret_cast<sockaddr*>(&side.address), 2000) == 0,
       "rdma_resolve_addr");
  ++side.asked;
}

void ask(Side& side, unsigned connections, unsigned window, bool stops) {
  while (side.asked < connections && side.asked < window) begin(side);
  if (stops) side.stop_at_first();
  while (side.ended < connections) {
    rdma_cm_id* id = nullptr;
    switch (const auto type = side.next(&id)) {
      case RDMA_CM_EVENT_ADDR_RESOLVED:
        must(rdma_resolve_route(id, 2000) == 0, "rdma_resolve_route");
        break;
      case RDMA_CM_EVENT_ROUTE_RESOLVED: {
        side.make_queue_pair(id);
        rdma_conn_param param{};
        param.responder_resources = param.initiator_depth = 1;
        param.retry_count = param.rnr_retry_count = 7;
        must(rdma_connect(id, &param) == 0, "rdma_connect");
        break;
      }
      case RDMA_CM_EVENT_ESTABLISHED:
        ++side.established;
        must(rdma_disconnect(id) == 0, "rdma_disconnect");
        break;
      case RDMA_CM_EVENT_DISCONNECTED:
        ++side.disconnected;
        side.destroy(id);
        ++side.ended;
        if (side.asked < connections) begin(side);
        break;
      case RDMA_CM_EVENT_TIMEWAIT_EXIT:
        break;
      default:
        fail(std::string("an event that must not come: ") + rdma_event_str(type));
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 6) {
    std::fprintf(
        stderr,
        "usage: rdmacm_storm server|client ADDRESS PORT CONNECTIONS WINDOW [polls|stops]\n");
    return 2;
  }
  Side side;
  must(side.channel != nullptr, "rdma_create_event_channel");
  const std::string how = argc > 6 ? argv[6] : "";
  if (how == "polls") side.poll();
  side.address.sin_family = AF_INET;
  must(::inet_pton(AF_INET, argv[2], &side.address.sin_addr) == 1, "the address");
  side.address.sin_port = htons(static_cast<uint16_t>(std::atoi(argv[3])));
  const auto connections = static_cast<unsigned>(std::atoi(argv[4]));
  const auto begun = std::chrono::steady_clock::now();
  if (std::string(argv[1]) == "server")
    serve(side, connections);
  else
    ask(side, connections, static_cast<unsigned>(std::atoi(argv[5])), how == "stops");
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begun;
  std::printf("%u asked, %u established, %u disconnected, %.0f/s\n", side.asked, side.established,
              side.disconnected, connections / took.count());
  return side.asked == connections && side.established == connections &&
                 side.disconnected == connections
             ? 0
             : 1;
}
