// ends DEVICE GID_INDEX ADDRESS SEED [stop] [PEER]: what was given back stays as its owner leaves
// it.
//
// Two programs meet over TCP: the one without PEER, the address of the other one, listens at
// ADDRESS. In each round one of them moves a large message into memory of the *owner*; the owner
// ends that in the middle, in one of several ways, fills the memory anew at once, and looks whether
// it stays so until all that could still store there has come to its end. `stop`: the other program
// is stopped (SIGSTOP) in the middle, and goes on only when the memory has been filled.
//
// Prints how many rounds of each kind were ended in the middle. Fails if a byte changed, or if no
// round of a kind was.
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cinttypes>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "tests/integration/rc.h"
#include "tests/integration/talk.h"

namespace {

using Clock = std::chrono::steady_clock;
constexpr size_t kInPlace = 32u << 20, kReached = 8u << 20;
constexpr size_t kRest = 64;     // bytes of the last page, behind the messages
constexpr int kMessages = 4;     // that follow each other into the same memory
constexpr int kRounds = 2;       // that must be ended in the middle; one with `stop`
constexpr int kMostRounds = 40;  // of one kind
constexpr uint8_t kOwners = 0x11, kOthers = 0xa5;
constexpr uint16_t kPort = 18630;

[[noreturn, gnu::format(printf, 1, 2)]] void fail(const char* how, ...) {
  va_list args;
  va_start(args, how);
  std::fputs("FAILED: ", stderr);
  std::vfprintf(stderr, how, args);
  std::fputc('\n', stderr);
  std::_Exit(1);
}

enum class Way : uint8_t {
  kErr,
  kReset,
  kDestroy,
  kDereg,
  kFlush,
  kReregister,
  kUnbind,
  kUnbindUnsignaled,  // a later request shows that it is done
  kCount
};
constexpr const char* kWays[] = {"ERR",   "RESET", "destroy", "dereg",
                                 "flush", "rereg", "unbind",  "unsignaled"};

bool unbinds(Way way) { return way == Way::kUnbind || way == Way::kUnbindUnsignaled; }
enum class Message : uint8_t { kWrite, kSend, kRead, kCount };
constexpr const char* kMessageNames[] = {"WRITE", "SEND", "READ"};

struct Kind {
  Way way;
  Message message;
  bool reached;  // a mapping of a file
};

bool is_possible(const Kind& kind, bool stop) {
  if (stop && (kind.reached || kind.message == Message::kRead)) return false;
  switch (kind.way) {
    case Way::kFlush:  // gives the receive, or the READ's memory, back
      return kind.message != Message::kWrite;
    case Way::kUnbind:
    case Way::kUnbindUnsignaled:
      return kind.message == Message::kWrite;
    default:
      return kind.message != Message::kRead;
  }
}

// A thread of the owner that writes beside the message, in its last page: what it has written there
// stays too, whatever is done to the page.
class Beside {
 public:
  explicit Beside(uint8_t* at)
      : word_(reinterpret_cast<std::atomic<uint64_t>*>(at)), thread_([this] { run(); }) {}
  ~Beside() {
    over_ = true;
    thread_.join();
  }
  Beside(const Beside&) = delete;
  Beside& operator=(const Beside&) = delete;

 private:
  void run() {
    for (uint64_t count = word_->load(); !over_;) {
      if (const uint64_t found = word_->load(); found != count)
        fail("a thread has written %" PRIu64 ", and finds %" PRIu64, count, found);
      *word_ = ++count;
      std::this_thread::sleep_for(std::chrono::microseconds(10));
    }
  }

  std::atomic<uint64_t>* word_;
  std::atomic<bool> over_ = false;
  std::thread thread_;
};

// One side's objects for one round.
struct Side {
  ibv_pd* pd;
  ibv_cq* cq;
  ibv_mr* mr = nullptr;
  ibv_mw* mw = nullptr;
  ibv_qp* qp = nullptr;

