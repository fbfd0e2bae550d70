#include "netns/route_socket.h"

#include <arpa/inet.h>
#include <linux/if_addr.h>
#include <linux/if_link.h>
#include <linux/neighbour.h>
#include <linux/net_namespace.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <netlink/msg.h>
#include <sys/socket.h>

#include <array>
#include <cstring>

namespace vrdma::netns {

namespace {

// Our events are small. A longer message cannot be one of them and counts as lost.
constexpr size_t kBufferSize = 65536;
constexpr int kDatagramsAtOnce = 512;
constexpr int kDumpTries = 8;
constexpr uint32_t kLowerUp = 1u << 16;  // IFF_LOWER_UP; <linux/if.h> conflicts with <net/if.h>

struct NlMsgFree {
  void operator()(nl_msg* message) const { ::nlmsg_free(message); }
};
using NlMsg = std::unique_ptr<nl_msg, NlMsgFree>;

template <class Header>
NlMsg make_request(int type, int flags, const Header& header) {
  NlMsg message(::nlmsg_alloc_simple(type, flags));
  if (message && ::nlmsg_append(message.get(), const_cast<Header*>(&header), sizeof header,
                                NLMSG_ALIGNTO) == 0)
    return message;
  return nullptr;
}

base::Result<NlSocket> open_socket() {
  NlSocket socket(::nl_socket_alloc());
  if (!socket) return base::fail(ENOMEM, "no memory for a netlink socket");
  // No NETLINK_CAP_ACK: libnl does not need it. ask_once() checks sequence numbers.
  ::nl_socket_disable_seq_check(socket.get());
  if (const int error = ::nl_connect(socket.get(), NETLINK_ROUTE); error < 0)
    return base::fail(EPROTO, std::string("open an rtnetlink socket: ") + ::nl_geterror(error));
  return socket;
}

base::Result<void> enable(const NlSocket& socket, int option, const std::string& what) {
  const int on = 1;
  if (::setsockopt(::nl_socket_get_fd(socket.get()), SOL_NETLINK, option, &on, sizeof on) != 0)
    return base::fail_errno("set " + what + " of an rtnetlink socket");
  return {};
}

// The nsid of the namespace that sent the message; our own if the message carries none.
int nsid_of_message(msghdr* header) {
  int nsid = kOwnNetns;
  for (cmsghdr* c = CMSG_FIRSTHDR(header); c != nullptr; c = CMSG_NXTHDR(header, c))
    if (c->cmsg_level == SOL_NETLINK && c->cmsg_type == NETLINK_LISTEN_ALL_NSID &&
        c->cmsg_len == CMSG_LEN(sizeof nsid))
      std::memcpy(&nsid, CMSG_DATA(c), sizeof nsid);
  return nsid;
}

template <class Header>
bool holds(nlmsghdr* message) {
  return ::nlmsg_datalen(message) >= static_cast<int>(sizeof(Header));
}

void parse_link(nlmsghdr* message, Link* link) {
  if (message->nlmsg_type != RTM_NEWLINK || !holds<ifinfomsg>(message)) return;
  const auto* info = static_cast<const ifinfomsg*>(::nlmsg_data(message));
  nlattr* attributes[IFLA_MAX + 1];
  if (::nlmsg_parse(message, sizeof *info, attributes, IFLA_MAX, nullptr) < 0) return;
  link->ifindex = static_cast<uint32_t>(info->ifi_index);
  link->up = (info->ifi_flags & IFF_UP) != 0 && (info->ifi_flags & kLowerUp) != 0;
  link->loopback = (info->ifi_flags & IFF_LOOPBACK) != 0;
  if (nlattr* name = attributes[IFLA_IFNAME]) link->name = ::nla_get_string(name);
  if (nlattr* mtu = attributes[IFLA_MTU]) link->mtu = ::nla_get_u32(mtu);
  if (nlattr* mac = attributes[IFLA_ADDRESS]; mac != nullptr && ::nla_len(mac) == 6) {
    link->mac.emplace();
    std::memcpy(link->mac->data(), ::nla_data(mac), link->mac->size());
  }
}

void parse_address(nlmsghdr* message, Link* link) {
  if (message->nlmsg_type != RTM_NEWADDR || !holds<ifaddrmsg>(message)) return;
  const auto* info = static_cast<const ifaddrmsg*>(::nlmsg_data(message));
  if (info->ifa_index != link->ifindex) return;
  nlattr* attributes[IFA_MAX + 1];
  if (::nlmsg_parse(message, sizeof *info, attributes, IFA_MAX, nullptr) < 0) return;
  // IFA_ADDRESS of a point-to-point address is the peer's.
  nlattr* value = attributes[IFA_LOCAL] ? attributes[IFA_LOCAL] : attributes[IFA_ADDRESS];
  if (value == nullptr) return;
  Address address{};
  if (info->ifa_family == AF_INET && ::nla_len(value) == 4) {
    address[10] = address[11] = 0xff;
    std::memcpy(address.data() + 12, ::nla_data(value), 4);
  } else if (info->ifa_family == AF_INET6 && ::nla_len(value) == 16) {
    std::memcpy(address.data(), ::nla_data(value), 16);
  } else {
    return;
  }
  link->addresses.push_back(address);
  // A node may use an optimistic address (RFC 4429).
  if ((info->ifa_flags & (IFA_F_TENTATIVE | IFA_F_OPTIMISTIC)) == IFA_F_TENTATIVE)
    link->tentative.push_back(address);
}

// As the kernel has it: 4 bytes, or 16.
struct RawAddress {
  explicit RawAddress(const Address& address) {
    static constexpr std::array<uint8_t, 12> kMapped{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
    const bool ipv4 = std::memcmp(address.data(), kMapped.data(), kMapped.size()) == 0;
    family = ipv4 ? AF_INET : AF_INET6;
    bytes = address.data() + (ipv4 ? kMapped.size() : 0);
    size = ipv4 ? 4 : 16;
  }
  uint8_t family;
  const uint8_t* bytes;
  int size;
};

// Of an attribute of 4 bytes or 16.
void put_address(const nlattr* attribute, Address* to) {
  const int size = ::nla_len(attribute);
  if (size == 4) std::memcpy(to->data() + 12, ::nla_data(attribute), 4);
  if (size == 16) std::memcpy(to->data(), ::nla_data(attribute), 16);
}

// `hop` is what it is without a gateway.
void parse_route(nlmsghdr* message, NextHop* hop) {
  if (message->nlmsg_type != RTM_NEWROUTE || !holds<rtmsg>(message)) return;
  const auto* info = static_cast<const rtmsg*>(::nlmsg_data(message));
  nlattr* attributes[RTA_MAX + 1];
  if (::nlmsg_parse(message, sizeof *info, attributes, RTA_MAX, nullptr) < 0) return;
  if (info->rtm_type == RTN_LOCAL || attributes[RTA_OIF] == nullptr) return;
  hop->ifindex = ::nla_get_u32(attributes[RTA_OIF]);
  if (const nlattr* source = attributes[RTA_PREFSRC]) {
    if (::nla_len(source) == 4) hop->source[10] = hop->source[11] = 0xff;
    put_address(source, &hop->source);
  }
  if (const nlattr* gateway = attributes[RTA_GATEWAY]) {
    put_address(gateway, &hop->address);
  } else if (const nlattr* via = attributes[RTA_VIA]; via != nullptr && ::nla_len(via) == 18) {
    // A gateway of IPv6 for IPv4 (rtvia).
    std::memcpy(hop->address.data(), static_cast<const uint8_t*>(::nla_data(via)) + 2, 16);
  }
  nlattr* metrics[RTAX_MAX + 1];
  if (attributes[RTA_METRICS] == nullptr ||
      ::nla_parse_nested(metrics, RTAX_MAX, attributes[RTA_METRICS], nullptr) < 0)
    return;
  const auto number = [&metrics](int which) {
    const nlattr* metric = metrics[which];
    return metric != nullptr && ::nla_len(metric) == 4 ? ::nla_get_u32(metric) : 0;
  };
  // A metric that expires comes from an ICMP message, which any host can forge.
  const nlattr* cache = attributes[RTA_CACHEINFO];
  const bool learnt = cache != nullptr && ::nla_len(cache) >= int{sizeof(rta_cacheinfo)} &&
                      static_cast<const rta_cacheinfo*>(::nla_data(cache))->rta_expires != 0;
  if (!learnt) hop->mtu = number(RTAX_MTU);
  const uint32_t hops = number(RTAX_HOPLIMIT);
  hop->hop_limit = hops <= 255 ? static_cast<uint8_t>(hops) : uint8_t{0};
}

}  // namespace

base::Result<base::Fd> make_route_socket() {
  base::Fd socket(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE));
  const sockaddr_nl any{AF_NETLINK, 0, 0, 0};
  if (!socket.valid() ||
      ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&any), sizeof any) != 0)
    return base::fail_errno("open an rtnetlink socket");
  return socket;
}

