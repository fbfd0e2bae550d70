#include "cli/doctor/peer.h"

#include <ifaddrs.h>
#include <linux/neighbour.h>
#include <net/if.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <span>

#include "cli/address_text.h"
#include "core/base/fd.h"
#include "core/base/neighbour.h"
#include "core/verbs/socket_address.h"
#include "gid/prefix.h"

namespace vrdma::cli::doctor {

using base::Fd;
using verbs::Gid;

namespace {

constexpr const char* kCheck = "peer";
constexpr int kLongestLook = 4000;  // milliseconds

bool has(const v1::Vdev& vdev, const std::string& gid) {
  return std::any_of(vdev.gids().begin(), vdev.gids().end(),
                     [&](const auto& one) { return one.gid() == gid; });
}

int answer_to(const Fd& socket) {
  if (::send(socket.get(), nullptr, 0, MSG_DONTWAIT) < 0) return errno;
  pollfd refused{socket.get(), 0, 0};
  int error = 0;
  socklen_t size = sizeof error;
  if (::poll(&refused, 1, kLongestLook) > 0)
    (void)::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &size);
  return error;
}

// The interface that has this address, or 0.
unsigned interface_of(const Gid& address) {
  ifaddrs* all = nullptr;
  if (::getifaddrs(&all) != 0) return 0;
  unsigned found = 0;
  for (const ifaddrs* each = all; each != nullptr && found == 0; each = each->ifa_next)
    if (each->ifa_addr != nullptr &&
        (each->ifa_addr->sa_family == AF_INET || each->ifa_addr->sa_family == AF_INET6) &&
        verbs::gid_of(each->ifa_addr) == address)
      found = ::if_nametoindex(each->ifa_name);
  ::freeifaddrs(all);
  return found;
}

// The kernel has asked for the peer on the link and had no answer. It also tells the socket, but by
// a message through lo, which may be down.
bool is_silent_neighbour(const Gid& peer, const Gid& source) {
  const auto table = base::NeighbourTable::open();
  const unsigned interface = interface_of(source);
  if (!table || interface == 0) return false;
  const std::span whole(peer.bytes);
  const auto entry = table->find(peer.is_ipv4_mapped() ? whole.last(4) : whole, interface);
  return entry && (entry->state & (NUD_FAILED | NUD_INCOMPLETE)) != 0;
}

bool reaches_network(const v1::Vdev& vdev) { return vdev.reach() != "host"; }

// Whether its fabric lets it have this peer on the network.
bool may_have(const v1::Vdev& vdev, const Gid& peer) {
  const auto prefixes = gid::parse_prefixes({vdev.peers().begin(), vdev.peers().end()});
  return prefixes && gid::permits(*prefixes, peer);
}

// Of two vdevices of a fabric.
bool leads_memory(const v1::Vdev& one, const v1::Vdev& other) {
  return one.reach() != "wire" || one.netns_cookie() == other.netns_cookie();
}

Finding problem(std::string text, std::string remedy) {
  return {kCheck, State::kProblem, std::move(text), std::move(remedy)};
}

// None of the vdevices reaches the network.
Finding stays_here(const std::string& to, const v1::Vdev& from, const v1::Vdev* holder) {
  const std::string reach = "vrdmactl fabric set " + from.fabric() + " --reach network";
  const bool is_private = from.fabric().starts_with("vdev/");
  const std::string lets = is_private ? "create " + from.name() +
                                            " again with --tenant or --fabric, for which an "
                                            "operator may then set --reach network"
                                      : "'" + reach + "', on both hosts";
  const std::string text = to + " is not in the fabric of " + from.name() + " (" + from.fabric() +
                           "), which ends at this host";
  if (holder == nullptr) return problem(text, lets);
  return problem(text + "; " + holder->name() + " in fabric " + holder->fabric() + " has it",
                 "give both one --tenant or --fabric, if they may communicate, or let both "
                 "fabrics reach the network: " +
                     lets);
}

Finding judge_answer(const std::string& to, const std::string& leave, PeerAnswer given) {
  switch (given) {
    case PeerAnswer::kGiven:
      return {kCheck, State::kOk, leave + ", and " + to + " answers on UDP port 4791", ""};
    case PeerAnswer::kTranslated:
      return problem(leave +
                         ", and arrive with other addresses: they are translated (NAT) on "
                         "the way to " +
                         to,
                     "name the address that the peer itself has (a pod's, not its service's), and "
                     "give it a way without masquerading, see docs/network.md");
    case PeerAnswer::kNone:
      return problem(leave + ", and " + to + " does not answer on UDP port 4791",
                     "permit UDP port 4791 both ways on both hosts and between them, without "
                     "address translation (nft(8)); see whether packets arrive there "
                     "(tcpdump(8), the log of its vrdmad)");
    case PeerAnswer::kNotAsked:
      break;
  }
  return {kCheck, State::kUnknown, leave + "; whether " + to + " answers could not be tried",
          "mend what is said of the vdevices, and ask again"};
}

Finding judge_way(const std::string& to, const std::vector<const v1::Vdev*>& reaching,
                  const Way& way) {
  if (way.error != 0)
    return problem("there is no way to " + to + ": " + std::strerror(way.error),
                   "see ip-route(8) in the namespace");
  const auto from = std::find_if(reaching.begin(), reaching.end(),
                                 [&](const v1::Vdev* one) { return has(*one, way.source); });
  const std::string source = address_text(way.source);
  if (from == reaching.end())
    return problem("packets to " + to + " leave from " + source +
                       ", which is no address of a vdevice whose fabric reaches the network",
                   "create a vdevice on that interface, or see ip-route(8)");
  switch (way.answer) {
    case 0:
      return judge_answer(
          to, "packets to " + to + " leave from " + source + " of " + (*from)->name(), way.given);
    case ECONNREFUSED:
      return {kCheck, State::kUnknown,
              to + " answers, and UDP port 4791 is closed there: no program uses RDMA at that "
                   "address now, or its fabric ends at its host",
              "start the program there, and ask again"};
    case EHOSTUNREACH:
      return problem("no host answers for " + to,
                     "see whether it is up, and ip-neighbour(8) in the namespace");
    case EPERM:
      return problem("a filter of the namespace drops packets to UDP port 4791 of " + to,
                     "permit UDP port 4791 both ways, see nft(8)");
    default:
      return problem("packets to UDP port 4791 of " + to + ": " + std::strerror(way.answer),
                     "see ip-route(8) and nft(8) in the namespace and on the way");
  }
}

}  // namespace

