// Sockets over RDMA: their options.
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <rdma/rsocket.h>

#include <cerrno>
#include <cstring>

#include "client/rsocket/stream.h"
#include "core/ipc/layout.h"

namespace vrdma::client {

namespace {

// Options without effect here, or for the connection manager: the value is stored and can be read
// back.
bool is_kept(int type, int level, int name) {
  switch (level) {
    case SOL_SOCKET:
      return name == SO_KEEPALIVE || name == SO_OOBINLINE || name == SO_REUSEADDR ||
             name == SO_REUSEPORT || name == SO_PRIORITY;
    case IPPROTO_TCP:
      if (type != SOCK_STREAM) return false;
      return name == TCP_NODELAY || name == TCP_MAXSEG || name == TCP_KEEPIDLE ||
             name == TCP_KEEPINTVL || name == TCP_KEEPCNT || name == TCP_QUICKACK ||
             name == TCP_CORK || name == TCP_USER_TIMEOUT || name == TCP_DEFER_ACCEPT ||
             name == TCP_FASTOPEN;
    case IPPROTO_IP:
      return name == IP_TOS;
    case IPPROTO_IPV6:
      return name == IPV6_V6ONLY || name == IPV6_TCLASS;
    default:
      return false;
  }
}

int give(const void* from, size_t size, void* value, socklen_t* length) {
  *length = std::min(*length, static_cast<socklen_t>(size));
  std::memcpy(value, from, *length);
  return 0;
}

}  // namespace

int RStream::apply_option(int level, int name, int value) {
  kept_[{level, name}] = value;
  return id_ != nullptr && !connected() ? apply_options() : 0;
}

int RStream::apply_options() {
  for (const auto& [which, value] : kept_) {
    auto copy = value;
    auto byte = static_cast<uint8_t>(value);
    int error = 0;
    if (which == std::pair{SOL_SOCKET, SO_REUSEADDR})
      error = rdma_set_option(id_, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &copy, sizeof copy);
    else if (which == std::pair{static_cast<int>(IPPROTO_IPV6), IPV6_V6ONLY})
      error = rdma_set_option(id_, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &copy, sizeof copy);
    else if (which == std::pair{static_cast<int>(IPPROTO_IP), IP_TOS} ||
             which == std::pair{static_cast<int>(IPPROTO_IPV6), IPV6_TCLASS})
      error = rdma_set_option(id_, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &byte, sizeof byte);
    if (error != 0) return -errno;
  }
  return 0;
}

int RSocket::set_option(int level, int name, const void* value, socklen_t length) {
  const Lock lock(mutex_);
  if (level == SOL_SOCKET && (name == SO_RCVTIMEO || name == SO_SNDTIMEO)) {
    timeval limit;
    if (length < sizeof limit) return -EINVAL;
    std::memcpy(&limit, value, sizeof limit);
    if (limit.tv_usec < 0 || limit.tv_usec >= 1'000'000) return -EDOM;
    if (limit.tv_sec < 0) limit = {};
    (name == SO_RCVTIMEO ? receive_limit_ : send_limit_) = limit;
    return 0;
  }
  if (level == SOL_SOCKET && name == SO_LINGER) {
    if (length < sizeof linger_) return -EINVAL;
    std::memcpy(&linger_, value, sizeof linger_);
    return 0;
  }
  const bool kept = is_kept(type_, level, name);
  const bool sizes =
      level == SOL_RDMA || (level == SOL_SOCKET && (name == SO_RCVBUF || name == SO_SNDBUF));
  if (!kept && !sizes) return -ENOPROTOOPT;
  int number = 0;
  if (level == IPPROTO_IP && length >= 1 && length < sizeof number)  // as Linux accepts them
    number = *static_cast<const uint8_t*>(value);
  else if (length < sizeof number)
    return -EINVAL;
  else
    std::memcpy(&number, value, sizeof number);
  if (kept) return apply_option(level, name, number);
  if (is_sized()) return level == SOL_RDMA ? -EINVAL : 0;  // too late; kernel sockets ignore it
  if (number < 0) return -EINVAL;
  const auto size = static_cast<uint32_t>(number);
  if (level == SOL_SOCKET) {
    constexpr uint32_t kLeast = 1U << 12, kMost = 1U << 24;
    (name == SO_RCVBUF ? receive_size_ : send_size_) = std::clamp(size & ~1U, kLeast, kMost);
    return 0;
  }
  constexpr uint32_t kMostEntries = 0x7fff;
  switch (name) {
    case RDMA_SQSIZE:
      send_depth_ = std::min(size, kMostEntries);
      return 0;
    case RDMA_RQSIZE:
      receive_depth_ = std::min(size, kMostEntries);
      return 0;
    case RDMA_INLINE:
      inline_ = std::min(size, ipc::kMaxInline);
      return 0;
    case RDMA_IOMAPSIZE:
      own_iomaps_ = rs_from_scale(rs_to_scale(size));
      return 0;
    default:
      return -ENOPROTOOPT;
  }
}

int RSocket::get_option(int level, int name, void* value, socklen_t* length) {
  const Lock lock(mutex_);
  int number = 0;
  if (is_kept(type_, level, name)) {
    const auto it = kept_.find({level, name});
    if (it != kept_.end()) number = it->second;
    return give(&number, sizeof number, value, length);
  }
  if (level == SOL_RDMA) {
    switch (name) {
      case RDMA_SQSIZE:
        number = static_cast<int>(send_depth_);
        break;
      case RDMA_RQSIZE:
        number = static_cast<int>(receive_depth_);
        break;
      case RDMA_INLINE:
        number = static_cast<int>(inline_);
        break;
      case RDMA_IOMAPSIZE:
        number = static_cast<int>(own_iomaps_);
        break;
      default:
        return -ENOPROTOOPT;
    }
    return give(&number, sizeof number, value, length);
  }
  if (level == IPPROTO_TCP || level == IPPROTO_IP || level == IPPROTO_IPV6) return -ENOPROTOOPT;
  if (level != SOL_SOCKET) return -EOPNOTSUPP;
  switch (name) {
    case SO_ERROR:
      take_events();
      process();
      number = std::exchange(error_, 0);
      break;
    case SO_RCVBUF:
      number = static_cast<int>(receive_size_);
      break;
    case SO_SNDBUF:
      number = static_cast<int>(send_size_);
      break;
    case SO_TYPE:
      number = type_;
      break;
    case SO_DOMAIN:
      number = domain_;
      break;
    case SO_PROTOCOL:
      number = type_ == SOCK_STREAM ? IPPROTO_TCP : IPPROTO_UDP;
      break;
    case SO_ACCEPTCONN:
      number = is_listening() ? 1 : 0;
      break;
    case SO_LINGER:
      return give(&linger_, sizeof linger_, value, length);
    case SO_RCVTIMEO:
      return give(&receive_limit_, sizeof receive_limit_, value, length);
    case SO_SNDTIMEO:
      return give(&send_limit_, sizeof send_limit_, value, length);
    default:
      return -ENOPROTOOPT;
  }
  return give(&number, sizeof number, value, length);
}

}  // namespace vrdma::client