void NlSocketFree::operator()(nl_sock* socket) const { ::nl_socket_free(socket); }

base::Result<RouteEvents> RouteEvents::open(const std::vector<int>& groups, bool all_netns,
                                            int receive_buffer) {
  auto socket = open_socket();
  if (!socket) return base::pass(std::move(socket).error());
  RouteEvents events;
  events.socket_ = std::move(*socket);
  events.buffer_.resize(kBufferSize);
  // SO_RCVBUFFORCE goes beyond net.core.rmem_max; where it is refused, that is the size.
  if (::setsockopt(events.fd(), SOL_SOCKET, SO_RCVBUFFORCE, &receive_buffer,
                   sizeof receive_buffer) != 0)
    ::setsockopt(events.fd(), SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof receive_buffer);
  if (all_netns)
    if (auto set = enable(events.socket_, NETLINK_LISTEN_ALL_NSID, "NETLINK_LISTEN_ALL_NSID"); !set)
      return base::pass(std::move(set).error());
  for (const int group : groups)
    if (const int error = ::nl_socket_add_membership(events.socket_.get(), group); error < 0)
      return base::fail(EPROTO, std::string("join an rtnetlink group: ") + ::nl_geterror(error));
  return events;
}

int RouteEvents::fd() const { return ::nl_socket_get_fd(socket_.get()); }

