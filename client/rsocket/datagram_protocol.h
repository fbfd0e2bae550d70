// The wire protocol of datagram sockets over RDMA (rsocket(7) of rdma-core): its two headers.
// Touches no device.
//
// Beside its UD queue pair a socket has a UDP socket, whose port is the socket's. A sender that
// does not know the peer's QPN sends by UDP: a service message with its own QPN, followed by the
// program's bytes. The peer answers with a service message that contains its QPN. From then on
// messages go between the queue pairs, each with a header that contains the source address and
// port.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <optional>
#include <span>

#include "client/rsocket/address.h"

namespace vrdma::client {

// The header of a message between queue pairs.
struct RsHeader {
  RsAddress source;
  uint32_t size = 0;

  static constexpr uint32_t kLongest = 24;
  [[nodiscard]] static uint32_t size_for(const RsAddress& source) {
    return source.is_ipv4() ? 8 : kLongest;
  }
  // Writes at most kLongest bytes; returns their number.
  static uint32_t encode(const RsAddress& source, uint8_t* to);
  [[nodiscard]] static std::optional<RsHeader> decode(std::span<const uint8_t> from);
};

// The header of a message by UDP.
struct RsService {
  enum class Kind : uint8_t { kMessage = 0, kAnswer = 7 };
  Kind kind = Kind::kMessage;
  uint32_t qpn = 0;
  RsAddress source;  // without a port
  uint32_t size = 0;

  static constexpr uint32_t kLongest = 28;
  static uint32_t encode(Kind kind, uint32_t qpn, const RsAddress& source, uint8_t* to);
  [[nodiscard]] static std::optional<RsService> decode(std::span<const uint8_t> from);
};

// A bounded LRU table of peers.
template <class Value>
class RsPeers {
 public:
  explicit RsPeers(size_t most) : most_(most) {}

  // Valid until the next add() or take(). nullptr: not known.
  Value* use(const RsAddress& address) {
    const auto it = known_.find(address);
    if (it == known_.end()) return nullptr;
    order_.splice(order_.begin(), order_, it->second);
    return &it->second->second;
  }
  // Evicts the least recently used peer if the table is full.
  Value* add(const RsAddress& address, Value value) {
    if (known_.size() == most_) {
      known_.erase(order_.back().first);
      order_.pop_back();
    }
    order_.emplace_front(address, std::move(value));
    known_[address] = order_.begin();
    return &order_.front().second;
  }
  std::optional<Value> take(const RsAddress& address) {
    const auto it = known_.find(address);
    if (it == known_.end()) return std::nullopt;
    std::optional<Value> value(std::move(it->second->second));
    order_.erase(it->second);
    known_.erase(it);
    return value;
  }
  void clear() {
    known_.clear();
    order_.clear();
  }

 private:
  using Order = std::list<std::pair<RsAddress, Value>>;
  size_t most_;
  Order order_;
  std::map<RsAddress, typename Order::iterator> known_;
};

}  // namespace vrdma::client
