// Resolves a GID to an Ethernet address (ibv_resolve_eth_l2_from_gid) by the kernel's neighbour
// table of this network namespace. To create a missing entry, it sends an empty datagram to the
// discard port.
#include "core/base/neighbour.h"

#include <arpa/inet.h>
#include <linux/neighbour.h>
#include <net/if.h>
#include <net/if_arp.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <span>

#include "client/verbs/virtual.h"
#include "core/base/fd.h"

namespace vrdma::client {
namespace {

constexpr uint16_t kNoVlan = 0xffff;
constexpr uint16_t kDiscard = 9;
// Nanoseconds. The kernel asks the network three times, once a second.
constexpr long kFirstPause = 100'000, kLongestPause = 10'000'000, kLongestSearch = 3'000'000'000;
constexpr long kAskAgain = 1'000'000'000;

bool is_ipv4(const ibv_gid& gid) {
  static constexpr uint8_t kMapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  return std::memcmp(gid.raw, kMapped, sizeof kMapped) == 0;
}

// RFC 1112 6.4, RFC 2464 7.
bool multicast_mac(const ibv_gid& gid, uint8_t mac[6]) {
  if (gid.raw[0] == 0xff) {
    mac[0] = mac[1] = 0x33;
    std::memcpy(mac + 2, gid.raw + 12, 4);
    return true;
  }
  if (!is_ipv4(gid) || (gid.raw[12] & 0xf0) != 0xe0) return false;
  mac[0] = 0x01, mac[1] = 0x00, mac[2] = 0x5e;
  mac[3] = gid.raw[13] & 0x7f;
  std::memcpy(mac + 4, gid.raw + 14, 2);
  return true;
}

bool interface_mac(uint32_t ifindex, uint8_t mac[6]) {
  ifreq request{};
  const base::Fd socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!socket.valid() || ::if_indextoname(ifindex, request.ifr_name) == nullptr) return false;
  if (::ioctl(socket.get(), SIOCGIFHWADDR, &request) != 0) return false;
  std::memcpy(mac, request.ifr_hwaddr.sa_data, 6);
  return true;
}

// 0, ENOENT if there is no entry with an address, or another errno.
int look_up(const base::NeighbourTable& table, const ibv_gid& gid, uint32_t ifindex,
            uint8_t mac[6]) {
  const size_t size = is_ipv4(gid) ? 4 : sizeof gid.raw;
  const auto entry = table.find(std::span(gid.raw).last(size), ifindex);
  if (!entry) return entry.error().code();
  constexpr int kUsable =
      NUD_PERMANENT | NUD_NOARP | NUD_REACHABLE | NUD_STALE | NUD_DELAY | NUD_PROBE;
  if ((entry->state & kUsable) == 0 || !entry->mac) return ENOENT;
  std::copy(entry->mac->begin(), entry->mac->end(), mac);
  return 0;
}

void ask_for(const ibv_gid& gid, uint32_t ifindex) {
  sockaddr_in v4{};
  v4.sin_family = AF_INET;
  v4.sin_port = htons(kDiscard);
  std::memcpy(&v4.sin_addr, gid.raw + 12, 4);
  sockaddr_in6 v6{};
  v6.sin6_family = AF_INET6;
  v6.sin6_port = htons(kDiscard);
  v6.sin6_scope_id = ifindex;
  std::memcpy(&v6.sin6_addr, gid.raw, 16);
  const bool ipv4 = is_ipv4(gid);
  const base::Fd socket(::socket(ipv4 ? AF_INET : AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!socket.valid()) return;
  (void)::sendto(
      socket.get(), "", 0, MSG_DONTWAIT | MSG_NOSIGNAL,
      ipv4 ? reinterpret_cast<const sockaddr*>(&v4) : reinterpret_cast<const sockaddr*>(&v6),
      ipv4 ? sizeof v4 : sizeof v6);
}

}  // namespace

int resolve_eth_l2_from_gid(ibv_context* context, ibv_ah_attr* attr, uint8_t eth_mac[6],
                            uint16_t* vid) {
  if (attr->is_global == 0) return EINVAL;
  ibv_gid_entry own{};
  if (const int error = query_gid_ex(context, attr->port_num, attr->grh.sgid_index, &own);
      error != 0)
    return error;
  if (vid != nullptr) *vid = kNoVlan;  // no VLAN: a vdevice belongs to the netdev itself
  const ibv_gid& wanted = attr->grh.dgid;
  if (multicast_mac(wanted, eth_mac)) return 0;
  ibv_port_attr port{};
  if (const int error = query_port(context, attr->port_num, &port); error != 0) return error;
  for (int i = 0; i < port.gid_tbl_len; ++i) {
    ibv_gid_entry entry{};
    if (query_gid_ex(context, attr->port_num, static_cast<uint32_t>(i), &entry) == 0 &&
        std::memcmp(entry.gid.raw, wanted.raw, sizeof wanted.raw) == 0)
      return interface_mac(own.ndev_ifindex, eth_mac) ? 0 : ENODEV;
  }
  const auto table = base::NeighbourTable::open();
  if (!table) return table.error().code();
  timespec pause{0, kFirstPause};
  long asked = -kAskAgain;
  for (long waited = 0; waited < kLongestSearch; waited += pause.tv_nsec) {
    const int error = look_up(*table, wanted, own.ndev_ifindex, eth_mac);
    if (error != ENOENT) return error;
    if (waited >= asked + kAskAgain) {
      ask_for(wanted, own.ndev_ifindex);
      asked = waited;
    }
    ::nanosleep(&pause, nullptr);
    pause.tv_nsec = std::min(2 * pause.tv_nsec, kLongestPause);
  }
  return EHOSTUNREACH;
}

}  // namespace vrdma::client