bool RouteEvents::receive(const std::function<void(int, nlmsghdr*)>& handle) {
  bool complete = true;
  for (int i = 0; i < kDatagramsAtOnce; ++i) {
    sockaddr_nl sender{};
    iovec space{buffer_.data(), buffer_.size()};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int)) * 4];
    msghdr header{};
    header.msg_name = &sender;
    header.msg_namelen = sizeof sender;
    header.msg_iov = &space;
    header.msg_iovlen = 1;
    header.msg_control = control;
    header.msg_controllen = sizeof control;
    const ssize_t got = ::recvmsg(fd(), &header, MSG_DONTWAIT);
    if (got < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN) return complete;
      complete = false;  // ENOBUFS; treat any other error as a loss too
      if (errno != ENOBUFS) return complete;
      continue;
    }
    if (sender.nl_pid != 0) continue;  // not from the kernel
    if ((header.msg_flags & MSG_TRUNC) != 0) {
      complete = false;
      continue;
    }
    const int nsid = nsid_of_message(&header);
    int left = static_cast<int>(got);
    for (auto* m = reinterpret_cast<nlmsghdr*>(buffer_.data()); ::nlmsg_ok(m, left);
         m = ::nlmsg_next(m, &left))
      handle(nsid, m);
  }
  return complete;
}

base::Result<RouteQueries> RouteQueries::open() {
  auto socket = open_socket();
  if (!socket) return base::pass(std::move(socket).error());
  // Without it the kernel ignores the namespace and the index of an address dump.
  if (auto set = enable(*socket, NETLINK_GET_STRICT_CHK, "NETLINK_GET_STRICT_CHK"); !set)
    return base::pass(std::move(set).error());
  RouteQueries queries;
  queries.socket_ = std::move(*socket);
  return queries;
}

base::Result<RouteQueries> RouteQueries::by(base::Fd socket) {
  RouteQueries queries;
  queries.socket_.reset(::nl_socket_alloc());
  if (!queries.socket_) return base::fail(ENOMEM, "no memory for a netlink socket");
  ::nl_socket_disable_seq_check(queries.socket_.get());
  if (const int error = ::nl_socket_set_fd(queries.socket_.get(), NETLINK_ROUTE, socket.get());
      error < 0)
    return base::fail(EPROTO, std::string("use an rtnetlink socket: ") + ::nl_geterror(error));
  (void)socket.release();
  return queries;
}

base::Result<NextHop> RouteQueries::next_hop(const Address& from, const Address& to,
                                             uint32_t ifindex) {
  return next_hop(&from, to, ifindex);
}

base::Result<NextHop> RouteQueries::next_hop(const Address& to) { return next_hop(nullptr, to, 0); }

