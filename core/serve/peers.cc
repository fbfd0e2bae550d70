#include "core/serve/peers.h"

#include <sys/socket.h>

#include <cstring>

namespace vrdma::serve {

Peers::Peer Peers::of(const sockaddr_storage& address) {
  if (address.ss_family == AF_INET) {
    sockaddr_in four{};
    std::memcpy(&four, &address, sizeof four);
    return {reinterpret_cast<const char*>(&four.sin_addr), sizeof four.sin_addr};
  }
  sockaddr_in6 six{};
  std::memcpy(&six, &address, sizeof six);
  const char* const bytes = reinterpret_cast<const char*>(&six.sin6_addr);
  return IN6_IS_ADDR_V4MAPPED(&six.sin6_addr) ? Peer(bytes + 12, 4) : Peer(bytes, 8);
}

bool Peers::enter(const Peer& peer, base::TimePoint now) {
  if (uses_.size() >= kMost && !uses_.contains(peer)) {
    std::erase_if(uses_, [&](const auto& entry) {
      return entry.second.open == 0 && is_over(entry.second, now);
    });
    if (uses_.size() >= kMost) return false;
  }
  Use& use = uses_[peer];
  if (use.begun == 0 || is_over(use, now)) {
    use.begun = 0;
    use.since = now;
  }
  if (use.open >= limits_.open || use.begun >= limits_.begun) return false;
  ++use.open;
  ++use.begun;
  return true;
}

unsigned Peers::open(const Peer& peer) const {
  const auto use = uses_.find(peer);
  return use != uses_.end() ? use->second.open : 0;
}

void Peers::left(const Peer& peer) {
  if (const auto use = uses_.find(peer); use != uses_.end()) --use->second.open;
}

}  // namespace vrdma::serve
