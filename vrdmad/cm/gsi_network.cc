#include "vrdmad/cm/gsi_network.h"

#include <sys/epoll.h>

#include <cstring>

namespace vrdma::vrdmad {

using base::Result;
using transport::NetworkHeader;
using verbs::Gid;

Result<std::shared_ptr<void>> GsiNetwork::add(const std::string& fabric, const Gid& address,
                                              base::Fd socket, uint32_t ifindex) {
  auto added = std::make_shared<Address>();
  added->fabric = fabric;
  added->gid = address;
  added->socket = std::move(socket);
  added->ifindex = ifindex;
  added->rate.set(kMadsPerSecond, kMadsPerSecond);
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
  if (!address->rate.take(base::EventLoop::now())) {
    ++counters_.delayed;
    address->watch.reset();
    constexpr auto kPause = std::chrono::milliseconds(50);
    address->pause = loop_.after(kPause, [this, weak = std::weak_ptr(address)] {
      if (const auto its = weak.lock()) (void)watch(its);
    });
    return;
  }
  const int count = incoming_->receive(address->socket);
  for (int i = 1; i < count; ++i) (void)address->rate.take(base::EventLoop::now());
  incoming_->each(address->gid, counters_.incoming,
                  [&](const wire::Packet& packet, const NetworkHeader& header) {
                    take(*address, packet, header);
                  });
}

void GsiNetwork::take(const Address& address, const wire::Packet& packet,
                      const NetworkHeader& header) {
  if (packet.service != wire::Service::kUd || packet.operation != wire::Operation::kSendOnly ||
      packet.dest_qpn != wire::kGsiQpn || packet.qkey != wire::kGsiQkey ||
      !wire::pkeys_match(packet.pkey, wire::kDefaultPkey) ||
      packet.payload_length != sizeof(wire::Mad)) {
    ++counters_.no_mad;
    return;
  }
  ++counters_.received;
  wire::Mad mad;
  std::memcpy(&mad, packet.payload, sizeof mad);
  host_.received({address.fabric, header.source, header.destination, qp1mux::RoceVersion::kV2,
                  header.traffic_class, header.hop_limit, header.flow_label, mad});
}

void GsiNetwork::send(const qp1mux::Packet& packet) {
  const auto it = addresses_.find({std::string(packet.fabric), packet.source});
  const auto found = it != addresses_.end() ? it->second.lock() : nullptr;
  if (found == nullptr) {
    ++counters_.lost;
    return;
  }
  Address& address = *found;
  wire::Packet datagram;
  datagram.service = wire::Service::kUd;
  datagram.operation = wire::Operation::kSendOnly;
  datagram.pkey = wire::kDefaultPkey;
  datagram.dest_qpn = datagram.source_qpn = wire::kGsiQpn;
  datagram.qkey = wire::kGsiQkey;
  datagram.psn = address.psn;
  datagram.payload = reinterpret_cast<const uint8_t*>(&packet.mad);
  datagram.payload_length = sizeof packet.mad;
  address.psn = wire::psn_add(address.psn, 1);
  const NetworkHeader way{packet.source, packet.destination, packet.traffic_class, packet.hop_limit,
                          packet.flow_label};
  outgoing_->clear();
  const bool sent =
      outgoing_->add(datagram, way, address.ifindex, false) &&
      ::sendmmsg(address.socket.get(), outgoing_->messages(), outgoing_->count(), MSG_DONTWAIT) > 0;
  ++(sent ? counters_.sent : counters_.lost);
}

bool GsiNetwork::leads_to(const CmDevice& from, const Gid& remote) const {
  return !remote.is_multicast() && host_.reaches_network(from.fabric());
}

std::shared_ptr<void> GsiNetwork::look_up(const qp1mux::Route& route, const Gid&,
                                          qp1mux::Routes::Answer answer) {
  answer(route);
  return nullptr;
}

}  // namespace vrdma::vrdmad
