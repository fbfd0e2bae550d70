// A vdevice on the network: its addresses' sockets, and the queue pairs that have peers there.
//
// How to use it: give make_sender() to the vdevice's Selector, for queue pairs with a remote link.
// Datagrams leave by send_datagram(). The first queue pair of an address asks for the address's
// socket (`want`), which open() brings. A packet reaches a queue pair only from the address of its
// peer.
//
// A multicast group that queue pairs of the vdevice are attached to has a socket of its own, whose
// owner is a member of the group in the kernel: join(). What comes there from a vdevice that memory
// leads to is ignored, for shm/datagram.h has delivered it.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/rdma/device.h"
#include "transport/net/sender.h"
#include "transport/roce/counters.h"
#include "transport/roce/endpoint.h"

namespace vrdma::transport::roce {

class Network {
 public:
  // Of a vdevice. Each has a socket, and is known to routers.
  static constexpr size_t kMostGroups = 64;
  struct Host {
    // Whether datagrams from this address are for the vdevice.
    std::function<bool(const verbs::Gid& source)> is_peer;
    std::function<void(const verbs::Gid& address)> want;    // an address or a group needs a socket
    std::function<void(const verbs::Gid& group)> left;      // a group needs it no more
    std::function<void(const std::string& sentence)> warn;  // for the operator; seldom
  };

  // `device`, `lane` and `counters` outlive it, and it outlives the senders.
  Network(rdma::Device& device, Lane& lane, std::shared_ptr<Incoming> incoming, Counters& counters,
          Host host)
      : device_(device),
        lane_(lane),
        incoming_(std::move(incoming)),
        counters_(counters),
        host_(std::move(host)) {}
  ~Network();
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;

  // Of a connected queue pair, at RTR or later.
  [[nodiscard]] std::unique_ptr<rdma::Sender> make_sender(rdma::Qp& qp);
  // From now on datagrams arrive for its UD queue pairs, at all of its addresses, until release().
  void receive_datagrams();
  // Closes the sockets of addresses that the vdevice has no more. If one returns, the kernel must
  // not find an old socket beside the new ones.
  void addresses_changed();
  // No process uses the vdevice, or its fabric ends at the host: closes the sockets of addresses.
  void release();
  void send_datagram(const rdma::Qp& qp, const rdma::WorkRequest& request, const NetworkHeader& way,
                     std::span<const uint8_t> payload);
  // Packets of the group arrive for the UD queue pairs that are attached to it, until leave().
  // There is no effect beyond kMostGroups.
  void join(const verbs::Gid& group);
  void leave(const verbs::Gid& group);
  void leave_groups();
  [[nodiscard]] bool may_join(const verbs::Gid& group) const {
    return groups_.size() < kMostGroups || groups_.contains(group);
  }
  // An answer to `want`. Without a socket all packets of the address are lost.
  // `sources`: what sends beside it, as of Endpoint::open().
  void open(const verbs::Gid& address, base::Result<base::Fd> socket,
            std::vector<SourceSocket> sources = {});
  // Calls `then` when no socket is awaited any more: a peer's packets would be lost before that.
  // False: none is awaited now, and `then` is not kept.
  [[nodiscard]] bool when_open(std::function<void()> then);

 private:
  class PeerPort;
  uint64_t receive(const wire::Packet& packet, const NetworkHeader& header, base::TimePoint now);
  [[nodiscard]] bool is_translated(const Misfit& misfit);
  void receive_datagram(const wire::Packet& packet, const NetworkHeader& header);
  uint64_t receive_of_group(const wire::Packet& packet, const NetworkHeader& header);
  [[nodiscard]] std::shared_ptr<Endpoint> endpoint(const verbs::Gid& address);
  [[nodiscard]] std::shared_ptr<net::SharedWindow> window(const verbs::Gid& destination);
  [[nodiscard]] bool awaits_socket() const;
  [[nodiscard]] bool may_have_socket(const verbs::Gid& of) const {
    return of.is_multicast() || device_.owns(of);
  }
  void close_sockets(const std::function<bool(const verbs::Gid& address)>& of);
  [[nodiscard]] bool may_come_from(const verbs::Gid& source);
  [[nodiscard]] PeerPort* connected_port(uint32_t qpn) const;
  void on_wrong_source(uint32_t qpn, const PeerPort& port, const verbs::Gid& source);

  rdma::Device& device_;
  Lane& lane_;
  const std::shared_ptr<Incoming> incoming_;
  Counters& counters_;
  const Host host_;
  std::map<verbs::Gid, std::weak_ptr<Endpoint>> endpoints_;
  std::map<verbs::Gid, std::shared_ptr<Endpoint>> held_;  // for datagrams
  bool receives_datagrams_ = false;
  std::map<verbs::Gid, std::shared_ptr<Endpoint>> groups_;
  std::map<verbs::Gid, std::weak_ptr<net::SharedWindow>> windows_;  // by destination
  std::unordered_map<uint32_t, PeerPort*> ports_;                   // by the QPN of this side
  std::vector<std::function<void()>> when_open_;
  uint32_t psn_ = 0;            // of the next datagram
  uint64_t wrong_sources_ = 0;  // since it began
};

}  // namespace vrdma::transport::roce
