#include "vrdmad/cm/gsi_network.h"

#include <linux/neighbour.h>
#include <spdlog/spdlog.h>
#include <sys/epoll.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>

#include "core/verbs/mtu.h"
#include "core/wire/rdma_cm.h"

namespace vrdma::vrdmad {

using base::Result;
using transport::NetworkHeader;
using verbs::Gid;

namespace {
constexpr uint16_t kDiscardPort = 9;
// Neighbours whose address the kernel knows.
constexpr uint16_t kValid =
    NUD_PERMANENT | NUD_NOARP | NUD_REACHABLE | NUD_PROBE | NUD_STALE | NUD_DELAY;
// For what arrives, in a second and at once.
constexpr base::Duration kTime = std::chrono::milliseconds(250),
                         kTimeAtOnce = std::chrono::milliseconds(5);
// Between two questions for a neighbour.
constexpr base::Duration kFirstPause = std::chrono::milliseconds(1),
                         kLongestPause = std::chrono::milliseconds(64);
uint64_t tokens(base::Duration time) { return static_cast<uint64_t>(time.count()); }

// The MAD of a packet to queue pair 1; empty: it is none.
std::optional<wire::Mad> mad_in(const wire::Packet& packet) {
  if (packet.service != wire::Service::kUd || packet.operation != wire::Operation::kSendOnly ||
      packet.dest_qpn != wire::kGsiQpn || packet.qkey != wire::kGsiQkey ||
      !wire::pkeys_match(packet.pkey, wire::kDefaultPkey) ||
      packet.payload_length != sizeof(wire::Mad))
    return std::nullopt;
  wire::Mad mad;
  std::memcpy(&mad, packet.payload, sizeof mad);
  return mad;
}

// The refusal of a request that was translated, and the addresses that its sender gave it.
struct Refusal {
  Gid source, destination;
  wire::Mad mad{};
};
std::optional<Refusal> refusal_of(const wire::Mad& request) {
  Refusal refusal;
  const uint64_t transaction = request.header.transaction_id;
  const auto attribute = wire::cm_attribute(request.header);
  if (attribute == wire::CmAttribute::kReq) {
    const auto& req = request.as<wire::CmReq>();
    refusal.source = req.primary.local_gid;
    refusal.destination = req.primary.remote_gid;
    auto& rej = wire::begin<wire::CmRej>(refusal.mad, transaction);
    rej.remote_id = req.local_id;
    rej.set_answered(wire::Answered::kReq);
    rej.reason = static_cast<uint16_t>(wire::RejectReason::kInvalidGid);
    return refusal;
  }
  if (attribute != wire::CmAttribute::kSidrReq) return std::nullopt;
  const auto& req = request.as<wire::CmSidrReq>();
  wire::IpHeader header;
  std::memcpy(&header, req.private_data, sizeof header);
  const auto ends = wire::decode(header);
  if (!wire::port_space(req.service_id) || !ends) return std::nullopt;
  refusal.source = ends->source;
  refusal.destination = ends->destination;
  auto& rep = wire::begin<wire::CmSidrRep>(refusal.mad, transaction);
  rep.request_id = req.request_id;
  rep.status = static_cast<uint8_t>(wire::SidrStatus::kReject);
  rep.service_id = req.service_id;
  return refusal;
}
}  // namespace

GsiNetwork::GsiNetwork(base::EventLoop& loop, Host host) : loop_(loop), host_(std::move(host)) {
  time_.set(tokens(kTime), tokens(kTimeAtOnce));
}

Result<std::shared_ptr<void>> GsiNetwork::add(const std::string& fabric, const Gid& address,
                                              base::Fd socket, base::Fd routes, uint32_t ifindex) {
  auto queries = netns::RouteQueries::by(std::move(routes));
  if (!queries) return base::pass(std::move(queries).error());
  auto added = std::make_shared<Address>();
  added->routes = std::move(*queries);
  added->fabric = fabric;
  added->gid = address;
  added->socket = std::move(socket);
  added->ifindex = ifindex;
  added->rates.set(kMadsPerSecond, kMadsPerSecond);
  if (auto watched = watch(added); !watched) return base::pass(std::move(watched).error());
  if (incoming_ == nullptr) {
    incoming_ = std::make_unique<transport::roce::Incoming>();
    outgoing_ = std::make_unique<transport::roce::Outgoing>();
  }
  std::erase_if(addresses_, [](const auto& one) { return one.second.expired(); });
  addresses_[{fabric, address}] = added;
  return added;
}

Result<void> GsiNetwork::watch(const std::shared_ptr<Address>& address) {
  auto watched =
      loop_.watch(address->socket.get(), EPOLLIN, [this, weak = std::weak_ptr(address)](uint32_t) {
        if (const auto its = weak.lock()) receive(its);
      });
  if (!watched) return base::pass(std::move(watched).error());
  address->watch = std::move(*watched);
  return {};
}

// What the mux does with a MAD may remove the address.
void GsiNetwork::receive(const std::shared_ptr<Address>& address) {
  const base::TimePoint begun = loop_.now();
  if (const base::Duration pause = time_.wait(begun); pause > base::Duration(0)) {
    ++counters_.delayed;
    address->watch.reset();
    address->pause = loop_.after(pause, [this, weak = std::weak_ptr(address)] {
      if (const auto its = weak.lock()) (void)watch(its);
    });
    return;
  }
  stopwatch_.look(begun);
  if (incoming_->receive(address->socket) > 0)
    incoming_->each(
        address->gid, counters_.incoming,
        [&](const wire::Packet& packet, const NetworkHeader& header) {
          take(*address, packet, header, begun);
        },
        [&](const transport::roce::Misfit& misfit) { return refuse(*address, misfit, begun); });
  const base::TimePoint now = loop_.now();
  time_.spend(now, tokens(stopwatch_.used(begun, now)));
}

void GsiNetwork::take(Address& address, const wire::Packet& packet, const NetworkHeader& header,
                      base::TimePoint now) {
  const auto mad = mad_in(packet);
  if (!mad) {
    ++counters_.no_mad;
    return;
  }
  if (!address.rates.take(now, qp1mux::host_of(header.source))) {
    ++counters_.over_rate;
    return;
  }
  if (!host_.is_peer(address.fabric, header.source)) {
    ++counters_.no_peer;
    return;
  }
  ++counters_.received;
  host_.received({address.fabric, header.source, header.destination, qp1mux::RoceVersion::kV2,
                  header.traffic_class, header.hop_limit, header.flow_label, *mad, true});
}

bool GsiNetwork::refuse(Address& address, const transport::roce::Misfit& misfit,
                        base::TimePoint now) {
  const auto mad = mad_in(misfit.packet);
  if (!mad) return false;
  const auto refusal = refusal_of(*mad);
  if (!refusal || !misfit.fits(refusal->source, refusal->destination)) return false;
  const Gid &came_from = misfit.header.source, &came_to = misfit.header.destination;
  if (!address.rates.take(now, qp1mux::host_of(came_from))) {
    ++counters_.over_rate;
    return true;
  }
  if (!host_.is_peer(address.fabric, came_from)) {
    ++counters_.no_peer;
    return true;
  }
  ++counters_.translated;
  if (std::has_single_bit(uint64_t{counters_.translated}))  // anybody may send such packets
    spdlog::warn(
        "a connection request from {} to {} came from {} to {}: addresses are translated (NAT) on "
        "the way. RoCE packets must arrive with the addresses that are the GIDs",
        refusal->source.text(), refusal->destination.text(), came_from.text(), came_to.text());
  // To the port that it came from, or it is not translated back.
  const NetworkHeader way{came_to, came_from}, seen{refusal->destination, refusal->source};
  (void)send(address, refusal->mad, {way, misfit.source_port, seen});
  return true;
}

void GsiNetwork::send(const qp1mux::Packet& packet) {
  if (!host_.is_peer(std::string(packet.fabric), packet.destination)) {
    ++counters_.no_peer;
    return;
  }
  const auto it = addresses_.find({std::string(packet.fabric), packet.source});
  const auto found = it != addresses_.end() ? it->second.lock() : nullptr;
  if (found == nullptr) {
    ++counters_.lost;
    return;
  }
  const NetworkHeader way{packet.source, packet.destination, packet.traffic_class, packet.hop_limit,
                          packet.flow_label};
  ++(send(*found, packet.mad, {way, wire::kRocePort, way}) ? counters_.sent : counters_.lost);
}

bool GsiNetwork::send(Address& from, const wire::Mad& mad,
                      const transport::roce::Outgoing::Course& course) {
  wire::Packet datagram;
  datagram.service = wire::Service::kUd;
  datagram.operation = wire::Operation::kSendOnly;
  datagram.pkey = wire::kDefaultPkey;
  datagram.dest_qpn = datagram.source_qpn = wire::kGsiQpn;
  datagram.qkey = wire::kGsiQkey;
  datagram.psn = from.psn;
  datagram.payload = reinterpret_cast<const uint8_t*>(&mad);
  datagram.payload_length = sizeof mad;
  from.psn = wire::psn_add(from.psn, 1);
  outgoing_->clear();
  return outgoing_->add(datagram, course, from.ifindex, false) &&
         ::sendmmsg(from.socket.get(), outgoing_->messages(), outgoing_->count(), MSG_DONTWAIT) > 0;
}

bool GsiNetwork::leads_to(const CmDevice& from, const Gid& remote) const {
  return !remote.is_multicast() && host_.is_peer(from.fabric(), remote);
}

std::optional<Gid> GsiNetwork::source_to(const CmDevice& of, const Gid& own, const Gid& remote) {
  const auto it = addresses_.find({of.fabric(), own});
  const auto address = it != addresses_.end() ? it->second.lock() : nullptr;
  if (address == nullptr || remote.is_link_local()) return std::nullopt;
  const auto hop = address->routes.next_hop(remote.bytes);
  if (!hop || hop->source == netns::Address{}) return std::nullopt;
  Gid source;
  source.bytes = hop->source;
  return source;
}

std::shared_ptr<void> GsiNetwork::look_up(const CmDevice& from, const qp1mux::Route& route,
                                          const Gid& remote, qp1mux::Routes::Answer answer) {
  const auto it = addresses_.find({from.fabric(), route.local});
  auto address = it != addresses_.end() ? it->second.lock() : nullptr;
  // The log says why, or it is there soon: of a program that a daemon before this one knew.
  if (address == nullptr) {
    answer(route);
    return nullptr;
  }
  auto look_up = std::make_shared<LookUp>();
  look_up->address = std::move(address);
  look_up->route = route;
  look_up->remote = remote;
  look_up->answer = std::move(answer);
  begin(look_up);
  return look_up;
}

void GsiNetwork::begin(const std::shared_ptr<LookUp>& look_up) {
  Address& from = *look_up->address;
  const Gid& to = look_up->remote;
  auto hop = from.routes.next_hop(from.gid.bytes, to.bytes, from.ifindex);
  if (!hop) return look_up->answer(base::fail(hop.error().code(), "no route to " + to.text()));
  look_up->hop = *hop;
  qp1mux::Route& route = look_up->route;
  if (hop->hop_limit != 0) route.hop_limit = hop->hop_limit;
  if (hop->mtu != 0)
    route.path_mtu = std::min(route.path_mtu, verbs::mtu_code(verbs::roce_mtu(hop->mtu)));
  if (hop->ifindex == 0 || (from.routes.neighbour(*hop) & kValid) != 0)
    return look_up->answer(look_up->route);
  // Where netfilter forbids it, the MADs that follow make the kernel look.
  const verbs::SocketAddress at(to, kDiscardPort, from.ifindex);
  (void)::sendto(from.socket.get(), nullptr, 0, MSG_DONTWAIT, at.get(), at.size);
  look_up->pause = kFirstPause;
  wait(look_up);
}

// A netdev without neighbours, such as a tunnel, does not make the kernel look for one.
void GsiNetwork::wait(const std::shared_ptr<LookUp>& look_up) {
  look_up->timer = loop_.after(look_up->pause, [this, weak = std::weak_ptr(look_up)] {
    const auto its = weak.lock();
    if (its == nullptr) return;
    const uint16_t state = its->address->routes.neighbour(its->hop);
    if ((state & NUD_INCOMPLETE) != 0) {
      its->pause = std::min(2 * its->pause, kLongestPause);
      return wait(its);
    }
    if ((state & NUD_FAILED) == 0) return its->answer(its->route);
    its->answer(base::fail(EHOSTUNREACH, its->remote.text() + " does not answer"));
  });
}

}  // namespace vrdma::vrdmad