  void to(ibv_qp_state state) const {
    ibv_qp_attr attr{};
    attr.qp_state = state;
    if (ibv_modify_qp(qp, &attr, IBV_QP_STATE) != 0) fail("ibv_modify_qp to %d", state);
  }
  [[nodiscard]] ibv_wc completion() const {
    ibv_wc wc{};
    const auto end = Clock::now() + std::chrono::seconds(20);
    int got = 0;
    while ((got = ibv_poll_cq(cq, 1, &wc)) == 0)
      if (Clock::now() > end) fail("no completion comes");
    if (got < 0) fail("ibv_poll_cq");
    return wc;
  }
  void end() {
    if (mw != nullptr && ibv_dealloc_mw(mw) != 0) fail("ibv_dealloc_mw");
    if (qp != nullptr && ibv_destroy_qp(qp) != 0) fail("ibv_destroy_qp");
    if (mr != nullptr && ibv_dereg_mr(mr) != 0) fail("ibv_dereg_mr");
    mw = nullptr;
    qp = nullptr;
    mr = nullptr;
  }
};

class Program {
 public:
  Program(const char* device, int gid_index, const Talk& talk, unsigned seed, bool stop)
      : gid_index_(gid_index), talk_(talk), random_(seed), stop_(stop) {
    int count = 0;
    ibv_device** const list = ibv_get_device_list(&count);
    for (int i = 0; i < count; ++i)
      if (std::strcmp(ibv_get_device_name(list[i]), device) == 0)
        context_ = ibv_open_device(list[i]);
    if (context_ == nullptr) fail("ibv_open_device %s", device);
    side_.pd = ibv_alloc_pd(context_);
    channel_ = ibv_create_comp_channel(context_);
    if (channel_ == nullptr) fail("ibv_create_comp_channel");
    side_.cq = ibv_create_cq(context_, 64, nullptr, channel_, 0);
    if (side_.pd == nullptr || side_.cq == nullptr) fail("make objects");
    if (ibv_query_gid(context_, 1, gid_index, &gid_) != 0) fail("ibv_query_gid");
    in_place_ = map(kInPlace, -1);
    const int file = ::memfd_create("ends", 0);
    if (file < 0 || ::ftruncate(file, kReached) != 0) fail("memfd_create");
    reached_ = map(kReached, file);
  }

  // A child that closes the device leaves it to this program: what follows shows it.
  void close_in_child() const {
    const pid_t child = ::fork();
    if (child == 0) ::_exit(ibv_close_device(context_) == 0 ? 0 : 1);
    int status = 0;
    if (child < 0 || ::waitpid(child, &status, 0) != child || status != 0)
      fail("ibv_close_device in a child");
  }

  // Both programs run the same kinds in the same order.
  void run(bool owns) {
    for (int way = 0; way < static_cast<int>(Way::kCount); ++way)
      for (int message = 0; message < static_cast<int>(Message::kCount); ++message)
        for (const bool reached : {false, true}) {
          const Kind kind{static_cast<Way>(way), static_cast<Message>(message), reached};
          if (is_possible(kind, stop_)) run(kind, owns);
        }
  }

 private:
  static uint8_t* map(size_t size, int file) {
    void* const made = ::mmap(nullptr, size, PROT_READ | PROT_WRITE,
                              file >= 0 ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS, file, 0);
    if (made == MAP_FAILED) fail("mmap");
    return static_cast<uint8_t*>(made);
  }

  struct Info {
    uint32_t qpn, rkey;
    uint64_t addr;
    ibv_gid gid;
    pid_t pid;
  };

