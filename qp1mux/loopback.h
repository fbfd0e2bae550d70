// Delivers MADs between vdevices of one host in memory, where that leads from one to the other;
// passes all others to the next Wire.
//
// A MAD is queued until the owner calls deliver(), and never delivered inside the command that sent
// it. The queue is bounded: MADs that do not fit are lost and counted, and their senders repeat
// them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "core/wire/mad.h"
#include "qp1mux/mux.h"
#include "qp1mux/packet.h"

namespace vrdma::qp1mux {

class Loopback final : public Wire {
 public:
  // `wake` is called when the queue is no longer empty; the owner must call deliver() soon, but not
  // from inside it. `network` may be null: MADs for other hosts are then lost.
  Loopback(std::function<void()> wake, Wire* network, size_t capacity = 65536);

  // The Mux that sends through this Wire and receives from it. Call once.
  void set_mux(Mux* mux) { mux_ = mux; }

  void send(const Packet& packet) override;

  // Delivers what is queued now. What the Mux sends in response waits for the next call, for which
  // `wake` is called.
  void deliver();

  [[nodiscard]] uint64_t lost() const { return lost_; }

 private:
  std::function<void()> wake_;
  Wire* network_;
  Mux* mux_ = nullptr;
  size_t capacity_;
  std::vector<KeptPacket> ring_;  // grows to capacity_ and never shrinks
  size_t head_ = 0, count_ = 0;
  KeptPacket current_;  // being delivered
  bool delivering_ = false;
  uint64_t lost_ = 0;
};

}  // namespace vrdma::qp1mux
