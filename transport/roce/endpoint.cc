#include "transport/roce/endpoint.h"

#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace vrdma::transport::roce {

namespace {

// Large, and most of the time one endpoint at most has packets that were not sent.
std::unique_ptr<Outgoing>& spare() {
  static thread_local std::unique_ptr<Outgoing> one;
  return one;
}

std::unique_ptr<Outgoing> take_spare() {
  auto taken = std::move(spare());
  return taken != nullptr ? std::move(taken) : std::make_unique<Outgoing>();
}

void give_spare(std::unique_ptr<Outgoing> batch) {
  batch->clear();
  spare() = std::move(batch);
}

}  // namespace

Endpoint::Endpoint(Lane& lane, const verbs::Gid& address, Incoming& incoming,
                   EndpointCounters& counters, Handler handler)
    : Runnable(lane),
      address_(address),
      incoming_(incoming),
      counters_(counters),
      handler_(std::move(handler)) {}

// What its queue pairs said last, for example an acknowledgement, must not be lost.
Endpoint::~Endpoint() {
  flush();
  lane().runner().remove(this);
}

base::Result<void> Endpoint::open(base::Fd socket, uint32_t ifindex) {
  watch_.reset();
  // Edges: packets wait in the socket until the lane has its turn.
  auto watch = lane().loop().watch(socket.get(), EPOLLIN | EPOLLOUT | EPOLLET,
                                   [this](uint32_t events) { on_ready(events); });
  if (!watch) return base::pass(std::move(watch).error());
  watch_ = std::move(*watch);
  socket_ = std::move(socket);
  ifindex_ = ifindex;
  full_ = false;
  for (Early& each : std::exchange(early_, {})) {
    each.packet.payload = each.payload.data();
    send(each.packet, each.way);
  }
  on_ready(EPOLLIN | EPOLLOUT);
  return {};
}

void Endpoint::lose() {
  lost_ = true;
  early_.clear();
  wake();
}

void Endpoint::on_ready(uint32_t events) {
  if ((events & EPOLLIN) != 0) {
    readable_ = true;
    lane().runner().activate(this);
  }
  if ((events & EPOLLOUT) != 0) wake();
}

void Endpoint::wake() {
  if (std::exchange(full_, false)) flush();
  if (full_) return;
  for (net::NetSender* const each : std::exchange(waiting_, {})) each->resume();
}

bool Endpoint::run(Turn& turn) {
  const auto keep = shared_from_this();  // a packet may end the session that needs it
  flush();
  while (readable_ && socket_.valid()) {
    const int count = incoming_.receive(socket_);
    // An error that an ICMP message has left behind is of a packet that was sent.
    // The socket was empty, so what comes after this is announced.
    readable_ = count < 0 ? count != -EAGAIN : static_cast<unsigned>(count) == Incoming::kMessages;
    if (count == -EAGAIN || count == 0) return false;
    if (count < 0) {
      turn.spend(kRequestCost);
    } else {
      turn.spend(incoming_.bytes() + static_cast<uint64_t>(count) * kRequestCost);
      const base::TimePoint now = turn.now();
      incoming_.each(address_, counters_.incoming,
                     [this, &turn, now](const wire::Packet& packet, const NetworkHeader& header) {
                       ++counters_.received_packets;
                       turn.spend(handler_(packet, header, now));
                     });
    }
    if (turn.over()) return true;
  }
  return false;
}

uint32_t Endpoint::send(const net::Burst& burst, const NetworkHeader& way, net::NetSender* again) {
  if (lost_) return burst.count;
  uint32_t taken = 0;
  while (socket_.valid() && !full_) {
    if (batch_ == nullptr) batch_ = take_spare();
    taken += batch_->add(burst, taken, way, ifindex_, segments_);
    if (taken == burst.count) {
      lane().runner().activate(this);
      return taken;
    }
    flush();
  }
  if (std::find(waiting_.begin(), waiting_.end(), again) == waiting_.end())
    waiting_.push_back(again);
  return taken;
}

void Endpoint::send(const wire::Packet& packet, const NetworkHeader& way) {
  if (!socket_.valid()) {
    if (!lost_ && early_.size() < kMostEarly)
      early_.push_back({packet, way, {packet.payload, packet.payload + packet.payload_length}});
    return;
  }
  flush();
  if (full_) return;
  auto one = take_spare();
  uint32_t next = 0;
  if (one->add(packet, way, ifindex_, false)) send_messages(*one, &next);
  give_spare(std::move(one));
}

void Endpoint::leave(net::NetSender* waiting) { std::erase(waiting_, waiting); }

void Endpoint::flush() {
  if (batch_ == nullptr || full_) return;
  full_ = !send_messages(*batch_, &batch_next_);
  if (full_) return;
  batch_next_ = 0;
  give_spare(std::move(batch_));
}

bool Endpoint::send_messages(Outgoing& all, uint32_t* next) {
  while (*next < all.count()) {
    const int sent =
        ::sendmmsg(socket_.get(), all.messages(*next), all.count() - *next, MSG_DONTWAIT);
    for (int i = 0; i < sent; ++i) counters_.sent_packets += all.packets_of((*next)++);
    if (sent > 0 || errno == EINTR) continue;
    if (errno == EAGAIN || errno == EWOULDBLOCK) return false;
    // A netdev without checksum offload cannot have segments (udp_send_skb() of the kernel).
    if (errno == EIO && all.packets_of(*next) > 1) segments_ = false;
    counters_.send_errors += all.packets_of((*next)++);
  }
  return true;
}

}  // namespace vrdma::transport::roce
