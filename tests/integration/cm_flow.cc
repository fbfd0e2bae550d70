// Two programs that connect by rdma_cm and send each other numbered messages, of which each is
// checked: it comes once, in order and complete.
//
//   vrdma_cm_flow server ADDRESS PORT FILE
//   vrdma_cm_flow client ADDRESS PORT FILE
//
// Two 8-byte words in FILE tell how many messages have been sent and received. The client, and the
// server while it has a connection, go on until SIGTERM: who gets it sends a last message, waits
// for that of the other side, and disconnects; the other side must learn of it. The server then
// accepts the next connection, unless it was told to end. Both wait for events of the connection
// and for completions at the same time, and never longer than until one comes.
//
// Prints "listening", "connected" and "N sent, M received" of each connection. Exits with 0, or
// prints what failed.
#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace {

constexpr uint32_t kDepth = 16, kSize = 4096;
constexpr uint32_t kReceives = 2 * kDepth;

[[noreturn]] void fail(const char* what, uint64_t got = 0, uint64_t wanted = 0) {
  std::fprintf(stderr, "FAILED: %s: %llu, wanted %llu (%s)\n", what,
               static_cast<unsigned long long>(got), static_cast<unsigned long long>(wanted),
               std::strerror(errno));
  std::exit(1);
}
void must(int status, const char* what) {
  if (status != 0) fail(what, static_cast<uint64_t>(status));
}
void say(const char* what) {
  std::puts(what);
  std::fflush(stdout);
}

volatile std::sig_atomic_t g_over = 0;

// The signal is blocked, and comes while this waits. ppoll(2) does not deliver it while there is
// something to read.
int wait_for(pollfd* all, nfds_t count) {
  sigset_t end, none;
  sigemptyset(&none);
  sigemptyset(&end);
  sigaddset(&end, SIGTERM);
  const timespec now{};
  if (::sigtimedwait(&end, nullptr, &now) == SIGTERM) g_over = 1;
  const int ready = ::ppoll(all, count, nullptr, &none);
  if (ready < 0 && errno != EINTR) fail("wait");  // EINTR: or it was stopped for a moment
  return ready;
}

struct Message {
  uint64_t number, is_last;
  uint64_t words[kSize / 8 - 2];
};
static_assert(sizeof(Message) == kSize);

class Connection {
 public:
  Connection(rdma_event_channel* channel, volatile uint64_t* progress)
      : channel_(channel), progress_(progress) {}
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // The id has a device.
  void prepare(rdma_cm_id* id) {
    id_ = id;
    completions_ = ibv_create_comp_channel(id->verbs);
    if (completions_ == nullptr) fail("make a completion channel");
    cq_ = ibv_create_cq(id->verbs, 4 * kDepth, nullptr, completions_, 0);
    if (cq_ == nullptr) fail("make a CQ");
    ibv_qp_init_attr wanted{};
    wanted.send_cq = wanted.recv_cq = cq_;
    wanted.qp_type = IBV_QPT_RC;
    wanted.cap = {kDepth, kReceives, 1, 1, 0};
    wanted.sq_sig_all = 1;
    must(rdma_create_qp(id, nullptr, &wanted), "make a queue pair");
    mr_ = ibv_reg_mr(id->pd, memory_, sizeof memory_, IBV_ACCESS_LOCAL_WRITE);
    if (mr_ == nullptr) fail("register");
    must(ibv_req_notify_cq(cq_, 0), "arm");
    for (uint64_t i = 0; i < kReceives; ++i) post_receive(i);
  }
  [[nodiscard]] rdma_conn_param parameters() const {
    rdma_conn_param parameters{};
    parameters.responder_resources = parameters.initiator_depth = 1;
    parameters.retry_count = parameters.rnr_retry_count = 7;
    return parameters;
  }

  // Until it is disconnected.
  void run() {
    while (!disconnected_) {
      if (!has_all()) post_sends();
      if (has_all() && g_over != 0 && !disconnecting_) {
        disconnecting_ = true;
        must(rdma_disconnect(id_), "disconnect");
      }
      wait();
    }
    std::printf("%llu sent, %llu received\n", static_cast<unsigned long long>(posted_),
                static_cast<unsigned long long>(received_));
    std::fflush(stdout);
    rdma_destroy_qp(id_);
    must(ibv_dereg_mr(mr_), "deregister");
    must(ibv_destroy_cq(cq_), "destroy the CQ");
    must(ibv_destroy_comp_channel(completions_), "destroy the completion channel");
    must(rdma_destroy_id(id_), "destroy the id");
  }

