// A sender that has one request in hand at a time, and gets on with it in the turns of its lane.
//
// How a request is carried out is the derived class's: shm/ for peers on this host, raw/ for frames
// and management datagrams. What waits (for a receive, for a link) waits here, so nothing depends
// on the program calling the library again. The sender leaves the waiting states by kick(),
// called(), link_changed(), receive_posted(), resume() and timers; each just makes it run again,
// and run() finds out what is the case.
//
// A device that may not be as fast as it can (rdma::Pace) is asked before each request and each
// piece of a long one, and told afterwards what it moved. Whoever posts pays: for each copy of what
// it sends, and for what its READs bring. A peer spends nothing of its device's.
#pragma once

#include <optional>

#include "core/rdma/device.h"
#include "transport/runner.h"
#include "transport/send_ring.h"

namespace vrdma::transport {

struct Progress {
  enum class Kind : uint8_t {
    kDone,     // completed with `status`
    kAgain,    // part of it is done: execute() goes on soon, others may run in between
    kYield,    // nothing was done: execute() looks again, when others have run
    kPending,  // resume() is called when there is something to do
  };
  Kind kind = Kind::kDone;
  verbs::WcStatus status = verbs::WcStatus::kSuccess;
  uint32_t byte_len = 0;
  uint64_t moved = 0;  // bytes copied, by this call: what the vdevice pays for
};
inline Progress done(verbs::WcStatus status, uint64_t byte_len = 0, uint64_t moved = 0) {
  return {Progress::Kind::kDone, status, static_cast<uint32_t>(byte_len), moved};
}

class SerialSender : public rdma::Sender, public Runnable {
 public:
  SerialSender(rdma::Qp& qp, Lane& lane);
  ~SerialSender() override;  // a derived one abandons what it has begun

  void kick() override;
  void called() override { resume(); }
  void link_changed() override;
  void receive_posted() override { resume(); }
  void adopted() override;
  [[nodiscard]] bool drained() const override { return ring_.in_hand() == 0; }
  [[nodiscard]] bool gets_on() const override {
    return qp_.state() == verbs::QpState::kRts && ring_.has_requests() && !ring_.is_blocked();
  }
  void resume();
  bool run(Turn& turn) final;

 protected:
  // Begins or continues `request`, which stays the same object until it is done or abandoned.
  [[nodiscard]] virtual Progress execute(rdma::WorkRequest& request) = 0;
  // The result of what execute() has done stands.
  virtual void tell_peer() {}
  // Forgets a request that was begun; what it claimed goes back. It may be begun anew.
  virtual void abandon() = 0;
  // A dead worker had begun with `request` what others may have noticed (kBegun or kChanged), and
  // of its receive, if it completes one, the entry of the inbox. The status that it ends with;
  // none: it is begun again.
  [[nodiscard]] virtual std::optional<verbs::WcStatus> after_crash(
      rdma::WorkRequest& request, const SendRing::Interrupted& interrupted);
  // Whether the vdevice's rates permit a request, or a piece of one, now. False: kPending.
  [[nodiscard]] bool admitted();
  [[nodiscard]] const rdma::WorkRequest* in_hand() const {
    return ring_.in_hand() > 0 ? &request_ : nullptr;
  }
  [[nodiscard]] Runner& runner() const { return lane().runner(); }

  rdma::Qp& qp_;
  SendRing ring_;

 private:
  enum class Next : uint8_t { kMore, kYield, kSleep };

  Next step(Turn& turn);
  Next fetch();
  Next idle();
  void settle();

  bool doubtful_ = false;
  rdma::WorkRequest request_{};
  base::TimePoint idle_since_{};
};

}  // namespace vrdma::transport