base::Result<NextHop> RouteQueries::next_hop(const Address* from, const Address& to,
                                             uint32_t ifindex) {
  const RawAddress destination(to);
  const auto bits = static_cast<uint8_t>(8 * destination.size);
  rtmsg header{};
  header.rtm_family = destination.family;
  header.rtm_dst_len = bits;
  if (from != nullptr) header.rtm_src_len = bits;
  const NlMsg get = make_request(RTM_GETROUTE, 0, header);
  const bool link_local = destination.family == AF_INET6 && to[0] == 0xfe && (to[1] & 0xc0) == 0x80;
  bool made = get && ::nla_put(get.get(), RTA_DST, destination.size, destination.bytes) == 0;
  if (made && from != nullptr) {
    const RawAddress source(*from);
    made = ::nla_put(get.get(), RTA_SRC, source.size, source.bytes) == 0;
  }
  if (made && link_local && ifindex != 0) made = ::nla_put_u32(get.get(), RTA_OIF, ifindex) == 0;
  if (!made) return base::fail(ENOMEM, "no memory for a netlink message");
  NextHop hop{0, to};
  auto asked = ask(get.get(), [&hop](nlmsghdr* m) { parse_route(m, &hop); });
  if (!asked) return base::pass(std::move(asked).error());
  return hop;
}

uint16_t RouteQueries::neighbour(const NextHop& hop) {
  const RawAddress address(hop.address);
  ndmsg header{};
  header.ndm_family = address.family;
  header.ndm_ifindex = static_cast<int>(hop.ifindex);
  const NlMsg get = make_request(RTM_GETNEIGH, 0, header);
  if (!get || ::nla_put(get.get(), NDA_DST, address.size, address.bytes) < 0) return 0;
  uint16_t state = 0;
  (void)ask(get.get(), [&state](nlmsghdr* m) {
    if (m->nlmsg_type == RTM_NEWNEIGH && holds<ndmsg>(m))
      state = static_cast<const ndmsg*>(::nlmsg_data(m))->ndm_state;
  });
  return state;
}

// Ends a dump that was not read to its end.
base::Result<void> RouteQueries::open_anew() {
  auto queries = open();
  if (!queries) return base::pass(std::move(queries).error());
  socket_ = std::move(queries->socket_);
  return {};
}

base::Result<RouteQueries::Dump> RouteQueries::ask(nl_msg* request, const Handler& handle,
                                                   size_t most) {
  for (int i = 0; i < kDumpTries; ++i) {
    std::vector<std::vector<char>> messages;
    const auto keep = [&](nlmsghdr* m) {
      const auto* bytes = reinterpret_cast<const char*>(m);
      messages.emplace_back(bytes, bytes + m->nlmsg_len);
    };
    auto asked = ask_once(request, keep, most);
    if (!asked) return asked;
    if (asked->interrupted) continue;
    for (auto& message : messages) handle(reinterpret_cast<nlmsghdr*>(message.data()));
    return asked;
  }
  return base::fail(EAGAIN, "rtnetlink: the tables change too fast to be read");
}

base::Result<RouteQueries::Dump> RouteQueries::ask_once(nl_msg* request, const Handler& handle,
                                                        size_t most) {
  Dump seen;
  size_t handled = 0;
  ::nlmsg_hdr(request)->nlmsg_seq = NL_AUTO_SEQ;
  ::nlmsg_hdr(request)->nlmsg_flags |= NLM_F_ACK;
  if (::nl_send_auto(socket_.get(), request) < 0)
    return base::fail_errno("send a request to rtnetlink");
  const nlmsghdr* sent = ::nlmsg_hdr(request);
  const bool dump = (sent->nlmsg_flags & NLM_F_DUMP) == NLM_F_DUMP;
  for (;;) {
    sockaddr_nl sender{};
    unsigned char* bytes = nullptr;
    const int got = ::nl_recv(socket_.get(), &sender, &bytes, nullptr);
    if (got < 0) return base::fail(EIO, std::string("read from rtnetlink: ") + ::nl_geterror(got));
    const std::unique_ptr<unsigned char, decltype(&::free)> owner(bytes, &::free);
    int left = got;
    for (auto* m = reinterpret_cast<nlmsghdr*>(bytes); got > 0 && ::nlmsg_ok(m, left);
         m = ::nlmsg_next(m, &left)) {
      if (m->nlmsg_seq != sent->nlmsg_seq) continue;
      if ((m->nlmsg_flags & NLM_F_DUMP_INTR) != 0) seen.interrupted = true;
      if (m->nlmsg_type == NLMSG_ERROR && holds<nlmsgerr>(m)) {
        const int error = -static_cast<const nlmsgerr*>(::nlmsg_data(m))->error;
        if (error != 0) return base::fail(error, std::string("rtnetlink: ") + ::strerror(error));
        if (!dump) return seen;
      } else if (m->nlmsg_type == NLMSG_DONE) {
        int status = 0;
        if (holds<int>(m)) std::memcpy(&status, ::nlmsg_data(m), sizeof status);
        if (status < 0)
          return base::fail(-status, std::string("rtnetlink: ") + ::strerror(-status));
        return seen;
      } else if (handled == most) {
        seen.cut = true;
        if (auto opened = open_anew(); !opened) return base::pass(std::move(opened).error());
        return seen;
      } else {
        handle(m);
        ++handled;
      }
    }
  }
}