  // The next event of the channel; false: there is none. The channel is readable for a moment when
  // the program was written to disk, or vrdmad was replaced.
  bool next(rdma_cm_event_type* type, rdma_cm_id** id = nullptr) {
    rdma_cm_event* event = nullptr;
    if (rdma_get_cm_event(channel_, &event) != 0) {
      if (errno != EAGAIN) fail("read an event");
      return false;
    }
    *type = event->event;
    const int status = event->status;
    if (id != nullptr) *id = event->id;
    must(rdma_ack_cm_event(event), "acknowledge an event");
    if (status != 0) fail(rdma_event_str(*type), static_cast<uint64_t>(status));
    return true;
  }
  void expect(rdma_cm_event_type wanted) {
    rdma_cm_event_type type{};
    pollfd event{channel_->fd, POLLIN, 0};
    while (!next(&type))
      if (::poll(&event, 1, -1) < 0 && errno != EINTR) fail("wait");
    if (type != wanted) fail(rdma_event_str(type));
  }

 private:
  [[nodiscard]] bool has_all() const { return last_sent_ && sent_ == posted_ && last_received_; }
  Message& message_at(uint64_t slot) { return memory_[slot]; }
  void post_receive(uint64_t number) {
    const uint64_t slot = kDepth + number % kReceives;
    ibv_sge sge{reinterpret_cast<uint64_t>(&message_at(slot)), kSize, mr_->lkey};
    ibv_recv_wr wr{}, *bad = nullptr;
    wr.wr_id = slot;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    must(ibv_post_recv(id_->qp, &wr, &bad), "post a receive");
  }
  void post_sends() {
    while (!last_sent_ && posted_ - sent_ < kDepth) {
      last_sent_ = g_over != 0 || last_received_;
      const uint64_t slot = posted_ % kDepth;
      Message& message = message_at(slot);
      message.number = posted_;
      message.is_last = last_sent_ ? 1 : 0;
      for (uint64_t i = 0; i < std::size(message.words); ++i)
        message.words[i] = posted_ * 1000003 + i;
      ibv_sge sge{reinterpret_cast<uint64_t>(&message), kSize, mr_->lkey};
      ibv_send_wr wr{}, *bad = nullptr;
      wr.wr_id = posted_;
      wr.sg_list = &sge;
      wr.num_sge = 1;
      wr.opcode = IBV_WR_SEND;
      must(ibv_post_send(id_->qp, &wr, &bad), "post a send");
      ++posted_;
    }
  }
  void wait() {
    pollfd both[2] = {{channel_->fd, POLLIN, 0}, {completions_->fd, POLLIN, 0}};
    // After the last completion those that come are of flushed requests.
    if (wait_for(both, has_all() ? 1 : 2) < 0) return;
    if (both[0].revents != 0) on_event();
    if (both[1].revents != 0 && !disconnected_) on_completions();
    ::usleep(200);  // leaves the processor to others
  }
  void on_event() {
    rdma_cm_event_type type{};
    if (!next(&type)) return;
    switch (type) {
      case RDMA_CM_EVENT_ESTABLISHED:
        say("connected");
        return;
      case RDMA_CM_EVENT_DISCONNECTED:
        // The other side has got all when it disconnects, even if this one does not know yet.
        if (!last_received_ || !last_sent_) fail("disconnected too early", received_, sent_);
        disconnected_ = true;
        if (!disconnecting_) must(rdma_disconnect(id_), "disconnect");
        return;
      case RDMA_CM_EVENT_TIMEWAIT_EXIT:  // of the connection before
        return;
      default:
        fail(rdma_event_str(type));
    }
  }
  void on_completions() {
    ibv_cq* cq = nullptr;
    void* context = nullptr;
    must(ibv_get_cq_event(completions_, &cq, &context), "read a completion event");
    ibv_ack_cq_events(cq, 1);
    must(ibv_req_notify_cq(cq_, 0), "arm");
    ibv_wc wc[16];
    for (int count = 0; (count = ibv_poll_cq(cq_, 16, wc)) > 0;)
      for (int i = 0; i < count; ++i) completed(wc[i]);
    progress_[0] = sent_;
    progress_[1] = received_;
  }
  void completed(const ibv_wc& wc) {
    if (wc.status != IBV_WC_SUCCESS) fail(ibv_wc_status_str(wc.status), wc.wr_id, wc.vendor_err);
    if (wc.opcode != IBV_WC_RECV) {
      if (wc.wr_id != sent_) fail("a send completes out of its turn", wc.wr_id, sent_);
      ++sent_;
      return;
    }
    if (wc.byte_len != kSize) fail("a message of another length", wc.byte_len, kSize);
    const Message& message = message_at(wc.wr_id);
    if (message.number != received_) fail("another message", message.number, received_);
    for (uint64_t i = 0; i < std::size(message.words); ++i)
      if (message.words[i] != received_ * 1000003 + i) fail("other data", message.words[i], i);
    if (last_received_) fail("a message after the last", received_);
    last_received_ = message.is_last != 0;
    post_receive(received_++ + kReceives);
  }

