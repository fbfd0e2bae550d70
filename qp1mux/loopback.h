// MADs between vdevices of one host, in memory; all others go on to the next Wire.
//
// A MAD is queued and delivered when the owner calls deliver(), never from inside the command that
// sent it. The queue is bounded: beyond it MADs are lost and counted, and their senders repeat
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
  // `wake` is called when the queue is no longer empty: deliver() is to be called soon, not from
  // inside it. `network` may be null: then what is for nobody here is lost.
  Loopback(std::function<void()> wake, Wire* network, size_t capacity = 65536);

  // The Mux that sends through this, which is also the one that gets what it sends. Once.
  void set_mux(Mux* mux) { mux_ = mux; }

  void send(const Packet& packet) override;

  // Delivers what is queued now; what that makes the Mux send waits for the next call, and `wake`
  // is called for it.
  void deliver();

  [[nodiscard]] uint64_t lost() const { return lost_; }

 private:
  std::function<void()> wake_;
  Wire* network_;
  Mux* mux_ = nullptr;
  size_t capacity_;
  std::vector<KeptPacket> ring_;  // grows to capacity_ and stays
  size_t head_ = 0, count_ = 0;
  KeptPacket current_;  // being delivered
  bool delivering_ = false;
  uint64_t lost_ = 0;
};

}  // namespace vrdma::qp1mux
