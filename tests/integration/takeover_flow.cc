// Two processes that send each other numbered messages for some seconds and check that each arrives
// once, in order and complete, and that each send completes once and in order. `shared`: the
// receives are in an SRQ; none may be missing at the end. `all`: with events, in a process with two
// threads; before each message the process also writes to the memory of the other one, reads there
// what it wrote, or adds 1 to a number there, which must be as large as the additions before.
//
//   vrdma_takeover_flow DEVICE GID_INDEX PORT|/PIPES SECONDS|/FILE poll|events|shared|all
//   [SERVER_ADDRESS] vrdma_takeover_flow DEVICE GID_INDEX PORT /FILE datagrams [SERVER_ADDRESS]
//
// With PIPES they meet by the named pipes PIPES.a and PIPES.b, and have no socket of their own.
//
// `datagrams`: they may be lost, but none may come twice, or damaged, or out of order.
//
// With a FILE it goes on until SIGTERM, and two 8-byte words in FILE tell how many messages have
// been sent and received. A third one tells how long nothing came, neither a message nor a
// completion, in microseconds; whoever sets it to 0 begins anew.
//
// FLOW_AFTER in the environment names a file that must be there before it opens the device.
//
// Exits with 0 on success; otherwise prints what failed.
#include <arpa/inet.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <thread>

namespace {

constexpr uint32_t kDepth = 32;
constexpr uint32_t kSize = 8192;
// The memory: received messages, messages, what the other side writes, what is read or found by
// adding, and a number that the other side adds to. A write may arrive before as many messages
// before it as there are receives have been checked.
constexpr uint32_t kMessages = kDepth, kWritten = 2 * kDepth, kResults = 4 * kDepth,
                   kNumber = 5 * kDepth, kSlots = kNumber + 1;

[[noreturn]] void fail(const char* what, uint64_t got = 0, uint64_t wanted = 0) {
  std::fprintf(stderr, "%s: %llu, wanted %llu\n", what, static_cast<unsigned long long>(got),
               static_cast<unsigned long long>(wanted));
  std::exit(1);
}
template <class T>
T* made(T* object, const char* what) {
  if (object == nullptr) fail(what, static_cast<uint64_t>(errno));
  return object;
}

struct Address {
  uint32_t qpn;
  uint32_t rkey;
  uint64_t memory;
  ibv_gid gid;
};

// To the other side: a socket, or two named pipes.
struct Line {
  int in, out;
};

void move_all(const Line& line, void* data, size_t size, bool out) {
  auto* bytes = static_cast<char*>(data);
  for (size_t done = 0; done < size;) {
    const ssize_t count = out ? ::write(line.out, bytes + done, size - done)
                              : ::read(line.in, bytes + done, size - done);
    if (count <= 0) fail("the other side has gone");
    done += static_cast<size_t>(count);
  }
}

// At a port; or by PATH.a and PATH.b, which are there.
Line meet(const char* where, const char* server) {
  if (where[0] == '/') {
    const std::string path(where);
    const int a = ::open((path + ".a").c_str(), O_RDWR | O_CLOEXEC);
    const int b = ::open((path + ".b").c_str(), O_RDWR | O_CLOEXEC);
    if (a < 0 || b < 0) fail("open the pipes", static_cast<uint64_t>(errno));
    return server != nullptr ? Line{a, b} : Line{b, a};
  }
  const auto port = static_cast<uint16_t>(std::atoi(where));
  int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  if (server != nullptr) {
    ::inet_pton(AF_INET, server, &address.sin_addr);
    if (::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) fail("connect");
    return {fd, fd};
  }
  const int on = 1;
  ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (::bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 ||
      ::listen(fd, 1) != 0)
    fail("listen");
  const int accepted = ::accept4(fd, nullptr, nullptr, SOCK_CLOEXEC);
  if (accepted < 0) fail("meet");
  return {accepted, accepted};
}

ibv_context* open_device(const char* name) {
  int count = 0;
  ibv_device** const devices = ibv_get_device_list(&count);
  for (int i = 0; i < count; ++i)
    if (std::strcmp(ibv_get_device_name(devices[i]), name) == 0)
      return made(ibv_open_device(devices[i]), "open the device");
  return made<ibv_context>(nullptr, "find the device");
}

volatile std::sig_atomic_t g_over = 0;

class Flow {
 public:
  Flow(const char* device, uint8_t gid_index, const std::string& how) : gid_index_(gid_index) {
    context_ = open_device(device);
    pd_ = made(ibv_alloc_pd(context_), "allocate a PD");
    all_ = how == "all";
    expected_ = all_ ? 0 : 1;
    if (all_) std::thread([] { ::pause(); }).detach();
    if (how == "events" || all_)
      channel_ = made(ibv_create_comp_channel(context_), "make a channel");
    cq_ = made(ibv_create_cq(context_, 4 * kDepth, nullptr, channel_, 0), "make a CQ");
    // Shared memory is reached, so that a worker holds a receive most of the time.
    constexpr size_t kBytes = kSlots * kSize;
    void* memory = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE,
                          MAP_ANONYMOUS | (how == "shared" ? MAP_SHARED : MAP_PRIVATE), -1, 0);
    if (memory == MAP_FAILED) fail("map memory", static_cast<uint64_t>(errno));
    memory_ = static_cast<char*>(memory);
    mr_ = made(ibv_reg_mr(pd_, memory_, kBytes, kAccess), "register");
    if (how == "shared") {
      ibv_srq_init_attr shared{};
      shared.attr.max_wr = kDepth;
      shared.attr.max_sge = 1;
      srq_ = made(ibv_create_srq(pd_, &shared), "make an SRQ");
    }
    ibv_qp_init_attr attr{};
    attr.srq = srq_;
    attr.send_cq = attr.recv_cq = cq_;
    attr.cap = {2 * kDepth, kDepth, 1, 1, 0};
    attr.qp_type = IBV_QPT_RC;
    attr.sq_sig_all = 1;
    qp_ = made(ibv_create_qp(pd_, &attr), "make a QP");
    if (channel_ != nullptr && ibv_req_notify_cq(cq_, 0) != 0) fail("arm");
  }

