// The socket between control and a worker for the queue pair 1 of a program: fixed structs over one
// SOCK_SEQPACKET pair for each vdevice that may have one. Both ends are of the same release.
//
// The worker numbers the openings of queue pair 1, so that neither end takes a MAD of an earlier
// opening for one of the current. At most kInFlight messages of a direction are under way, because
// the send buffers have room for no more (GsiRelay::connect()); what is more is lost, as on a
// network. Each end believes nothing about the other: a message of another length or kind, or with
// a descriptor, ends the use of the socket.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "core/base/event_loop.h"
#include "core/base/fd.h"
#include "core/wire/mad.h"
#include "transport/raw/mad.h"

namespace vrdma::vrdmad {

struct RawGsiMessage {
  enum class Kind : uint32_t {
    kOpened = 1,  // from the worker: a program has queue pair 1 from here on
    kClosed,      // from the worker
    kMad,         // from either
  };
  Kind kind{};
  uint32_t flow_label = 0;
  uint64_t opening = 0;  // 1, 2, ...
  // Of kMad; otherwise zero.
  std::array<uint8_t, 16> source{}, destination{};
  uint8_t traffic_class = 0;
  uint8_t hop_limit = 0;
  std::array<uint8_t, 6> reserved{};
  wire::Mad mad{};

  [[nodiscard]] static RawGsiMessage of(uint64_t opening, const transport::AddressedMad& all);
  [[nodiscard]] transport::AddressedMad addressed_mad() const;
};
static_assert(std::is_trivially_copyable_v<RawGsiMessage> && sizeof(RawGsiMessage) == 312);
static_assert(offsetof(RawGsiMessage, mad) == 56);

// One end. Belongs to the thread of its loop. Costs a descriptor and nothing else while nothing
// arrives.
class RawGsiSocket {
 public:
  static constexpr uint32_t kInFlight = 256;

  class Owner {
   public:
    virtual ~Owner() = default;
    // False: no message that the other end may send. Must not destroy the socket.
    [[nodiscard]] virtual bool on_message(const RawGsiMessage& message) = 0;
    virtual void on_room() {}  // after await_room()
    // The other end was closed, or `broken`: it sent nonsense. Nothing follows until begin().
    virtual void on_end(bool broken) = 0;
  };

  // `loop` and `owner` must outlive it.
  RawGsiSocket(base::EventLoop& loop, Owner& owner) : loop_(loop), owner_(owner) {}
  RawGsiSocket(const RawGsiSocket&) = delete;
  RawGsiSocket& operator=(const RawGsiSocket&) = delete;

  // Uses `socket` from here on, instead of an earlier one. Without that, or after an error, the
  // socket is as one that has ended.
  [[nodiscard]] base::Result<void> begin(base::Fd socket);
  // False: the buffer is full, or the socket has ended.
  [[nodiscard]] bool send(const RawGsiMessage& message) const;
  // Calls on_room() once, when a part of the buffer is free.
  void await_room();

 private:
  [[nodiscard]] base::Result<void> watch(uint32_t events);
  void on_ready(uint32_t events);
  void end(bool broken);

  base::EventLoop& loop_;
  Owner& owner_;
  base::Fd socket_;
  base::EventLoop::Watch watch_;
};

}  // namespace vrdma::vrdmad
