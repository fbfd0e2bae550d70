#include "transport/roce/network.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "transport/net/datagram.h"
#include "transport/roce/numbering.h"

namespace vrdma::transport::roce {

namespace {

// Adapters send CNPs at priority 48.
constexpr uint8_t kCnpTrafficClass = 48 << 2 | wire::kEct0;

}  // namespace

// From a queue pair to its peer.
class Network::PeerPort final : public net::Port {
 public:
  PeerPort(Network& network, const rdma::Qp& qp) : network_(network), qp_(qp) {
    attributes_changed();
    network_.ports_[qp_.qpn] = this;
  }
  ~PeerPort() override {
    endpoint_->leave(sender_);
    const auto it = network_.ports_.find(qp_.qpn);
    if (it != network_.ports_.end() && it->second == this) network_.ports_.erase(it);
  }
  void set_sender(net::NetSender* sender) { sender_ = sender; }
  [[nodiscard]] const verbs::Gid& peer() const { return way_.destination; }

  uint32_t send(const net::Burst& burst) override {
    if (burst.packets[0].service != wire::Service::kCnp)
      return endpoint_->send(burst, way_, flow_, sender_);
    NetworkHeader way = way_;
    way.traffic_class = kCnpTrafficClass;
    return endpoint_->send(burst, way, flow_, sender_);
  }
  std::shared_ptr<net::SharedWindow> shared_window() override {
    return network_.window(way_.destination);
  }
  void attributes_changed() override {
    if (endpoint_ == nullptr || way_.source != qp_.sgid) {
      if (endpoint_ != nullptr) endpoint_->leave(sender_);
      endpoint_ = network_.endpoint(qp_.sgid);
    }
    const auto& vector = qp_.attributes.av;
    way_.source = qp_.sgid;
    way_.destination = qp_.dgid();
    way_.traffic_class = (vector.traffic_class & wire::kDscp) | wire::kEct0;
    way_.hop_limit = vector.hop_limit;
    way_.flow_label = vector.flow_label;
    flow_ = wire::source_port(way_.flow_label, qp_.qpn, qp_.dest_qpn());
  }
  // False: it is from another host than the peer, or to another address.
  [[nodiscard]] bool receive(const wire::Packet& packet, const NetworkHeader& header,
                             base::TimePoint now) {
    if (header.source != way_.destination || header.destination != way_.source) return false;
    if (!numbering_.accept(header.ipv4_id, sender_->awaits(packet))) {
      ++network_.counters_.endpoint.incoming.icrc_error;
      return true;
    }
    const bool marked = (header.traffic_class & wire::kEcn) == wire::kCongestionExperienced;
    sender_->receive(packet, marked, now);
    return true;
  }