base::Result<Gid> parse_peer(const std::string& text) {
  const auto gid = verbs::parse_address(text);
  if (!gid) return base::fail(EINVAL, "'" + text + "' is not an IP address");
  if (gid->is_multicast() || gid->is_unspecified())
    return base::fail(EINVAL, "'" + text + "' is not the address of one host");
  if (gid->is_link_local())
    return base::fail(EINVAL, "'" + text +
                                  "' is a link-local address, which another host may have "
                                  "on another interface: name another address of the peer");
  return *gid;
}

Way find_way(const Gid& peer) {
  Way way;
  const verbs::SocketAddress to(peer, verbs::kRocePort, 0);
  const Fd socket(::socket(to.get()->sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!socket.valid()) {
    way.error = errno;
    return way;
  }
  const int on = 1;
  (void)::setsockopt(socket.get(), IPPROTO_IP, IP_RECVERR, &on, sizeof on);
  (void)::setsockopt(socket.get(), IPPROTO_IPV6, IPV6_RECVERR, &on, sizeof on);
  if (::connect(socket.get(), to.get(), to.size) != 0) {
    way.error = errno;
    return way;
  }
  sockaddr_storage from{};
  socklen_t size = sizeof from;
  auto* const at = reinterpret_cast<sockaddr*>(&from);
  Gid source{};
  if (::getsockname(socket.get(), at, &size) == 0) source = verbs::gid_of(at);
  way.source = source.text();
  way.answer = answer_to(socket);
  if (way.answer == 0 && is_silent_neighbour(peer, source)) way.answer = EHOSTUNREACH;
  return way;
}

Finding judge_peer(const Gid& peer, const std::vector<const v1::Vdev*>& own,
                   const std::vector<v1::Vdev>& all, const std::optional<Way>& way) {
  const std::string gid = peer.text(), to = address_text(gid);
  const v1::Vdev* holder = nullptr;
  for (const v1::Vdev& other : all) {
    if (!has(other, gid)) continue;
    holder = &other;
    for (const v1::Vdev* one : own)
      if (one->fabric() == other.fabric() && leads_memory(*one, other))
        return {kCheck, State::kOk,
                to + " is " + other.name() + " on this host, in the fabric of " + one->name(), ""};
  }
  std::vector<const v1::Vdev*> reaching;
  for (const v1::Vdev* one : own)
    if (reaches_network(*one)) reaching.push_back(one);
  if (reaching.empty()) return stays_here(to, *own.front(), holder);
  if (holder != nullptr && !reaches_network(*holder))
    return problem(to + " is " + holder->name() + " on this host, in fabric " + holder->fabric() +
                       ", which ends at this host",
                   "'vrdmactl fabric set " + holder->fabric() + " --reach network'");
  if (std::none_of(reaching.begin(), reaching.end(),
                   [&](const v1::Vdev* one) { return may_have(*one, peer); }))
    return problem(to + " is no peer of fabric " + reaching.front()->fabric() +
                       ": its peers are set with `vrdmactl fabric set`, or by a class",
                   "'vrdmactl fabric list' shows them; `vrdmactl fabric set " +
                       reaching.front()->fabric() + " --peers PREFIX,...` names all of them anew");
  if (!way) return {kCheck, State::kUnknown, "the way to " + to + " was not tried", ""};
  return judge_way(to, reaching, *way);
}

}  // namespace vrdma::cli::doctor
