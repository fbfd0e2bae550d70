#include "transport/roce/endpoint.h"

#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace vrdma::transport::roce {

namespace {

// They are large, and most of the time few have packets that were not sent.
std::vector<std::unique_ptr<Outgoing>>& spares() {
  static thread_local std::vector<std::unique_ptr<Outgoing>> all;
  return all;
}

std::unique_ptr<Outgoing> take_spare(uint16_t source_port) {
  std::unique_ptr<Outgoing> taken;
  if (spares().empty()) {
    taken = std::make_unique<Outgoing>();
  } else {
    taken = std::move(spares().back());
    spares().pop_back();
  }
  taken->leave_by(source_port);
  return taken;
}

void give_spare(std::unique_ptr<Outgoing> batch) {
  batch->clear();
  if (spares().size() <= verbs::kMostSourcePorts) spares().push_back(std::move(batch));
}

}  // namespace

Endpoint::Endpoint(Lane& lane, const verbs::Gid& address, Incoming& incoming,
                   EndpointCounters& counters, Handler handler, Explainer explains)
    : Runnable(lane),
      address_(address),
      incoming_(incoming),
      counters_(counters),
      handler_(std::move(handler)),
      explains_(std::move(explains)) {}

// What its queue pairs said last, for example an acknowledgement, must not be lost.
Endpoint::~Endpoint() {
  flush();
  lane().runner().remove(this);
}

base::Result<void> Endpoint::open(base::Fd socket, std::vector<SourceSocket> sources,
                                  uint32_t ifindex) {
  by_flow_.clear();
  exits_.clear();
  ifindex_ = ifindex;
  lost_ = false;
  auto main = add_exit(wire::kRocePort, std::move(socket), EPOLLIN | EPOLLOUT);
  if (!main) return base::pass(std::move(main).error());
  for (SourceSocket& each : sources) {
    Exit* exit = *main;
    if (each.socket.valid())
      if (auto added = add_exit(each.port, std::move(each.socket), EPOLLOUT)) exit = *added;
    by_flow_.push_back(exit);
  }
  for (Early& each : std::exchange(early_, {})) {
    each.packet.payload = each.payload.data();
    send(each.packet, each.way, each.flow);
  }
  on_ready(**main, EPOLLIN | EPOLLOUT);
  return {};
}

// Edges: packets wait in the socket until the lane has its turn.
base::Result<Endpoint::Exit*> Endpoint::add_exit(uint16_t port, base::Fd socket, uint32_t events) {
  auto exit = std::make_unique<Exit>();
  Exit* const its = exit.get();
  auto watch = lane().loop().watch(socket.get(), events | EPOLLET,
                                   [this, its](uint32_t ready) { on_ready(*its, ready); });
  if (!watch) return base::pass(std::move(watch).error());
  exit->port = port;
  exit->socket = std::move(socket);
  exit->watch = std::move(*watch);
  exits_.push_back(std::move(exit));
  return its;
}

void Endpoint::lose() {
  lost_ = true;
  by_flow_.clear();
  exits_.clear();
  early_.clear();
  for (net::NetSender* const each : std::exchange(waiting_, {})) each->resume();
}

void Endpoint::on_ready(Exit& exit, uint32_t events) {
  if ((events & EPOLLIN) != 0) {
    readable_ = true;
    lane().runner().activate(this);
  }
  if ((events & EPOLLOUT) != 0) wake(exit);
}

void Endpoint::wake(Exit& exit) {
  if (std::exchange(exit.full, false)) flush(exit);
  if (exit.full) return;
  for (net::NetSender* const each : std::exchange(waiting_, {})) each->resume();
}

bool Endpoint::run(Turn& turn) {
  const auto keep = shared_from_this();  // a packet may end the session that needs it
  flush();
  while (readable_ && is_open()) {
    const int count = incoming_.receive(socket());
    // An error that an ICMP message has left behind is of a packet that was sent.
    // The socket was empty, so what comes after this is announced.
    readable_ = count < 0 ? count != -EAGAIN : static_cast<unsigned>(count) == Incoming::kMessages;
    if (count == -EAGAIN || count == 0) return false;
    if (count < 0) {
      turn.spend(kRequestCost);
    } else {
      turn.spend(incoming_.bytes() + static_cast<uint64_t>(count) * kRequestCost);
      const base::TimePoint now = turn.now();
      incoming_.each(
          address_, counters_.incoming,
          [this, &turn, now](const wire::Packet& packet, const NetworkHeader& header) {
            ++counters_.received_packets;
            turn.spend(handler_(packet, header, now));
          },
          [this, &turn](const Misfit& misfit) {
            turn.spend(misfit.size);
            return explains_(misfit);
          });
    }
    if (turn.over()) return true;
  }
  return false;
}

uint32_t Endpoint::send(const net::Burst& burst, const NetworkHeader& way, uint16_t flow,
                        net::NetSender* again) {
  if (lost_) return burst.count;
  uint32_t taken = 0;
  Exit* const exit = is_open() ? &exit_of(flow) : nullptr;
  while (exit != nullptr && !exit->full) {
    if (exit->batch == nullptr) exit->batch = take_spare(exit->port);
    taken += exit->batch->add(burst, taken, way, ifindex_, segments_);
    if (taken == burst.count) {
      lane().runner().activate(this);
      return taken;
    }
    flush(*exit);
  }
  if (std::find(waiting_.begin(), waiting_.end(), again) == waiting_.end())
    waiting_.push_back(again);
  return taken;
}

void Endpoint::send(const wire::Packet& packet, const NetworkHeader& way, uint16_t flow) {
  if (!is_open()) {
    if (!lost_ && early_.size() < kMostEarly)
      early_.push_back(
          {packet, way, flow, {packet.payload, packet.payload + packet.payload_length}});
    return;
  }
  Exit& exit = exit_of(flow);
  flush(exit);
  if (exit.full) return;
  auto one = take_spare(exit.port);
  uint32_t next = 0;
  if (one->add(packet, way, ifindex_, false)) send_messages(exit, *one, &next);
  give_spare(std::move(one));
}

void Endpoint::leave(net::NetSender* waiting) { std::erase(waiting_, waiting); }

void Endpoint::flush() {
  for (const auto& exit : exits_) flush(*exit);
}

void Endpoint::flush(Exit& exit) {
  if (exit.batch == nullptr || exit.full) return;
  exit.full = !send_messages(exit, *exit.batch, &exit.batch_next);
  if (exit.full) return;
  exit.batch_next = 0;
  give_spare(std::move(exit.batch));
}

bool Endpoint::send_messages(const Exit& exit, Outgoing& all, uint32_t* next) {
  while (*next < all.count()) {
    const int sent =
        ::sendmmsg(exit.socket.get(), all.messages(*next), all.count() - *next, MSG_DONTWAIT);
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
