// The sender of a connected queue pair (RC, UC, XRC) whose peer is on this host.
//
// Small messages in place are executed in one go. Longer ones, and those with memory that must be
// reached, go in slices, with every key checked again before each: memory that was deregistered
// meanwhile is not touched, and other queues run in between.
//
// Memory in place of which a page is missing is brought by its owner's reach (hole_guard.h), and
// then the slice is begun again, in place. Whoever takes pages away while they are used fails.
//
// An atomic is one step of whoever can make it one: of the processor where the operand is in place,
// however the result must be brought, and else of the owner's reach (Reach::Job::change). From then
// on the responder has answered, and what it does to its keys does not matter any more.
#pragma once

#include <memory>

#include "transport/hole_guard.h"
#include "transport/key_change.h"
#include "transport/receiver.h"
#include "transport/serial_sender.h"
#include "transport/shm/waiting.h"

namespace vrdma::transport {

class ConnectedSender final : public SerialSender {
 public:
  ConnectedSender(rdma::Qp& qp, Lane& lane) : SerialSender(qp, lane), waiting_(qp, lane, *this) {}
  ~ConnectedSender() override;

  void kick() override;
  void link_changed() override;
  void receive_posted() override;
  void port_changed() override { stop_waiting(); }
  void adopted() override;
  void srq_gone(uint32_t srqn) override;
  [[nodiscard]] bool may_begin_anew() const override {
    return stage_ <= Stage::kRead && relaying_ == nullptr && !key_change_.begun();
  }

 private:
  [[nodiscard]] Progress execute(rdma::WorkRequest& request) override;
  void abandon() override;
  void forget();
  void tell_peer() override { receiver_.tell(); }
  [[nodiscard]] std::optional<verbs::WcStatus> after_crash(
      rdma::WorkRequest& request, const SendRing::Interrupted& interrupted) override;
  // Whether the receive of `request` was completed as entry `index` of its inbox.
  [[nodiscard]] bool delivered(const rdma::WorkRequest& request, uint32_t index) const;
  // Whether it is certain that memory is as `request` was to leave it.
  [[nodiscard]] bool written(rdma::WorkRequest& request);
  [[nodiscard]] bool is_reached_write(rdma::WorkRequest& request);
  [[nodiscard]] verbs::WcStatus give_up_in_doubt();

  enum class Stage : uint8_t { kStart, kRead, kWritten, kChanged, kAnswered };
  // Bringing the missing pages of a slice: first those of the initiator.
  enum class Fill : uint8_t { kNone, kLocal, kRemote, kFilled };

  // As execute(), for what needs the peer.
  [[nodiscard]] Progress attempt(rdma::WorkRequest& request);
  [[nodiscard]] Progress wait_for_receive(rdma::WorkRequest& request);
  [[nodiscard]] Progress wait_for_link();
  [[nodiscard]] Progress lose();
  void stop_waiting();
  [[nodiscard]] rdma::Outcome prepare(rdma::WorkRequest& request, rdma::Plan* plan);
  [[nodiscard]] bool perform(const rdma::WorkRequest& request, const rdma::Plan& plan);
  // Runs `touch`, which returns false if memory cannot be mapped. False: that, or a page is missing
  // (hole_).
  template <class F>
  [[nodiscard]] bool try_in_place(F touch);
  // What follows when it was false.
  [[nodiscard]] Progress not_in_place(rdma::WorkRequest& request, const rdma::Plan& plan);
  [[nodiscard]] Progress fill(rdma::WorkRequest& request, const rdma::Plan& plan);
  [[nodiscard]] bool bring(const rdma::PieceList& pieces, rdma::Process& process, Fill then);
  [[nodiscard]] rdma::Buffer make_buffer(uint64_t length);
  [[nodiscard]] Progress refuse(rdma::Outcome outcome, const rdma::Plan& plan,
                                rdma::WorkRequest& request);
  [[nodiscard]] Progress step_reached(rdma::WorkRequest& request, const rdma::Plan& plan);
  // Has the reaches move as much as they may by themselves. False: it is not for them.
  [[nodiscard]] bool relay(const rdma::Plan& plan);
  [[nodiscard]] Progress relayed(rdma::WorkRequest& request, const rdma::Plan& plan);
  // Finds out whether the end of a WRITE was stored by a dead worker.
  [[nodiscard]] Progress step_doubt(const rdma::WorkRequest& request, const rdma::Plan& plan);
  [[nodiscard]] Progress step_doubtful_atomic(rdma::WorkRequest& request, const rdma::Plan& plan);
  void has_changed(uint64_t old);
  [[nodiscard]] Progress step_atomic(rdma::WorkRequest& request, const rdma::Plan& plan);
  [[nodiscard]] Progress answer(rdma::WorkRequest& request);
  [[nodiscard]] Progress go_on(const rdma::WorkRequest& request, const rdma::Plan& plan,
                               uint64_t length);
  [[nodiscard]] Progress finish(const rdma::WorkRequest& request, const rdma::Plan& plan,
                                uint64_t moved);
  [[nodiscard]] rdma::Outcome failure(const rdma::Plan& plan) const;
  // Moves the slice between `buffer_` and memory; true if it is there at once.
  // `written`: see transport::move().
  [[nodiscard]] bool move(const rdma::PieceList& pieces, rdma::Process& process, rdma::Qp* written,
                          const rdma::Buffer& buffer, bool ends = false);
  // `mark` as long as the request in hand is not abandoned.
  [[nodiscard]] rdma::Reach::Marker if_it_goes_on(rdma::Reach::Marker mark) const;
  [[nodiscard]] std::function<void(bool ok)> job_done();
  [[nodiscard]] uint64_t slice_length(const rdma::Plan& plan) const;

  static constexpr uint64_t kReachedSlice = 1u << 18;  // bytes of one job

  Waiting waiting_;
  KeyChange key_change_;
  Receiver receiver_;  // of the peer
  uint64_t done_ = 0;  // bytes of the message moved so far
  Stage stage_ = Stage::kStart;
  Fill fill_ = Fill::kNone;  // of the slice in hand
  bool in_doubt_ = false;    // what is in hand: a dead worker may have stored its end
  bool hole_ = false;
  bool failed_ = false;
  int jobs_ = 0;                                     // out with reach threads
  std::shared_ptr<rdma::Reach::Relaying> relaying_;  // one of them, and what became of it
  uint64_t relayed_ = 0;
  rdma::Reach::RelayEnd relay_end_{};
  rdma::Buffer buffer_, found_;
  std::shared_ptr<int> alive_ = std::make_shared<int>(0);
};

template <class F>
bool ConnectedSender::try_in_place(F touch) {
  bool mapped = false;
  hole_ = !HoleGuard::run([&] { mapped = touch(); });
  return mapped && !hole_;
}

}  // namespace vrdma::transport
