// Queue pair 1 on the wire: MADs of rdma_cm as datagrams of RoCE v2, to other hosts and from them.
//
// Each address of a vdevice whose fabric reaches the network has a socket (gsi of
// vrdmad/broker/roce_sockets.h) while a process uses the vdevice. What arrives there is a
// stranger's word: a packet that is no MAD to queue pair 1, or has a wrong ICRC, is counted and
// dropped, and so is what comes from no peer of the fabric, and what exceeds the rate of its host.
// The multiplexer checks the rest. Addresses are read in turn, and all together for at most a
// quarter of the thread's time.
//
// A request whose ICRC is right between the GIDs that it names, and not between the addresses that
// it came with, was translated on the way (NAT). No queue pair could work over that way, so it is
// refused, by a MAD whose ICRC will be right when its addresses have been translated back.
//
// Belongs to the control thread.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "core/base/cpu_meter.h"
#include "core/base/token_bucket.h"
#include "netns/route_socket.h"
#include "qp1mux/rates.h"
#include "transport/roce/incoming.h"
#include "transport/roce/outgoing.h"
#include "vrdmad/cm/cm.h"

namespace vrdma::vrdmad {

struct GsiNetworkCounters {
  transport::roce::IncomingCounters incoming;
  base::Counter sent, received;
  base::Counter lost;        // no socket, or the kernel did not take it
  base::Counter no_mad;      // packets to queue pair 1 that are none
  base::Counter no_peer;     // MADs from addresses that are no peers of the fabric, or to them
  base::Counter over_rate;   // MADs beyond the rate of their host
  base::Counter translated;  // requests that were refused because of it
  base::Counter delayed;     // how often an address was not read because all took too much time
};

class GsiNetwork final : public CmNetwork {
 public:
  // Of one host (qp1mux::host_of()) to one address, and as many at once.
  static constexpr uint64_t kMadsPerSecond = 4096;

  struct Host {
    // Whether the network leads from members of the fabric to this address, and from it to them.
    std::function<bool(const std::string& fabric, const verbs::Gid& address)> is_peer;
    std::function<void(const qp1mux::Packet&)> received;
    // A process of the namespace uses rdma_cm. Adds addresses. True: it may add others later.
    std::function<bool(uint64_t netns, const Caller&, bool first)> arrived;
    std::function<void(uint64_t netns)> left;
  };
  GsiNetwork(base::EventLoop& loop, Host host);

  // The fabric's address sends and receives, until the result is destroyed. `routes`: of rtnetlink,
  // in the same namespace.
  [[nodiscard]] base::Result<std::shared_ptr<void>> add(const std::string& fabric,
                                                        const verbs::Gid& address, base::Fd socket,
                                                        base::Fd routes, uint32_t ifindex);
  [[nodiscard]] const GsiNetworkCounters& counters() const { return counters_; }

  void send(const qp1mux::Packet& packet) override;
  [[nodiscard]] bool leads_to(const CmDevice& from, const verbs::Gid& remote) const override;
  [[nodiscard]] std::optional<verbs::Gid> source_to(const CmDevice& of, const verbs::Gid& own,
                                                    const verbs::Gid& remote) override;
  // Asks the kernel: for the route at once, and then until it knows the neighbour. That is made to
  // answer by an empty datagram to `remote`, to the discard port (RFC 863), because only the
  // privileged may ask for it.
  std::shared_ptr<void> look_up(const CmDevice& from, const qp1mux::Route& route,
                                const verbs::Gid& remote, qp1mux::Routes::Answer answer) override;
  bool arrived(uint64_t netns, const Caller& caller, bool first) override {
    return host_.arrived(netns, caller, first);
  }
  void left(uint64_t netns) override { host_.left(netns); }

 private:
  struct Address {
    std::string fabric;
    verbs::Gid gid;
    base::Fd socket;
    netns::RouteQueries routes;
    uint32_t ifindex = 0;
    uint32_t psn = 0;
    qp1mux::Rates<verbs::Gid> rates;  // by host
    base::EventLoop::Watch watch;
    base::EventLoop::Timer pause;
  };
  // Ends when it is destroyed.
  struct LookUp {
    std::shared_ptr<Address> address;
    qp1mux::Route route;
    verbs::Gid remote;
    netns::NextHop hop;
    qp1mux::Routes::Answer answer;
    base::Duration pause{};
    base::EventLoop::Timer timer;
  };
  void begin(const std::shared_ptr<LookUp>& look_up);
  void wait(const std::shared_ptr<LookUp>& look_up);

  using Key = std::pair<std::string, verbs::Gid>;

  [[nodiscard]] base::Result<void> watch(const std::shared_ptr<Address>& address);
  void receive(const std::shared_ptr<Address>& address);
  void take(Address& address, const wire::Packet& packet, const transport::NetworkHeader& header,
            base::TimePoint now);
  [[nodiscard]] bool refuse(Address& address, const transport::roce::Misfit& misfit,
                            base::TimePoint now);
  [[nodiscard]] bool send(Address& from, const wire::Mad& mad,
                          const transport::roce::Outgoing::Course& course);

  base::EventLoop& loop_;
  const Host host_;
  GsiNetworkCounters counters_;
  base::TokenBucket time_;  // nanoseconds for what arrives
  base::CpuStopwatch stopwatch_;
  std::map<Key, std::weak_ptr<Address>> addresses_;
  // Large, so made when first used.
  std::unique_ptr<transport::roce::Incoming> incoming_;
  std::unique_ptr<transport::roce::Outgoing> outgoing_;
};

}  // namespace vrdma::vrdmad
