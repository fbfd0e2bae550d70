// The sockets of one address of a vdevice, or of a multicast group: UDP port 4791, and those that
// only send, from other ports.
//
// It collects the bursts of the address's queue pairs, for each port by itself, sends them when it
// has its turn in the vdevice's lane, which pays for the time, or when there are many, and receives
// all packets that come for them. The sockets come from outside: open(). Until then, nothing is
// received and senders wait. If they cannot be made, lose() ends the waiting.
//
// A flow (wire::source_port()) leaves by one of the sockets that only send, always by the same, and
// without such sockets by port 4791.
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

// What sends from an address beside port 4791.
struct SourceSocket {
  uint16_t port = 0;
  base::Fd socket;  // invalid: another program has the port, so port 4791 is taken instead
};

class Endpoint final : private Runnable, public std::enable_shared_from_this<Endpoint> {
 public:
  static constexpr size_t kMostEarly = 64;
  // Returns how many bytes it has moved, beside what receiving the packet costs.
  using Handler =
      std::function<uint64_t(const wire::Packet&, const NetworkHeader&, base::TimePoint now)>;

  // Whether a packet with a wrong ICRC is explained, and counted, by it.
  using Explainer = std::function<bool(const Misfit&)>;

  // `incoming`, `counters` and what `handler` and `explains` use outlive it.
  Endpoint(Lane& lane, const verbs::Gid& address, Incoming& incoming, EndpointCounters& counters,
           Handler handler, Explainer explains);
  ~Endpoint() override;

  // UDP sockets that are bound to the address, as of vrdmad/broker/roce_sockets.h. `ifindex`: of
  // its netdev.
  [[nodiscard]] base::Result<void> open(base::Fd socket, std::vector<SourceSocket> sources,
                                        uint32_t ifindex);
  // There is no socket, or no more: all packets are lost, as in a network without a route, until
  // try_again().
  void lose();
  // A socket is awaited once more. False: there is one, or it is awaited.
  bool try_again() { return std::exchange(lost_, false); }
  [[nodiscard]] bool is_awaited() const { return !is_open() && !lost_; }

  // Returns how many packets it took. For the rest there is no room, or no socket yet; `again` is
  // resumed once when there may be. It must leave() before it goes.
  [[nodiscard]] uint32_t send(const net::Burst& burst, const NetworkHeader& way, uint16_t flow,
                              net::NetSender* again);
  // One packet, which is lost if there is no room. Until the socket comes, kMostEarly wait for it:
  // programs send their first datagram as soon as they may.
  void send(const wire::Packet& packet, const NetworkHeader& way, uint16_t flow);
  void leave(net::NetSender* waiting);

 private:
  // A socket that sends.
  struct Exit {
    uint16_t port = wire::kRocePort;
    base::Fd socket;
    base::EventLoop::Watch watch;
    bool full = false;  // its buffer
    // Packets that were not sent yet, and the first of their messages; null: none.
    std::unique_ptr<Outgoing> batch;
    uint32_t batch_next = 0;
  };

  [[nodiscard]] bool is_open() const { return !exits_.empty(); }
  [[nodiscard]] const base::Fd& socket() const { return exits_.front()->socket; }
  [[nodiscard]] Exit& exit_of(uint16_t flow) const {
    return by_flow_.empty() ? *exits_.front() : *by_flow_[flow % by_flow_.size()];
  }
  [[nodiscard]] base::Result<Exit*> add_exit(uint16_t port, base::Fd socket, uint32_t events);
  bool run(Turn& turn) override;
  void on_ready(Exit& exit, uint32_t events);
  void wake(Exit& exit);
  // Sends what was collected, as far as there is room.
  void flush();
  void flush(Exit& exit);
  // Sends messages from *next on; false: the rest must wait.
  bool send_messages(const Exit& exit, Outgoing& all, uint32_t* next);

  const verbs::Gid address_;
  Incoming& incoming_;
  EndpointCounters& counters_;
  const Handler handler_;
  const Explainer explains_;
  std::vector<std::unique_ptr<Exit>> exits_;  // first port 4791, which receives
  std::vector<Exit*> by_flow_;
  uint32_t ifindex_ = 0;
  bool lost_ = false;
  bool segments_ = true;
  bool readable_ = false;  // perhaps
  std::vector<net::NetSender*> waiting_;
  struct Early {
    wire::Packet packet;
    NetworkHeader way;
    uint16_t flow = 0;
    std::vector<uint8_t> payload;
  };
  std::vector<Early> early_;
};

}  // namespace vrdma::transport::roce