  void connect(const Line& line) {
    Address mine{qp_->qp_num, mr_->rkey, reinterpret_cast<uint64_t>(memory_), {}};
    if (ibv_query_gid(context_, 1, gid_index_, &mine.gid) != 0) fail("query the GID");
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_INIT;
    attr.port_num = 1;
    attr.qp_access_flags = kAccess;
    modify(attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
    for (uint32_t i = 0; i < kDepth; ++i) post_receive(i);
    move_all(line, &mine, sizeof mine, true);
    move_all(line, &theirs_, sizeof theirs_, false);
    attr = {};
    attr.qp_state = IBV_QPS_RTR;
    attr.path_mtu = IBV_MTU_1024;
    attr.dest_qp_num = theirs_.qpn;
    attr.min_rnr_timer = 12;
    attr.max_dest_rd_atomic = 1;
    attr.ah_attr.is_global = 1;
    attr.ah_attr.port_num = 1;
    attr.ah_attr.grh.dgid = theirs_.gid;
    attr.ah_attr.grh.sgid_index = gid_index_;
    attr.ah_attr.grh.hop_limit = 64;
    modify(attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                     IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
    attr = {};
    attr.qp_state = IBV_QPS_RTS;
    const char* const timeout = std::getenv("FLOW_TIMEOUT");  // as ibv_modify_qp(3) has it
    attr.timeout = static_cast<uint8_t>(timeout != nullptr ? std::atoi(timeout) : 14);
    attr.retry_cnt = 7;
    attr.rnr_retry = 7;
    attr.max_rd_atomic = 1;
    modify(attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                     IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
    char ready = 0;
    move_all(line, &ready, 1, true);
    move_all(line, &ready, 1, false);
  }

  // `over`: whether to send the last message. `progress`: see above. `paced`: with pauses.
  void run(const std::function<bool()>& over, volatile uint64_t* progress, bool paced) {
    bool sending = true;
    while (sending || sent_ < posted_ || received_ < total_) {
      sending = sending && !over();
      while (!last_posted_ && posted_ - sent_ < kDepth) {
        post_send(!sending);
        if (posted_ % 4 == 0) break;  // small posts, so that queues run empty too
      }
      const uint64_t before = sent_ + received_;
      take();
      progress[0] = sent_;
      progress[1] = received_;
      const auto now = std::chrono::steady_clock::now();
      const auto gap = std::chrono::duration_cast<std::chrono::microseconds>(now - progress_at_);
      if (gap.count() > static_cast<int64_t>(progress[2]))
        progress[2] = static_cast<uint64_t>(gap.count());
      if (sent_ + received_ > before) progress_at_ = now;
      if (++rounds_ % 64 == 0) register_something();
      // Leaves the processor to the daemon, and queues that run empty.
      if ((all_ || paced) && rounds_ % 16 == 0) ::usleep(1000);
    }
  }

  // Sends as many messages as there must be receives.
  void use_up() {
    if (srq_ == nullptr) return;
    using_up_ = true;
    const uint64_t sends = posted_ + kDepth, receives = received_ + kDepth;
    while (posted_ < sends) post_send(false);
    while (sent_ < sends || received_ < receives) take();
  }

  [[nodiscard]] uint64_t posted() const { return posted_; }
  [[nodiscard]] uint64_t received() const { return received_; }

  void close() {
    const auto expect_0 = [](const char* what, int error) {
      if (error != 0) fail(what, static_cast<uint64_t>(error));
    };
    expect_0("destroy the QP", ibv_destroy_qp(qp_));
    if (srq_ != nullptr) expect_0("destroy the SRQ", ibv_destroy_srq(srq_));
    expect_0("destroy the CQ", ibv_destroy_cq(cq_));
    if (channel_ != nullptr) expect_0("destroy the channel", ibv_destroy_comp_channel(channel_));
    expect_0("deregister", ibv_dereg_mr(mr_));
    expect_0("deallocate the PD", ibv_dealloc_pd(pd_));
    expect_0("close the device", ibv_close_device(context_));
  }

 private:
  static constexpr unsigned kAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                                      IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
  // What is done before a message, by its number.
  enum class Beside { kWrite, kRead, kAdd };
  static Beside beside(uint64_t index) { return static_cast<Beside>(index % 3); }

  void modify(ibv_qp_attr& attr, int mask) {
    if (const int error = ibv_modify_qp(qp_, &attr, mask); error != 0)
      fail("modify the QP", static_cast<uint64_t>(error));
  }
  uint64_t* slot(uint64_t index) { return reinterpret_cast<uint64_t*>(memory_ + index * kSize); }
  void post_receive(uint64_t index) {
    ibv_sge sge{reinterpret_cast<uint64_t>(slot(index % kDepth)), kSize, mr_->lkey};
    ibv_recv_wr wr{}, *bad = nullptr;
    wr.wr_id = index;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    const int error =
        srq_ != nullptr ? ibv_post_srq_recv(srq_, &wr, &bad) : ibv_post_recv(qp_, &wr, &bad);
    if (error != 0) fail("post a receive", static_cast<uint64_t>(error));
  }
  // The next request is 2 * index, what is done beside message `index`, or 2 * index + 1, the
  // message.
  void post(uint64_t id, ibv_send_wr wr, const uint64_t* words, uint32_t length) {
    ibv_sge sge{reinterpret_cast<uint64_t>(words), length, mr_->lkey};
    ibv_send_wr* bad = nullptr;
    wr.wr_id = id;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    if (const int error = ibv_post_send(qp_, &wr, &bad); error != 0)
      fail("post a request", static_cast<uint64_t>(error));
  }
  void post_beside(uint64_t index) {
    ibv_send_wr wr{};
    const auto their_slot = [&](uint64_t slot) { return theirs_.memory + slot * kSize; };
    const uint64_t* result = slot(kResults + index % kDepth);
    switch (beside(index)) {
      case Beside::kWrite:
        wr.opcode = IBV_WR_RDMA_WRITE;
        wr.wr.rdma = {their_slot(kWritten + index % (2 * kDepth)), theirs_.rkey};
        return post(2 * index, wr, slot(kMessages + index % kDepth), kSize);
      case Beside::kRead:
        wr.opcode = IBV_WR_RDMA_READ;
        wr.wr.rdma = {their_slot(kWritten + (index - 1) % (2 * kDepth)), theirs_.rkey};
        return post(2 * index, wr, result, kSize);
      case Beside::kAdd:
        wr.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
        wr.wr.atomic = {their_slot(kNumber), 1, 0, theirs_.rkey};
        return post(2 * index, wr, result, 8);
    }
  }
  void post_send(bool last) {
    const uint64_t index = posted_;
    uint64_t* words = slot(kMessages + index % kDepth);
    for (uint32_t i = 0; i < kSize / 8; i += 8) words[i] = index * 1000003 + i;
    words[0] = index;
    words[1] = last ? index + 1 : 0;
    if (all_) post_beside(index);
    ibv_send_wr wr{};
    wr.opcode = IBV_WR_SEND;
    post(2 * index + 1, wr, words, kSize);
    ++posted_;
    last_posted_ = last;
  }
  void take() {
    ibv_wc wc[16];
    int count = ibv_poll_cq(cq_, 16, wc);
    if (count == 0 && channel_ != nullptr) {
      ibv_cq* cq = nullptr;
      void* with = nullptr;
      if (ibv_get_cq_event(channel_, &cq, &with) != 0) fail("wait", static_cast<uint64_t>(errno));
      ibv_ack_cq_events(cq, 1);
      if (ibv_req_notify_cq(cq_, 0) != 0) fail("arm");
      count = ibv_poll_cq(cq_, 16, wc);
    }
    for (int i = 0; i < count; ++i) {
      if (wc[i].status != IBV_WC_SUCCESS) fail(ibv_wc_status_str(wc[i].status), wc[i].wr_id);
      if (wc[i].opcode == IBV_WC_RECV)
        check(wc[i]);
      else
        completed(wc[i].wr_id);
    }
  }
  void completed(uint64_t id) {
    if (id != expected_) fail("a request completes out of its turn", id, expected_);
    expected_ += all_ ? 1 : 2;
    const uint64_t index = id / 2;
    const uint64_t* result = slot(kResults + index % kDepth);
    if (id % 2 != 0)
      ++sent_;
    else if (beside(index) == Beside::kRead)
      check_words(result, index - 1);
    else if (beside(index) == Beside::kAdd && result[0] != added_++)
      fail("an addition finds another number", result[0], added_ - 1);
  }
  static void check_words(const uint64_t* words, uint64_t index) {
    if (words[0] != index) fail("another message", words[0], index);
    for (uint32_t i = 8; i < kSize / 8; i += 8)
      if (words[i] != index * 1000003 + i) fail("other data", words[i], index * 1000003 + i);
  }
  void check(const ibv_wc& wc) {
    const uint64_t index = received_++;
    const uint64_t* words = slot(wc.wr_id % kDepth);
    // A receive that a worker returned is used before receives that were posted earlier.
    if (wc.wr_id != index && srq_ == nullptr)
      fail("a receive completes out of its turn", wc.wr_id, index);
    if (wc.byte_len != kSize) fail("a message of another length", wc.byte_len, kSize);
    check_words(words, index);
    if (all_ && beside(index) == Beside::kWrite)
      check_words(slot(kWritten + index % (2 * kDepth)), index);
    if (words[1] != 0) total_ = words[1];
    if (!using_up_) post_receive(wc.wr_id + kDepth);
  }
  // Requests to the daemon, which may be absent or have just been killed.
  void register_something() {
    static char other[4096];
    ibv_mr* mr = made(ibv_reg_mr(pd_, other, sizeof other, IBV_ACCESS_LOCAL_WRITE), "register");
    if (mr->lkey == mr_->lkey) fail("a key is given twice", mr->lkey);
    if (const int error = ibv_dereg_mr(mr); error != 0)
      fail("deregister", static_cast<uint64_t>(error));
  }

  uint8_t gid_index_;
  bool all_ = false;
  Address theirs_{};
  ibv_context* context_ = nullptr;
  ibv_pd* pd_ = nullptr;
  ibv_comp_channel* channel_ = nullptr;
  ibv_cq* cq_ = nullptr;
  ibv_mr* mr_ = nullptr;
  ibv_srq* srq_ = nullptr;
  ibv_qp* qp_ = nullptr;
  char* memory_ = nullptr;
  uint64_t posted_ = 0, sent_ = 0, received_ = 0, total_ = UINT64_MAX, rounds_ = 0;
  uint64_t expected_ = 0;  // the request that completes next
  uint64_t added_ = 0;
  std::chrono::steady_clock::time_point progress_at_ = std::chrono::steady_clock::now();
  bool last_posted_ = false, using_up_ = false;
};

// Sends datagrams by a UD queue pair, and checks those that come.
class Datagrams {
 public:
  Datagrams(const char* device, uint8_t gid_index) : gid_index_(gid_index) {
    context_ = open_device(device);
    pd_ = made(ibv_alloc_pd(context_), "allocate a PD");
    cq_ = made(ibv_create_cq(context_, 4 * kDepth, nullptr, nullptr, 0), "make a CQ");
    mr_ = made(ibv_reg_mr(pd_, slots_, sizeof slots_, IBV_ACCESS_LOCAL_WRITE), "register");
    ibv_qp_init_attr init{};
    init.send_cq = init.recv_cq = cq_;
    init.cap = {kDepth, kDepth, 1, 1, 0};
    init.qp_type = IBV_QPT_UD;
    qp_ = made(ibv_create_qp(pd_, &init), "make a QP");
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_INIT;
    attr.port_num = 1;
    attr.qkey = kQkey;
    modify(attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY);
    for (uint64_t i = 0; i < kDepth; ++i) post_receive(i);
    attr.qp_state = IBV_QPS_RTR;
    modify(attr, IBV_QP_STATE);
    attr.qp_state = IBV_QPS_RTS;
    modify(attr, IBV_QP_STATE | IBV_QP_SQ_PSN);
  }
  void run(const Line& line, volatile uint64_t* progress) {
    Address mine{qp_->qp_num, 0, 0, {}}, theirs{};
    if (ibv_query_gid(context_, 1, gid_index_, &mine.gid) != 0) fail("query the GID");
    move_all(line, &mine, sizeof mine, true);
    move_all(line, &theirs, sizeof theirs, false);
    ibv_ah_attr way{};
    way.is_global = way.port_num = 1;
    way.grh.dgid = theirs.gid;
    way.grh.sgid_index = gid_index_;
    way.grh.hop_limit = 64;
    ibv_ah* const ah = made(ibv_create_ah(pd_, &way), "make an address handle");
    auto came = std::chrono::steady_clock::now();
    for (; g_over == 0; ::usleep(500)) {
      if (in_hand_ < kDepth / 2) post_send(ah, theirs.qpn);
      const uint64_t before = received_;
      take();
      progress[0] = sent_;
      progress[1] = received_;
      const auto now = std::chrono::steady_clock::now();
      const auto gap = std::chrono::duration_cast<std::chrono::microseconds>(now - came).count();
      if (gap > static_cast<int64_t>(progress[2])) progress[2] = static_cast<uint64_t>(gap);
      if (received_ > before) came = now;
    }
    std::printf("%llu sent, %llu received\n", static_cast<unsigned long long>(sent_),
                static_cast<unsigned long long>(received_));
  }

 private:
  static constexpr uint32_t kQkey = 0x1234, kGrh = 40, kBytes = 1024;
  struct alignas(64) Slot {
    char bytes[kGrh + kBytes];
  };
  void modify(ibv_qp_attr& attr, int mask) {
    if (const int error = ibv_modify_qp(qp_, &attr, mask); error != 0)
      fail("modify the QP", static_cast<uint64_t>(error));
  }
  ibv_sge part(uint64_t slot, uint32_t length) {
    return {reinterpret_cast<uint64_t>(slots_[slot].bytes), length, mr_->lkey};
  }
  void post_receive(uint64_t slot) {
    ibv_sge sge = part(slot, kGrh + kBytes);
    ibv_recv_wr wr{}, *bad = nullptr;
    wr.wr_id = slot;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    if (ibv_post_recv(qp_, &wr, &bad) != 0) fail("post a receive");
  }
  void post_send(ibv_ah* ah, uint32_t qpn) {
    const uint64_t slot = kDepth + posted_ % kDepth;
    const uint64_t number = ++posted_;
    for (uint32_t at = 0; at < kBytes; at += 8)
      std::memcpy(slots_[slot].bytes + at, &number, sizeof number);
    ibv_sge sge = part(slot, kBytes);
    ibv_send_wr wr{}, *bad = nullptr;
    wr.wr_id = slot;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.opcode = IBV_WR_SEND;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.wr.ud = {ah, qpn, kQkey};
    if (ibv_post_send(qp_, &wr, &bad) != 0) fail("post a request");
    ++in_hand_;
  }
  void take() {
    ibv_wc wc[16];
    const int count = ibv_poll_cq(cq_, 16, wc);
    for (int i = 0; i < count; ++i) {
      if (wc[i].status != IBV_WC_SUCCESS) fail(ibv_wc_status_str(wc[i].status), wc[i].wr_id);
      if (wc[i].opcode != IBV_WC_RECV) {
        ++sent_;
        --in_hand_;
        continue;
      }
      uint64_t first = 0;
      const char* const bytes = slots_[wc[i].wr_id].bytes + kGrh;
      std::memcpy(&first, bytes, sizeof first);
      for (uint32_t at = 0; at < kBytes; at += 8)
        if (std::memcmp(bytes + at, &first, sizeof first) != 0) fail("other data", first);
      if (wc[i].byte_len != kGrh + kBytes || first <= last_) fail("a datagram", first, last_ + 1);
      last_ = first;
      ++received_;
      post_receive(wc[i].wr_id);
    }
  }

  uint8_t gid_index_;
  ibv_context* context_ = nullptr;
  ibv_pd* pd_ = nullptr;
  ibv_cq* cq_ = nullptr;
  ibv_mr* mr_ = nullptr;
  ibv_qp* qp_ = nullptr;
  Slot slots_[2 * kDepth]{};
  uint64_t posted_ = 0, sent_ = 0, received_ = 0, last_ = 0;
  uint32_t in_hand_ = 0;
};

volatile uint64_t* words_in(const char* path) {
  const int file = ::open(path, O_RDWR | O_CLOEXEC);
  void* words = file < 0 || ::ftruncate(file, 24) != 0
                    ? MAP_FAILED
                    : ::mmap(nullptr, 24, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (words == MAP_FAILED) fail("map the file", static_cast<uint64_t>(errno));
  return static_cast<volatile uint64_t*>(words);
}

void run(Flow& flow, const std::string& how_long) {
  if (how_long.starts_with('/')) {
    std::signal(SIGTERM, [](int) { g_over = 1; });
    return flow.run([] { return g_over != 0; }, words_in(how_long.c_str()), true);
  }
  const auto end =
      std::chrono::steady_clock::now() + std::chrono::seconds(std::atoi(how_long.c_str()));
  uint64_t unseen[3]{};
  flow.run([end] { return std::chrono::steady_clock::now() >= end; }, unseen, false);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 6) return 2;
  if (std::string(argv[5]) == "datagrams") {
    std::signal(SIGTERM, [](int) { g_over = 1; });
    Datagrams datagrams(argv[1], static_cast<uint8_t>(std::atoi(argv[2])));
    datagrams.run(meet(argv[3], argc > 6 ? argv[6] : nullptr), words_in(argv[4]));
    return 0;
  }
  if (const char* const file = std::getenv("FLOW_AFTER"))
    while (::access(file, F_OK) != 0) ::usleep(10'000);
  Flow flow(argv[1], static_cast<uint8_t>(std::atoi(argv[2])), argv[5]);
  const Line line = meet(argv[3], argc > 6 ? argv[6] : nullptr);
  flow.connect(line);
  run(flow, argv[4]);
  uint64_t mine = flow.posted(), theirs = 0;
  move_all(line, &mine, sizeof mine, true);
  move_all(line, &theirs, sizeof theirs, false);
  if (theirs != flow.received()) fail("messages received", flow.received(), theirs);
  flow.use_up();
  char done = 0;
  move_all(line, &done, 1, true);
  move_all(line, &done, 1, false);
  flow.close();
  std::printf("%llu sent, %llu received\n", static_cast<unsigned long long>(mine),
              static_cast<unsigned long long>(theirs));
  return 0;
}