  rdma_event_channel* channel_;
  volatile uint64_t* progress_;
  rdma_cm_id* id_ = nullptr;
  ibv_comp_channel* completions_ = nullptr;
  ibv_cq* cq_ = nullptr;
  ibv_mr* mr_ = nullptr;
  Message memory_[kDepth + kReceives]{};
  uint64_t posted_ = 0, sent_ = 0, received_ = 0;
  bool last_sent_ = false, last_received_ = false, disconnecting_ = false, disconnected_ = false;
};

// A dump, a move and a restore may take long, on a busy host.
void be_patient(rdma_cm_id* id) {
  uint8_t timeout = 20;  // 4 s, eight times
  must(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &timeout, sizeof timeout),
       "set the ACK timeout");
}

void serve(rdma_event_channel* channel, rdma_cm_id* listener, sockaddr* address,
           volatile uint64_t* progress) {
  be_patient(listener);
  must(rdma_bind_addr(listener, address), "bind");
  must(rdma_listen(listener, 4), "listen");
  say("listening");
  while (g_over == 0) {
    pollfd event{channel->fd, POLLIN, 0};
    if (wait_for(&event, 1) < 0 || g_over != 0) continue;
    auto* const connection = new Connection(channel, progress);
    rdma_cm_id* id = nullptr;
    rdma_cm_event_type type = RDMA_CM_EVENT_TIMEWAIT_EXIT;
    (void)connection->next(&type, &id);
    if (type == RDMA_CM_EVENT_CONNECT_REQUEST) {
      connection->prepare(id);
      rdma_conn_param parameters = connection->parameters();
      must(rdma_accept(id, &parameters), "accept");
      connection->run();
    } else if (type != RDMA_CM_EVENT_TIMEWAIT_EXIT) {
      fail(rdma_event_str(type));
    }
    delete connection;
  }
}

void visit(rdma_event_channel* channel, rdma_cm_id* id, sockaddr* address,
           volatile uint64_t* progress) {
  constexpr int kPatience = 20'000;
  auto* const connection = new Connection(channel, progress);
  be_patient(id);
  must(rdma_resolve_addr(id, nullptr, address, kPatience), "resolve the address");
  connection->expect(RDMA_CM_EVENT_ADDR_RESOLVED);
  must(rdma_resolve_route(id, kPatience), "resolve the route");
  connection->expect(RDMA_CM_EVENT_ROUTE_RESOLVED);
  connection->prepare(id);
  rdma_conn_param parameters = connection->parameters();
  must(rdma_connect(id, &parameters), "connect");
  connection->expect(RDMA_CM_EVENT_ESTABLISHED);
  say("connected");
  connection->run();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) return 2;
  sigset_t end;
  sigemptyset(&end);
  sigaddset(&end, SIGTERM);
  must(::sigprocmask(SIG_BLOCK, &end, nullptr), "block a signal");
  std::signal(SIGTERM, [](int) { g_over = 1; });
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(std::atoi(argv[3])));
  if (inet_pton(AF_INET, argv[2], &address.sin_addr) != 1) return 2;
  const int file = ::open(argv[4], O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  void* words = file < 0 || ::ftruncate(file, 24) != 0
                    ? MAP_FAILED
                    : ::mmap(nullptr, 24, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (words == MAP_FAILED) fail("map the file");
  rdma_event_channel* const channel = rdma_create_event_channel();
  if (channel == nullptr) fail("make a channel");
  must(::fcntl(channel->fd, F_SETFL, O_NONBLOCK), "make the channel non-blocking");
  rdma_cm_id* id = nullptr;
  must(rdma_create_id(channel, &id, nullptr, RDMA_PS_TCP), "make an id");
  auto* const at = reinterpret_cast<sockaddr*>(&address);
  auto* const progress = static_cast<volatile uint64_t*>(words);
  (std::strcmp(argv[1], "server") == 0 ? serve : visit)(channel, id, at, progress);
  return 0;
}