  void run(const Kind& kind, bool owns) {
    memory_ = kind.reached ? reached_ : in_place_;
    length_ = (kind.reached ? kReached : kInPlace) - kRest;
    const int wanted = stop_ ? 1 : kRounds;
    int rounds = 0, in_the_middle = 0;
    for (bool go_on = true; go_on; ++rounds) {
      if (stop_ && owns) {
        // Memory that was taken back from a peer is never in place again.
        if (::madvise(memory_, kInPlace, MADV_DONTNEED) != 0) fail("madvise");
        memory_ = map(kInPlace, -1);
      }
      const Info peer = begin(kind, owns);
      if (owns)
        in_the_middle += own(kind, peer) ? 1 : 0;
      else
        move(kind, peer);
      side_.end();
      ibv_wc rest[16];
      while (ibv_poll_cq(side_.cq, 16, rest) > 0) {
      }
      go_on = owns ? in_the_middle < wanted && rounds + 1 < kMostRounds : talk_.get<bool>();
      if (owns) talk_.put(go_on);
    }
    if (!owns) return;
    std::printf("%-10s %-6s %-8s %2d rounds, %d ended in the middle\n",
                kWays[static_cast<int>(kind.way)], kMessageNames[static_cast<int>(kind.message)],
                kind.reached ? "reached" : "in place", rounds, in_the_middle);
    std::fflush(stdout);
    if (in_the_middle == 0) fail("no round was ended in the middle");
  }

  Info begin(const Kind& kind, bool owns) {
    side_.mr = ibv_reg_mr(side_.pd, memory_, length_, rc::kAccess | IBV_ACCESS_MW_BIND);
    if (side_.mr == nullptr) fail("ibv_reg_mr");
    std::memset(memory_, owns ? 0 : kOthers, length_);
    ibv_qp_init_attr init{};
    init.send_cq = init.recv_cq = side_.cq;
    init.qp_type = IBV_QPT_RC;
    init.cap = {16, 16, 1, 1, 0};
    side_.qp = ibv_create_qp(side_.pd, &init);
    if (side_.qp == nullptr) fail("ibv_create_qp");
    Info mine{side_.qp->qp_num, side_.mr->rkey, reinterpret_cast<uint64_t>(memory_), gid_,
              ::getpid()};
    if (unbinds(kind.way) && owns) {
      side_.mw = ibv_alloc_mw(side_.pd, IBV_MW_TYPE_2);
      if (side_.mw == nullptr) fail("ibv_alloc_mw");
      mine.rkey = ibv_inc_rkey(side_.mw->rkey);
    }
    talk_.put(mine);
    const auto peer = talk_.get<Info>();
    if (const char* state = rc::connect(side_.qp, peer.qpn, peer.gid, gid_index_, 3);
        state != nullptr)
      fail("ibv_modify_qp to %s", state);
    if (side_.mw != nullptr) bind(mine.rkey);
    if (kind.message == Message::kSend && owns)
      for (int i = 0; i < kMessages; ++i) receive();
    talk_.meet();
    return peer;
  }

  void bind(uint32_t rkey) const {
    ibv_send_wr wr{}, *bad = nullptr;
    wr.opcode = IBV_WR_BIND_MW;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.bind_mw = {
        side_.mw,
        rkey,
        {side_.mr, reinterpret_cast<uint64_t>(memory_), length_, IBV_ACCESS_REMOTE_WRITE}};
    if (ibv_post_send(side_.qp, &wr, &bad) != 0) fail("post BIND_MW");
    if (side_.completion().status != IBV_WC_SUCCESS) fail("BIND_MW");
    side_.mw->rkey = rkey;
  }

  void receive() const {
    ibv_sge sge = all();
    ibv_recv_wr wr{}, *bad = nullptr;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    if (ibv_post_recv(side_.qp, &wr, &bad) != 0) fail("ibv_post_recv");
  }

  [[nodiscard]] ibv_sge all() const {
    return {reinterpret_cast<uint64_t>(memory_), static_cast<uint32_t>(length_), side_.mr->lkey};
  }

