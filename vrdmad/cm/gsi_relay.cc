#include "vrdmad/cm/gsi_relay.h"

#include <linux/sockios.h>
#include <spdlog/spdlog.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "core/ipc/socket.h"

namespace vrdma::vrdmad {

using base::Fd;
using base::Result;
using transport::AddressedMad;

namespace {

// What a message takes of the send buffer of `from`, whose other end is `to`: more than its bytes,
// depending on the kernel, and equal for all messages because they have one length.
Result<int> cost_of_message(const Fd& from, const Fd& to) {
  RawGsiMessage message;
  int cost = 0;
  if (::send(from.get(), &message, sizeof message, MSG_DONTWAIT) != sizeof message ||
      ::ioctl(from.get(), SIOCOUTQ, &cost) != 0 ||
      ::recv(to.get(), &message, sizeof message, MSG_DONTWAIT) != sizeof message)
    return base::fail_errno("measure a message in a socket");
  return cost;
}

// Room for so many messages that have not been read. The kernel doubles what it is told
// (socket(7)); with a low net.core.wmem_max there is less.
Result<void> bound_messages(const Fd& socket, uint32_t most, int cost) {
  const int half = static_cast<int>(most) * cost / 2;
  if (::setsockopt(socket.get(), SOL_SOCKET, SO_SNDBUF, &half, sizeof half) != 0)
    return base::fail_errno("bound the buffer of a socket");
  return {};
}

}  // namespace

Result<Fd> GsiRelay::connect() {
  open(0);
  auto ends = ipc::make_socket_pair(SOCK_NONBLOCK);
  if (!ends) return base::pass(std::move(ends).error(), "make the socket of queue pair 1");
  auto& [own, worker] = *ends;
  const auto cost = cost_of_message(own, worker);
  if (!cost) return base::pass(cost.error());
  for (const Fd* end : {&own, &worker})
    if (auto bounded = bound_messages(*end, RawGsiSocket::kInFlight, *cost); !bounded)
      return base::pass(std::move(bounded.error()));
  if (auto begun = socket_.begin(std::move(own)); !begun)
    return base::pass(std::move(begun.error()));
  return std::move(worker);
}

void GsiRelay::attach(qp1mux::Endpoint* endpoint) {
  endpoint_ = endpoint;
  open(opening_);
}

// Of the current opening, or closes (0).
void GsiRelay::open(uint64_t opening) {
  opening_ = opening;
  port_.reset();
  if (opening == 0 || endpoint_ == nullptr) return;
  if (auto port = endpoint_->open_raw(this)) port_ = std::move(*port);
}

bool GsiRelay::on_message(const RawGsiMessage& message) {
  if (message.opening == 0) return false;
  switch (message.kind) {
    case RawGsiMessage::Kind::kOpened:
      open(message.opening);
      if (opened_) opened_();
      return true;
    case RawGsiMessage::Kind::kClosed:
      if (message.opening == opening_) open(0);
      return true;
    case RawGsiMessage::Kind::kMad:
      if (message.opening == opening_) send(message.addressed_mad());
      return true;
  }
  return false;
}

void GsiRelay::on_end(bool broken) {
  open(0);
  if (broken)
    spdlog::warn(
        "vdevice {}: its worker sent what is no message about queue pair 1, and is not heard any "
        "more",
        label_);
}

// The endpoint counts what it refuses.
void GsiRelay::send(const AddressedMad& all) {
  qp1mux::Path path;
  path.local = all.header.source;
  path.remote = all.header.destination;
  path.traffic_class = all.header.traffic_class;
  if (all.header.hop_limit != 0) path.hop_limit = all.header.hop_limit;
  path.flow_label = all.header.flow_label;
  (void)port_.send(path, all.mad);
}

void GsiRelay::on_mad(const qp1mux::Packet& packet) {
  AddressedMad all;
  all.header = {packet.source, packet.destination, packet.traffic_class, packet.hop_limit,
                packet.flow_label};
  all.mad = packet.mad;
  if (!socket_.send(RawGsiMessage::of(opening_, all))) ++lost_;
}

}  // namespace vrdma::vrdmad
