// The raw queue pair 1 of a vdevice, between the worker, where a program's queue pair is, and the
// control thread, where the shared one is.
//
// MADs go either way by post(). At most kInFlight of a direction are under way; what is more is
// lost and counted, as on a network, so that a program that floods fills nothing.
#pragma once

#include <atomic>
#include <functional>
#include <memory>

#include "core/base/event_loop.h"
#include "qp1mux/endpoint.h"
#include "transport/raw/mad.h"

namespace vrdma::vrdmad {

class RawGsi final : public std::enable_shared_from_this<RawGsi>, qp1mux::RawHandler {
 public:
  static constexpr uint32_t kInFlight = 256;
  using Receiver = std::function<void(const transport::AddressedMad&)>;

  explicit RawGsi(base::EventLoop& control) : control_(control) {}

  // Control thread. The endpoint has come, or goes (nullptr).
  void attach(qp1mux::Endpoint* endpoint);

  // Worker. `loop` is its own. nullptr: somebody has it.
  [[nodiscard]] std::unique_ptr<transport::MadDesk> open(base::EventLoop& loop, Receiver receiver);

  // Any thread: how many were lost for want of room.
  [[nodiscard]] uint64_t lost() const { return lost_; }

 private:
  class Desk;
  void on_mad(const qp1mux::Packet& packet) override;
  void change(base::EventLoop* worker);
  void send(const transport::AddressedMad& all);
  [[nodiscard]] bool take(std::atomic<uint32_t>& under_way);

  base::EventLoop& control_;
  std::atomic<uint32_t> leaving_ = 0, arriving_ = 0;
  std::atomic<uint64_t> lost_ = 0;

  // The worker's.
  Receiver receiver_;
  uint64_t opened_ = 0;  // so far: what was under way to an earlier one is not for a later one

  // The control thread's.
  qp1mux::Endpoint* endpoint_ = nullptr;
  base::EventLoop* worker_ = nullptr;  // where it is open
  uint64_t open_ = 0;                  // which of `opened_` that is
  qp1mux::RawPort port_;
};

}  // namespace vrdma::vrdmad
