#include "core/base/neighbour.h"

#include <linux/neighbour.h>
#include <linux/rtnetlink.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>

namespace vrdma::base {

namespace {

std::optional<std::array<uint8_t, 6>> mac_in(const nlmsghdr* message) {
  const auto* entry = static_cast<const ndmsg*>(NLMSG_DATA(message));
  auto left = static_cast<int>(message->nlmsg_len - NLMSG_LENGTH(sizeof *entry));
  const auto* attribute = reinterpret_cast<const rtattr*>(reinterpret_cast<const char*>(entry) +
                                                          NLMSG_ALIGN(sizeof *entry));
  for (; RTA_OK(attribute, left); attribute = RTA_NEXT(attribute, left)) {
    if (attribute->rta_type != NDA_LLADDR || RTA_PAYLOAD(attribute) != 6) continue;
    std::array<uint8_t, 6> mac{};
    std::copy_n(static_cast<const uint8_t*>(RTA_DATA(attribute)), mac.size(), mac.begin());
    return mac;
  }
  return std::nullopt;
}

}  // namespace

Result<NeighbourTable> NeighbourTable::open() {
  Fd socket(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE));
  if (!socket.valid()) return fail_errno("make a routing socket");
  return NeighbourTable(std::move(socket));
}

Result<NeighbourTable::Entry> NeighbourTable::find(std::span<const uint8_t> address,
                                                   unsigned ifindex) const {
  struct {
    nlmsghdr header;
    ndmsg entry;
    rtattr attribute;
    std::array<uint8_t, 16> address;
  } request{};
  static_assert(offsetof(decltype(request), attribute) == NLMSG_LENGTH(sizeof(ndmsg)));
  const size_t size = std::min(address.size(), request.address.size());
  request.header.nlmsg_len =
      static_cast<uint32_t>(offsetof(decltype(request), attribute) + RTA_LENGTH(size));
  request.header.nlmsg_type = RTM_GETNEIGH;
  request.header.nlmsg_flags = NLM_F_REQUEST;
  request.entry.ndm_family = size == 4 ? AF_INET : AF_INET6;
  request.entry.ndm_ifindex = static_cast<int>(ifindex);
  request.attribute.rta_type = NDA_DST;
  request.attribute.rta_len = static_cast<uint16_t>(RTA_LENGTH(size));
  std::copy_n(address.begin(), size, request.address.begin());
  if (::send(socket_.get(), &request, request.header.nlmsg_len, 0) < 0)
    return fail_errno("ask for a neighbour");
  alignas(nlmsghdr) std::array<char, 4096> buffer;
  const ssize_t count = ::recv(socket_.get(), buffer.data(), buffer.size(), 0);
  if (count < 0) return fail_errno("read a neighbour");
  const auto* answer = reinterpret_cast<const nlmsghdr*>(buffer.data());
  if (!NLMSG_OK(answer, static_cast<unsigned>(count))) return fail(EIO, "read a neighbour");
  if (answer->nlmsg_type == NLMSG_ERROR)
    return fail(-static_cast<const nlmsgerr*>(NLMSG_DATA(answer))->error, "ask for a neighbour");
  return Entry{static_cast<const ndmsg*>(NLMSG_DATA(answer))->ndm_state, mac_in(answer)};
}

}  // namespace vrdma::base