 private:
  Network& network_;
  const rdma::Qp& qp_;
  std::shared_ptr<Endpoint> endpoint_;
  NetworkHeader way_;
  uint16_t flow_ = 0;
  Numbering numbering_;  // of the peer
  net::NetSender* sender_ = nullptr;
};

Network::~Network() = default;

std::unique_ptr<rdma::Sender> Network::make_sender(rdma::Qp& qp) {
  auto port = std::make_unique<PeerPort>(*this, qp);
  PeerPort* const its = port.get();
  auto sender = std::make_unique<net::NetSender>(qp, lane_, std::move(port), counters_.protocol,
                                                 net::NetSender::Options{});
  its->set_sender(sender.get());
  return sender;
}

void Network::receive_datagrams() {
  receives_datagrams_ = true;
  for (const verbs::Gid& gid : device_.gids)
    if (!gid.is_unspecified()) held_.try_emplace(gid, endpoint(gid));
}

void Network::addresses_changed() {
  const auto has_gone = [this](const verbs::Gid& address) { return !may_have_socket(address); };
  std::erase_if(held_, [&](const auto& one) { return has_gone(one.first); });
  close_sockets(has_gone);
  if (receives_datagrams_) receive_datagrams();
}

void Network::release() {
  receives_datagrams_ = false;
  held_.clear();
  close_sockets([](const verbs::Gid& address) { return !address.is_multicast(); });
}

void Network::close_sockets(const std::function<bool(const verbs::Gid& address)>& of) {
  for (const auto& [address, known] : std::map(endpoints_))
    if (const auto endpoint = known.lock(); endpoint != nullptr && of(address)) endpoint->lose();
}

void Network::send_datagram(const rdma::Qp& qp, const rdma::WorkRequest& request,
                            const NetworkHeader& way, std::span<const uint8_t> payload) {
  auto& held = held_[way.source];
  if (held == nullptr) held = endpoint(way.source);
  const wire::Packet packet = net::datagram_of(qp, request, payload, psn_);
  held->send(packet, way, wire::source_port(way.flow_label, qp.qpn, packet.dest_qpn));
  psn_ = wire::psn_add(psn_, 1);
}

void Network::join(const verbs::Gid& group) {
  if (!groups_.contains(group) && may_join(group)) groups_.emplace(group, endpoint(group));
}

void Network::leave(const verbs::Gid& group) {
  const auto its = groups_.extract(group);  // may be what runs now
  if (!its.empty()) host_.left(group);
}

void Network::leave_groups() {
  while (!groups_.empty()) leave(verbs::Gid(groups_.begin()->first));
}

void Network::open(const verbs::Gid& address, base::Result<base::Fd> socket,
                   std::vector<SourceSocket> sources) {
  const auto it = endpoints_.find(address);
  const auto endpoint = it != endpoints_.end() ? it->second.lock() : nullptr;
  if (endpoint != nullptr &&  // a queue pair still needs it
      (!socket || !may_have_socket(address) ||
       !endpoint->open(std::move(*socket), std::move(sources), device_.ifindex)))
    endpoint->lose();
  if (awaits_socket()) return;
  for (const auto& then : std::exchange(when_open_, {})) then();
}

bool Network::awaits_socket() const {
  return std::any_of(endpoints_.begin(), endpoints_.end(), [](const auto& one) {
    const auto endpoint = one.second.lock();
    return endpoint != nullptr && endpoint->is_awaited();
  });
}

bool Network::when_open(std::function<void()> then) {
  if (!awaits_socket()) return false;
  when_open_.push_back(std::move(then));
  return true;
}

std::shared_ptr<Endpoint> Network::endpoint(const verbs::Gid& address) {
  std::erase_if(endpoints_, [](const auto& one) { return one.second.expired(); });
  auto& known = endpoints_[address];
  auto endpoint = known.lock();
  if (endpoint != nullptr) {
    // The address may have come since, or the program that had its port has ended.
    if (endpoint->try_again()) host_.want(address);
    return endpoint;
  }
  known = endpoint = std::make_shared<Endpoint>(
      lane_, address, *incoming_, counters_.endpoint,
      [this](const wire::Packet& packet, const NetworkHeader& header, base::TimePoint now) {
        return receive(packet, header, now);
      },
      [this](const Misfit& misfit) { return is_translated(misfit); });
  host_.want(address);
  return endpoint;
}

std::shared_ptr<net::SharedWindow> Network::window(const verbs::Gid& destination) {
  std::erase_if(windows_, [](const auto& one) { return one.second.expired(); });
  auto& known = windows_[destination];
  auto window = known.lock();
  if (window == nullptr) known = window = std::make_shared<net::SharedWindow>();
  return window;
}

uint64_t Network::receive(const wire::Packet& packet, const NetworkHeader& header,
                          base::TimePoint now) {
  if (header.destination.is_multicast()) return receive_of_group(packet, header);
  if (packet.service == wire::Service::kUd) {
    receive_datagram(packet, header);
    return 0;
  }
  PeerPort* const port = connected_port(packet.dest_qpn);
  if (port == nullptr) {
    ++counters_.unknown_qp;
  } else if (!port->receive(packet, header, now)) {
    on_wrong_source(packet.dest_qpn, *port, header.source);
  }
  return 0;
}

// nullptr: there is no such queue pair, or it has no peer, as in RESET.
Network::PeerPort* Network::connected_port(uint32_t qpn) const {
  const auto it = ports_.find(qpn);
  return it != ports_.end() && it->second->peer() != verbs::Gid() ? it->second : nullptr;
}

// The ICRC covers the addresses, so it is that of the peer's address if a packet was translated.
bool Network::is_translated(const Misfit& misfit) {
  const PeerPort* const port = connected_port(misfit.packet.dest_qpn);
  if (misfit.packet.service == wire::Service::kUd || port == nullptr) return false;
  const verbs::Gid& peer = port->peer();
  if (peer == misfit.header.source || !misfit.fits(peer, misfit.header.destination)) return false;
  on_wrong_source(misfit.packet.dest_qpn, *port, misfit.header.source);
  return true;
}

// Anybody may send such packets, so the operator is told at the 1st, 2nd, 4th, ...
void Network::on_wrong_source(uint32_t qpn, const PeerPort& port, const verbs::Gid& source) {
  ++counters_.wrong_source;
  if (!std::has_single_bit(++wrong_sources_)) return;
  host_.warn("queue pair " + std::to_string(qpn) + " has the peer " + port.peer().text() +
             ", and packets for it come from " + source.text() +
             ": is there address translation (NAT) on the way? RoCE packets must come from the "
             "address that is the GID");
}

// Of datagrams. What memory brings does not come by the network, so a stranger has written that
// source.
bool Network::may_come_from(const verbs::Gid& source) {
  const bool is_near = device_.fabric->near(device_, source) != nullptr;
  if (is_near)
    ++counters_.wrong_source;
  else if (!host_.is_peer(source))
    ++counters_.no_peer;
  else
    return true;
  return false;
}

void Network::receive_datagram(const wire::Packet& packet, const NetworkHeader& header) {
  rdma::Qp* const its = device_.find_qp(packet.dest_qpn);
  if (its == nullptr)
    ++counters_.unknown_qp;
  else if (may_come_from(header.source))
    (void)net::receive_datagram(*its, packet, header, counters_.protocol);
}

// Each delivery may end a session, whose queue pairs leave the group.
uint64_t Network::receive_of_group(const wire::Packet& packet, const NetworkHeader& header) {
  if (!may_come_from(header.source)) return 0;
  const bool for_group =
      packet.service == wire::Service::kUd && packet.dest_qpn == verbs::kMulticastQpn;
  if (!for_group || !device_.groups.contains(header.destination)) {
    ++counters_.unknown_qp;
    return 0;
  }
  uint64_t moved = 0;
  for (size_t i = 0;; ++i) {
    const auto* const members = device_.fabric->members(header.destination);
    if (members == nullptr || i >= members->size()) return moved;
    rdma::Qp& member = *(*members)[i];
    if (member.context->device != &device_) continue;
    moved += kRequestCost;
    if (net::receive_datagram(member, packet, header, counters_.protocol))
      moved += packet.payload_length;
  }
}

}  // namespace vrdma::transport::roce
