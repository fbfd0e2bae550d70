// The socket of one address of a vdevice, or of a multicast group: UDP port 4791.
//
// It collects the bursts of the address's queue pairs, sends them when it has its turn in the
// vdevice's lane, which pays for the time, or when there are many, and receives all packets that
// come for them. The socket comes from outside: open(). Until then, nothing is received and senders
// wait. If it cannot be made, lose() ends the waiting.
#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "core/base/event_loop.h"
#include "transport/net/sender.h"
#include "transport/roce/counters.h"
#include "transport/roce/incoming.h"
#include "transport/roce/outgoing.h"
#include "transport/runner.h"

namespace vrdma::transport::roce {

class Endpoint final : private Runnable, public std::enable_shared_from_this<Endpoint> {
 public:
  static constexpr size_t kMostEarly = 64;
  // Returns how many bytes it has moved, beside what receiving the packet costs.
  using Handler =
      std::function<uint64_t(const wire::Packet&, const NetworkHeader&, base::TimePoint now)>;

  // `incoming`, `counters` and what `handler` uses outlive it.
  Endpoint(Lane& lane, const verbs::Gid& address, Incoming& incoming, EndpointCounters& counters,
           Handler handler);
  ~Endpoint() override;

  // A UDP socket that is bound to the address, as of vrdmad/broker/roce_sockets.h. `ifindex`: of
  // its netdev.
  [[nodiscard]] base::Result<void> open(base::Fd socket, uint32_t ifindex);
  // There is no socket: all packets are lost, as in a network without a route, until try_again().
  void lose();
  // A socket is awaited once more. False: there is one, or it is awaited.
  bool try_again() { return std::exchange(lost_, false); }
  [[nodiscard]] bool is_awaited() const { return !socket_.valid() && !lost_; }

  // Returns how many packets it took. For the rest there is no room, or no socket yet; `again` is
  // resumed once when there may be. It must leave() before it goes.
  [[nodiscard]] uint32_t send(const net::Burst& burst, const NetworkHeader& way,
                              net::NetSender* again);
  // One packet, which is lost if there is no room. Until the socket comes, kMostEarly wait for it:
  // programs send their first datagram as soon as they may.
  void send(const wire::Packet& packet, const NetworkHeader& way);
  void leave(net::NetSender* waiting);

 private:
  bool run(Turn& turn) override;
  void on_ready(uint32_t events);
  void wake();
  // Sends what was collected, as far as there is room.
  void flush();
  // Sends messages from *next on; false: the rest must wait.
  bool send_messages(Outgoing& all, uint32_t* next);

  const verbs::Gid address_;
  Incoming& incoming_;
  EndpointCounters& counters_;
  const Handler handler_;
  base::Fd socket_;
  uint32_t ifindex_ = 0;
  base::EventLoop::Watch watch_;
  bool lost_ = false;
  bool segments_ = true;
  bool full_ = false;      // the socket's buffer
  bool readable_ = false;  // perhaps
  // Packets that were not sent yet, and the first of their messages; null: none.
  std::unique_ptr<Outgoing> batch_;
  uint32_t batch_next_ = 0;
  std::vector<net::NetSender*> waiting_;
  struct Early {
    wire::Packet packet;
    NetworkHeader way;
    std::vector<uint8_t> payload;
  };
  std::vector<Early> early_;
};

}  // namespace vrdma::transport::roce