base::Result<int> RouteQueries::nsid_of(const base::Fd& netns, bool assign) {
  const auto family = rtgenmsg{AF_UNSPEC};
  const auto fd = static_cast<uint32_t>(netns.get());
  for (;;) {
    int nsid = kOwnNetns;
    const NlMsg get = make_request(RTM_GETNSID, 0, family);
    if (!get || ::nla_put_u32(get.get(), NETNSA_FD, fd) < 0)
      return base::fail(ENOMEM, "no memory for a netlink message");
    auto asked = ask(get.get(), [&](nlmsghdr* m) {
      nlattr* attributes[NETNSA_MAX + 1];
      if (::nlmsg_parse(m, sizeof(rtgenmsg), attributes, NETNSA_MAX, nullptr) == 0 &&
          attributes[NETNSA_NSID] != nullptr)
        nsid = ::nla_get_s32(attributes[NETNSA_NSID]);
    });
    if (!asked) return base::pass(std::move(asked).error(), "get the nsid of a netns");
    if (nsid != kOwnNetns || !assign) return nsid;

    const NlMsg add = make_request(RTM_NEWNSID, 0, family);
    if (!add || ::nla_put_u32(add.get(), NETNSA_FD, fd) < 0 ||
        ::nla_put_s32(add.get(), NETNSA_NSID, NETNSA_NSID_NOT_ASSIGNED) < 0)
      return base::fail(ENOMEM, "no memory for a netlink message");
    // EEXIST: another process assigned one first.
    if (auto added = ask(add.get(), [](nlmsghdr*) {}); !added && added.error().code() != EEXIST)
      return base::pass(std::move(added).error(), "assign an nsid to a netns");
  }
}

base::Result<Link> RouteQueries::link(int nsid, const std::string& name, uint32_t ifindex) {
  ifinfomsg header{};
  header.ifi_family = AF_UNSPEC;
  header.ifi_index = name.empty() ? static_cast<int>(ifindex) : 0;
  const NlMsg get = make_request(RTM_GETLINK, 0, header);
  if (!get || ::nla_put_u32(get.get(), IFLA_EXT_MASK, RTEXT_FILTER_SKIP_STATS) < 0 ||
      (nsid != kOwnNetns && ::nla_put_s32(get.get(), IFLA_TARGET_NETNSID, nsid) < 0) ||
      (!name.empty() && ::nla_put_string(get.get(), IFLA_IFNAME, name.c_str()) < 0))
    return base::fail(ENOMEM, "no memory for a netlink message");
  Link link;
  auto asked = ask(get.get(), [&](nlmsghdr* m) { parse_link(m, &link); });
  if (!asked) return base::pass(std::move(asked).error());
  if (link.ifindex == 0) return base::fail(EPROTO, "rtnetlink: the answer contains no link");
  if (auto read = read_addresses(nsid, &link); !read) return base::pass(std::move(read).error());
  return link;
}

base::Result<void> RouteQueries::read_addresses(int nsid, Link* link) {
  ifaddrmsg header{};
  header.ifa_family = AF_UNSPEC;
  header.ifa_index = link->ifindex;
  const NlMsg get = make_request(RTM_GETADDR, NLM_F_DUMP, header);
  if (!get || (nsid != kOwnNetns && ::nla_put_s32(get.get(), IFA_TARGET_NETNSID, nsid) < 0))
    return base::fail(ENOMEM, "no memory for a netlink message");
  auto asked = ask(
      get.get(), [&](nlmsghdr* m) { parse_address(m, link); }, Link::kMostAddresses);
  if (!asked) return base::pass(std::move(asked).error());
  link->has_more = asked->cut;
  return {};
}

}  // namespace vrdma::netns