  // The messages: of the other program, or, of a READ, of the owner.
  void post(const Kind& kind, const Info& peer) const {
    ibv_sge sge = all();
    ibv_send_wr wr{}, *bad = nullptr;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.opcode = kind.message == Message::kWrite  ? IBV_WR_RDMA_WRITE
                : kind.message == Message::kSend ? IBV_WR_SEND
                                                 : IBV_WR_RDMA_READ;
    wr.wr.rdma = {peer.addr, peer.rkey};
    for (int i = 0; i < kMessages; ++i)
      if (ibv_post_send(side_.qp, &wr, &bad) != 0) fail("ibv_post_send");
  }

  // The other program's round: its messages, until the last has completed, well or not.
  void move(const Kind& kind, const Info& peer) const {
    if (kind.message != Message::kRead) {
      // The owner, which this program has just woken, may have been given the same processor.
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
      post(kind, peer);
      for (int i = 0; i < kMessages; ++i) (void)side_.completion();
    }
    talk_.meet();  // nothing of this program is on its way any more
    talk_.meet();
  }

  // True: the end came in the middle.
  bool own(const Kind& kind, const Info& peer) {
    std::optional<Beside> beside;
    if (stop_) beside.emplace(memory_ + length_);
    std::thread reading;
    if (kind.message == Message::kRead) reading = std::thread([&] { post(kind, peer); });
    // Not the very ends, which memmove(3) may store together; it may begin at either.
    const volatile uint8_t* const low = memory_ + length_ / 8;
    const volatile uint8_t* const high = memory_ + length_ / 8 * 7;
    const auto latest = Clock::now() + std::chrono::seconds(20);
    while (*low == 0 && *high == 0 && Clock::now() < latest) {
    }
    std::this_thread::sleep_for(std::chrono::microseconds(random_() % 300));
    if (stop_) stop(peer.pid);
    // All the messages store the same, so only of the first it can be seen that it is not over.
    const bool in_the_middle = *low == 0 || *high == 0;
    end(kind);
    fill();
    if (stop_) ::kill(peer.pid, SIGCONT);
    if (reading.joinable()) reading.join();
    talk_.meet();
    // What the daemon still does for a peer that has gone, it has done when this returns.
    side_.end();
    look(kind);
    talk_.meet();
    return in_the_middle;
  }

  // First where the message has just been, because what comes late comes there.
  void fill() const {
    constexpr size_t kStep = 64u << 10, kAround = 512u << 10;
    size_t at = length_ / 8;
    while (at + kStep < length_ && memory_[at] != 0) at += kStep;
    const size_t from = at - std::min(at, kAround), to = std::min(length_, at + kAround);
    std::memset(memory_ + from, kOwners, to - from);
    std::memset(memory_, kOwners, length_);
  }

  static void stop(pid_t pid) {
    ::kill(pid, SIGSTOP);
    const std::string name = "/proc/" + std::to_string(pid) + "/stat";
    for (;;) {
      char text[256] = {};
      FILE* const file = std::fopen(name.c_str(), "r");
      if (file == nullptr || std::fread(text, 1, sizeof text - 1, file) == 0)
        fail("read %s", name.c_str());
      std::fclose(file);
      const char* const state = std::strrchr(text, ')');
      if (state != nullptr && state[2] == 'T') return;
    }
  }

  // By its return, or by the completion that it waits for, the memory is the owner's.
  void end(const Kind& kind) {
    switch (kind.way) {
      case Way::kErr:
        return side_.to(IBV_QPS_ERR);
      case Way::kReset:
        return side_.to(IBV_QPS_RESET);
      case Way::kDestroy:
        if (ibv_destroy_qp(side_.qp) != 0) fail("ibv_destroy_qp");
        side_.qp = nullptr;
        return;
      case Way::kDereg:
        if (ibv_dereg_mr(side_.mr) != 0) fail("ibv_dereg_mr");
        side_.mr = nullptr;
        return;
      case Way::kReregister:
        if (ibv_rereg_mr(side_.mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, 0) != 0)
          fail("ibv_rereg_mr");
        return;
      case Way::kFlush: {
        int left = kMessages;
        if (kind.message == Message::kSend) {
          // A request with a wrong key brings the queue pair to ERR, and no call waits for it.
          send_nonsense();
          ++left;
        } else {
          side_.to(IBV_QPS_ERR);
        }
        while (left-- > 0) (void)side_.completion();
        return;
      }
      case Way::kUnbind:
        return unbind();
      case Way::kUnbindUnsignaled:
        return unbind_unsignaled();
      case Way::kCount:
        break;
    }
  }

