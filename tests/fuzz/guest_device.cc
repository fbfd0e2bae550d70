// What the root of a guest can do to the PVRDMA function that it has: commands, registers,
// doorbells, and any byte of its memory, rings and page directories included. The device uses
// nothing but the guest's memory (the fake aborts), and after a reset nothing is left.
#include <cstdlib>
#include <cstring>

#include "core/base/log.h"
#include "tests/fuzz/input.h"
#include "tests/unit/pvrdma/guest.h"

namespace {

using namespace vrdma;          // NOLINT(google-build-using-namespace): a fuzz target
using namespace vrdma::pvrdma;  // NOLINT(google-build-using-namespace)

bool begins_with_a_handle(Command command) {
  switch (command) {
    case Command::kDestroyPd:
    case Command::kDestroyMr:
    case Command::kDestroyCq:
    case Command::kModifyQp:
    case Command::kQueryQp:
    case Command::kDestroyQp:
    case Command::kDestroyUc:
    case Command::kModifySrq:
    case Command::kQuerySrq:
    case Command::kDestroySrq:
      return true;
    default:
      return false;
  }
}

class Hostile : Guest {
 public:
  explicit Hostile(fuzz::Input& input) : input_(input) { begin(); }

  void run() {
    for (int i = 0; i < 200 && !input_.empty(); ++i) step();
    // It ends whatever was done.
    go_on();
    function->reset();
    go_on();
    if (verbs.objects() != 0 || verbs.address_handles() != 0) std::abort();
  }

 private:
  void begin() {
    attach();
    bind(0, gid_of(1));
    pd_ = create_pd();
    cq_ = create_cq(16);
    a_ = create_qp(pd_, cq_, 8);
    b_ = create_qp(pd_, cq_, 8);
    connect(a_, b_.qpn);
    connect(b_, a_.qpn);
    ud_ = create_qp(pd_, cq_, 8, 2, IBV_QPT_UD);
    for (const ibv_qp_state state : {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS})
      (void)modify(ud_, state);
    mr_ = create_mr(pd_, 2 * kPageSize, 64);
    directory_ = directory(take_pages(8));
    rings_ = {a_.pages[0],    a_.pages[1],   b_.pages[0], b_.pages[2],  cq_.pages[0],
              event_pages[0], told_pages[0], directory_,  command_slot, shared_region};
  }

  void step() {
    switch (input_.take() % 10) {
      case 0:
        command();
        break;
      case 1:
      case 2: {  // any word of its memory
        const uint64_t page = rings_[input_.take() % rings_.size()];
        const uint64_t offset = input_.take() % 64 * 4;
        *at<uint32_t>(page + offset) = input_.take<uint32_t>();
        break;
      }
      case 3:
        doorbell(input_.take() % 4 * 4, input_.take<uint32_t>(), input_.take() % 3);
        break;
      case 4: {
        SendEntry entry{};
        entry.opcode = input_.take() % 18;
        entry.flags = input_.take();
        const bool is_datagram = (entry.flags & 0x80) != 0;
        const QueuePair& by = is_datagram ? ud_ : a_;
        if (is_datagram) {  // of a source that the guest has, or none; to one of many addresses
          entry.ud.qpn = ud_.qpn;
          entry.ud.address.gid_index = input_.take() % 2;
          entry.ud.address.dgid[15] = input_.take();
        } else {
          entry.rdma = {mr_.start + input_.take(), mr_.key + input_.take() % 2};
        }
        (void)put_send(by, entry, {element(), element()});
        ring_sends(by);
        break;
      }
      case 5:
        (void)put_receive(b_, input_.take(), {element()});
        ring_receives(b_);
        break;
      case 6:
        go_on();
        break;
      case 7:
        while (poll_safely()) {
        }
        break;
      case 8:
        write(kRegisterBar, input_.take() % 16 * 4, input_.take<uint32_t>());
        break;
      case 9:
        if (const uint8_t what = input_.take() % 4; what != 0) {
          if (what == 1) die();  // the next process goes on with what the guest has
          break;
        }
        if (function->unmap(kHigh, kRam / 2) != 0)
          (void)function->map({kHigh, kRam / 2, kRam / 2, true, true}, file.duplicate().value());
        break;
    }
  }

  Element element() {
    const uint32_t key = input_.take() % 4 == 0 ? all_memory_ : mr_.key;
    return {mr_.start + input_.take<uint16_t>(), input_.take<uint16_t>(), key};
  }

  // A right beginning, a few wrong bytes.
  void command() {
    uint8_t body[168] = {};
    std::memcpy(body, &directory_, sizeof directory_);
    for (unsigned i = input_.take() % 16; i > 0; --i) {
      const size_t offset = input_.take() % sizeof body;
      body[offset] = input_.take();
    }
    const auto which = static_cast<Command>(input_.take() % 24);
    if (begins_with_a_handle(which)) {  // mostly of an object that exists
      const uint32_t handle = input_.take() % 8;
      std::memcpy(body, &handle, sizeof handle);
    }
    (void)execute(which, body);
    if (which == Command::kCreateMr && !has_failed()) all_memory_ = answer().mr.lkey;
  }

  // The consumer's index may be anything.
  bool poll_safely() {
    auto& indices = at<Indices>(cq_.pages[0])[1];
    if (((indices.consumer | indices.producer) & ~31u) != 0) return false;
    return poll(cq_).has_value() && ++polled_ % 64 != 0;
  }

  fuzz::Input& input_;
  uint32_t pd_ = 0, all_memory_ = 0, polled_ = 0;
  CompletionQueue cq_;
  QueuePair a_, b_, ud_;
  Memory mr_;
  uint64_t directory_ = 0;
  std::vector<uint64_t> rings_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const bool quiet = [] {
    base::set_log([](base::LogLevel, const std::string&) {});
    return true;
  }();
  (void)quiet;
  fuzz::Input input(data, size);
  Hostile(input).run();
  return 0;
}