  void post_invalidation(unsigned flags) const {
    ibv_send_wr wr{}, *bad = nullptr;
    wr.opcode = IBV_WR_LOCAL_INV;
    wr.send_flags = flags;
    wr.invalidate_rkey = side_.mw->rkey;
    if (ibv_post_send(side_.qp, &wr, &bad) != 0) fail("post LOCAL_INV");
  }

  void unbind() const {
    post_invalidation(IBV_SEND_SIGNALED);
    await_invalidation();
  }

  // The next request finds the queue full, so the slot of the invalidation is freed before a poll
  // comes to it.
  void unbind_unsignaled() const {
    if (ibv_req_notify_cq(side_.cq, 0) != 0) fail("ibv_req_notify_cq");
    post_invalidation(0);
    ibv_send_wr wr{}, *bad = nullptr;
    wr.opcode = IBV_WR_RDMA_WRITE;  // of no bytes, so it needs no key
    wr.send_flags = IBV_SEND_SIGNALED;
    while (ibv_post_send(side_.qp, &wr, &bad) == 0) {
    }
    ibv_cq* cq = nullptr;
    void* context = nullptr;
    if (ibv_get_cq_event(channel_, &cq, &context) != 0) fail("ibv_get_cq_event");
    ibv_ack_cq_events(cq, 1);
    (void)ibv_post_send(side_.qp, &wr, &bad);
    await_invalidation();
  }

  void await_invalidation() const {
    // A message that the key no longer permits may have moved the queue pair to ERR before.
    const ibv_wc_status status = side_.completion().status;
    if (status != IBV_WC_SUCCESS && status != IBV_WC_WR_FLUSH_ERR) fail("LOCAL_INV");
  }

  void send_nonsense() const {
    ibv_sge sge = all();
    sge.lkey = ~sge.lkey;
    ibv_send_wr wr{}, *bad = nullptr;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.opcode = IBV_WR_SEND;
    if (ibv_post_send(side_.qp, &wr, &bad) != 0) fail("ibv_post_send");
  }

  void look(const Kind& kind) const {
    const auto changed =
        std::count_if(memory_, memory_ + length_, [](uint8_t byte) { return byte != kOwners; });
    if (changed != 0)
      fail("%s of %s, %s: %td bytes changed after it", kWays[static_cast<int>(kind.way)],
           kMessageNames[static_cast<int>(kind.message)], kind.reached ? "reached" : "in place",
           changed);
  }

  ibv_context* context_ = nullptr;
  ibv_comp_channel* channel_ = nullptr;
  Side side_{};
  const int gid_index_;
  ibv_gid gid_{};
  const Talk& talk_;
  std::mt19937 random_;
  const bool stop_;
  uint8_t* in_place_;
  uint8_t* reached_;
  uint8_t* memory_ = nullptr;
  size_t length_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::string> words(argv, argv + argc);
  const bool stop = argc > 5 && words[5] == "stop";
  if (stop) words.erase(words.begin() + 5);
  if (words.size() < 5) fail("usage: ends DEVICE GID_INDEX ADDRESS SEED [stop] [PEER]");
  const char* const peer = words.size() > 5 ? words[5].c_str() : nullptr;
  const Talk talk(words[3].c_str(), peer, kPort);
  Program program(words[1].c_str(), std::atoi(words[2].c_str()), talk,
                  static_cast<unsigned>(std::strtoul(words[4].c_str(), nullptr, 10)), stop);
  program.close_in_child();
  program.run(peer == nullptr);
}
