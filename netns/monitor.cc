#include "netns/monitor.h"

#include <linux/if_addr.h>
#include <linux/if_link.h>
#include <linux/net_namespace.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <netlink/msg.h>
#include <sys/epoll.h>

#include <algorithm>
#include <limits>

namespace vrdma::netns {

namespace {

// Delay after a query that failed temporarily, such as for lack of memory.
constexpr auto kRetryAfter = std::chrono::milliseconds(100);

// Delay before the rest is processed, so that a flood of events does not occupy the loop.
constexpr auto kSoon = std::chrono::milliseconds(1);

// How much longer a namespace rests than it had, and at most.
constexpr int kRest = 9;
constexpr base::Duration kLongestRest = std::chrono::milliseconds(250);

constexpr uint32_t kFirstIndex = 0;
constexpr uint32_t kLastIndex = std::numeric_limits<uint32_t>::max();

}  // namespace

class Monitor::Held final : public LinkWatch::Held {
 public:
  Held(Monitor& monitor, uint64_t id) : monitor_(monitor), id_(id) {}
  ~Held() override {
    const auto it = monitor_.watched_.find(id_);
    monitor_.forget(id_, it->second->key);
    monitor_.watched_.erase(it);
  }
  [[nodiscard]] const Link& link() const override { return monitor_.watched_.at(id_)->link; }

 private:
  Monitor& monitor_;
  const uint64_t id_;
};

base::Result<std::unique_ptr<Monitor>> Monitor::create(base::EventLoop* loop, ReadLink read,
                                                       int receive_buffer) {
  const std::string what = "watch network namespaces";
  auto own = current();
  if (!own) return base::pass(std::move(own).error(), what);
  std::unique_ptr<Monitor> monitor(new Monitor(loop, std::move(*own)));
  Monitor* const raw = monitor.get();

  auto queries = RouteQueries::open();
  if (!queries) return base::pass(std::move(queries).error(), what);
  monitor->queries_ = std::make_unique<RouteQueries>(std::move(*queries));
  monitor->read_link_ = std::move(read);
  if (!monitor->read_link_)
    monitor->read_link_ = [raw](int nsid, const std::string& name, uint32_t ifindex) {
      return raw->queries_->link(nsid, name, ifindex);
    };
  auto nsids = RouteEvents::open({RTNLGRP_NSID}, false, receive_buffer);
  if (!nsids) return base::pass(std::move(nsids).error(), what);
  monitor->nsid_events_ = std::move(*nsids);
  auto links = RouteEvents::open({RTNLGRP_LINK, RTNLGRP_IPV4_IFADDR, RTNLGRP_IPV6_IFADDR}, true,
                                 receive_buffer);
  if (!links) return base::pass(std::move(links).error(), what);
  monitor->link_events_ = std::move(*links);
  monitor->learn_own_nsid();

  const auto on_readable = [raw](uint32_t) { raw->settle(); };
  auto nsid_watch = loop->watch(raw->nsid_events_.fd(), EPOLLIN, on_readable);
  if (!nsid_watch) return base::pass(std::move(nsid_watch).error(), what);
  monitor->nsid_watch_ = std::move(*nsid_watch);
  auto link_watch = loop->watch(raw->link_events_.fd(), EPOLLIN, on_readable);
  if (!link_watch) return base::pass(std::move(link_watch).error(), what);
  monitor->link_watch_ = std::move(*link_watch);
  return monitor;
}

Monitor::~Monitor() = default;

base::Result<Monitor::LinkWatch> Monitor::watch_link(const Netns& netns, const std::string& netdev,
                                                     LinkObserver observer) {
  const auto missing = base::fail(ENODEV, "there is no netdev '" + netdev + "'");
  if (netdev.empty() || netdev.size() >= IFNAMSIZ) return missing;
  auto watch = this->watch(netns, netdev, 0, std::move(observer));
  if (!watch && watch.error().code() == ENODEV) return missing;
  if (!watch) return base::pass(std::move(watch).error(), "netdev " + netdev);
  return watch;
}

base::Result<Monitor::LinkWatch> Monitor::watch_link(const Netns& netns, uint32_t ifindex,
                                                     LinkObserver observer) {
  const std::string which = "netdev with the index " + std::to_string(ifindex);
  auto watch = this->watch(netns, "", ifindex, std::move(observer));
  if (!watch && watch.error().code() == ENODEV) return base::fail(ENODEV, "there is no " + which);
  if (!watch) return base::pass(std::move(watch).error(), which);
  return watch;
}

base::Result<int> Monitor::nsid_of(const Netns& netns) {
  if (netns.cookie == own_.cookie) return kOwnNetns;
  return queries_->nsid_of(netns.fd, true);
}

base::Result<std::shared_ptr<void>> Monitor::watch_netns(const Netns& netns,
                                                         std::function<void()> changed) {
  auto nsid = nsid_of(netns);
  if (!nsid) return base::pass(std::move(nsid).error());
  const uint64_t id = next_id_++;
  namespaces_.emplace(
      id, std::make_shared<WatchedNetns>(WatchedNetns{*nsid, std::move(changed), false}));
  return std::shared_ptr<void>(this, [this, id](void*) { namespaces_.erase(id); });
}

base::Result<Monitor::LinkWatch> Monitor::watch(const Netns& netns, const std::string& netdev,
                                                uint32_t ifindex, LinkObserver observer) {
  auto assigned = nsid_of(netns);
  if (!assigned) return base::pass(std::move(assigned).error());
  const int nsid = *assigned;
  // Nsids are reused. Process all pending events of the former namespace, which is gone, before the
  // number gets its new meaning here. The descriptor keeps the new namespace alive.
  receive();
  if (has_unsettled()) settle_later(kSoon);  // no socket tells of these events any more
  auto link = read_link_(nsid, netdev, ifindex);
  if (!link) return base::pass(std::move(link).error());
  link->netns_cookie = netns.cookie;

  auto watched = std::make_shared<Watched>();
  watched->key = {nsid, link->ifindex};
  watched->link = std::move(*link);
  watched->observer = std::move(observer);
  const uint64_t id = next_id_++;
  by_key_.emplace(watched->key, id);
  watched_.emplace(id, std::move(watched));
  return LinkWatch(std::make_unique<Held>(*this, id));
}

// Drains the sockets without calling observers. The ends of namespaces come first: an event of a
// reused nsid was sent after the end of the former namespace.
void Monitor::receive() {
  const bool nsids_complete =
      nsid_events_.receive([this](int, nlmsghdr* message) { on_nsid_event(message); });
  const bool links_complete =
      link_events_.receive([this](int nsid, nlmsghdr* message) { on_link_event(nsid, message); });
  if (!nsids_complete || !links_complete) {
    ++overflows_;
    read_all_anew(!nsids_complete);
  }
}

void Monitor::on_nsid_event(const nlmsghdr* message) {
  auto* m = const_cast<nlmsghdr*>(message);
  nlattr* attributes[NETNSA_MAX + 1];
  if (::nlmsg_parse(m, sizeof(rtgenmsg), attributes, NETNSA_MAX, nullptr) < 0 ||
      attributes[NETNSA_NSID] == nullptr)
    return;
  const int nsid = ::nla_get_s32(attributes[NETNSA_NSID]);
  if (message->nlmsg_type == RTM_NEWNSID && own_nsid_ == kOwnNetns) learn_own_nsid();
  if (message->nlmsg_type != RTM_DELNSID || nsid < 0) return;
  for_each_of({nsid, kFirstIndex}, {nsid, kLastIndex}, [this](uint64_t id, Watched& watched) {
    watched.gone = Gone::kNetns;
    unsettled_.insert(id);
  });
}

void Monitor::on_link_event(int nsid, nlmsghdr* message) {
  if (nsid == own_nsid_) nsid = kOwnNetns;
  uint32_t ifindex = 0;
  std::optional<Gone> gone;
  switch (message->nlmsg_type) {
    case RTM_NEWLINK:
    case RTM_DELLINK: {
      const auto* info = static_cast<const ifinfomsg*>(::nlmsg_data(message));
      // Bridges send the same message types for their ports, with a family of their own.
      if (::nlmsg_datalen(message) < static_cast<int>(sizeof *info) ||
          info->ifi_family != AF_UNSPEC)
        return;
      ifindex = static_cast<uint32_t>(info->ifi_index);
      if (message->nlmsg_type == RTM_DELLINK)
        gone = ::nlmsg_find_attr(message, sizeof *info, IFLA_NEW_NETNSID) != nullptr
                   ? Gone::kMoved
                   : Gone::kDeleted;
      break;
    }
    case RTM_NEWADDR:
    case RTM_DELADDR: {
      const auto* info = static_cast<const ifaddrmsg*>(::nlmsg_data(message));
      if (::nlmsg_datalen(message) < static_cast<int>(sizeof *info)) return;
      ifindex = info->ifa_index;
      break;
    }
    default:
      return;
  }
  for (const auto& [id, watched] : namespaces_)
    if (watched->nsid == nsid) watched->unsettled = true;
  for_each_of({nsid, ifindex}, {nsid, ifindex}, [&](uint64_t id, Watched& watched) {
    if (gone && !watched.gone) watched.gone = gone;
    unsettled_.insert(id);
  });
}

template <class F>
void Monitor::for_each_of(Key first, Key last, F f) {
  const auto end = by_key_.upper_bound(last);
  for (auto it = by_key_.lower_bound(first); it != end; ++it)
    f(it->second, *watched_.at(it->second));
}

void Monitor::learn_own_nsid() {
  if (auto nsid = queries_->nsid_of(own_.fd, false)) own_nsid_ = *nsid;
}

void Monitor::read_all_anew(bool doubt_nsids) {
  learn_own_nsid();
  for (const auto& [id, watched] : namespaces_) watched->unsettled = true;
  for (const auto& [key, id] : by_key_) {
    unsettled_.insert(id);
    if (doubt_nsids && key.first != kOwnNetns) watched_.at(id)->doubted = true;
  }
}

// Reads the changed links again and calls their observers. Handles each link once per call, so that
// a link that changes constantly cannot occupy the loop.
void Monitor::settle() {
  later_.reset();
  receive();
  const base::TimePoint now = loop_->now();
  std::erase_if(resting_, [now](const auto& each) { return each.second <= now; });
  Spent spent;
  for (const uint64_t id : std::exchange(unsettled_, {})) settle(id, &spent);
  settle_namespaces(&spent);
  const base::TimePoint ended = loop_->now();
  for (const auto& [nsid, time] : spent)
    resting_[nsid] = ended + std::min(kRest * time, kLongestRest);
  if (has_unsettled() && !later_.active()) settle_later(until_due());
}

base::Duration Monitor::until_due() const {
  const base::TimePoint now = loop_->now();
  base::Duration least = kLongestRest;
  const auto consider = [&](int nsid) {
    const auto it = resting_.find(nsid);
    least = std::min(least, it != resting_.end() ? it->second - now : kSoon);
  };
  for (const uint64_t id : unsettled_) {
    const Watched& watched = *watched_.at(id);
    if (watched.gone) return kSoon;
    consider(watched.key.first);
  }
  for (const auto& [id, watched] : namespaces_)
    if (watched->unsettled) consider(watched->nsid);
  return std::max<base::Duration>(least, kSoon);
}

bool Monitor::rests(int nsid) const { return resting_.contains(nsid); }

bool Monitor::has_unsettled() const {
  return !unsettled_.empty() ||
         std::any_of(namespaces_.begin(), namespaces_.end(),
                     [](const auto& each) { return each.second->unsettled; });
}

void Monitor::settle_namespaces(Spent* spent) {
  std::vector<uint64_t> changed;  // a callback may end watches
  for (const auto& [id, watched] : namespaces_)
    if (!rests(watched->nsid) && std::exchange(watched->unsettled, false)) changed.push_back(id);
  for (const uint64_t id : changed)
    if (const auto it = namespaces_.find(id); it != namespaces_.end()) {
      const std::shared_ptr<WatchedNetns> watched = it->second;
      const base::TimePoint begun = loop_->now();
      watched->changed();
      (*spent)[watched->nsid] += loop_->now() - begun;
    }
}

void Monitor::settle(uint64_t id, Spent* spent) {
  const auto it = watched_.find(id);
  if (it == watched_.end()) return;
  const std::shared_ptr<Watched> watched = it->second;  // an observer may end the watch
  if (!watched->gone && rests(watched->key.first)) {
    unsettled_.insert(id);
    return;
  }
  const base::TimePoint begun = loop_->now();
  tell(id, *watched);
  (*spent)[watched->key.first] += loop_->now() - begun;
}

void Monitor::tell(uint64_t id, Watched& watched) {
  Link now;
  if (!read_anew(id, &watched, &now)) return;
  if (watched.gone) {
    forget(id, watched.key);
    if (watched.observer.gone) watched.observer.gone(*watched.gone);
  } else if (now != watched.link) {
    watched.link = now;
    if (watched.observer.changed) watched.observer.changed(now);
  }
}

// Returns true if the link's state, or that it is gone, is now known.
bool Monitor::read_anew(uint64_t id, Watched* watched, Link* now) {
  const bool own = watched->key.first == kOwnNetns;
  // An event from a namespace that is ending may lack its nsid, as if it came from our own.
  if (watched->gone && !own) return true;
  const auto said = std::exchange(watched->gone, std::nullopt);
  auto link = read_link_(watched->key.first, "", watched->key.second);
  if (link) {
    *now = std::move(*link);
    now->netns_cookie = watched->link.netns_cookie;
    if ((said || watched->doubted) && now->mac != watched->link.mac)
      watched->gone = said.value_or(Gone::kVanished);
    watched->doubted = false;
    // If the namespace ended and its nsid was reused before the query, the event is queued by now.
    if (!own) receive();
    return true;
  }
  // The events that arrived meanwhile give the reason.
  receive();
  if (watched->gone) return true;
  if (link.error().code() == ENODEV) {
    watched->gone = said.value_or(Gone::kVanished);
    return true;
  }
  if (link.error().code() == EINVAL && !own) {
    watched->gone = Gone::kNetns;
    return true;
  }
  watched->gone = said;
  unsettled_.insert(id);
  settle_later(kRetryAfter);
  return false;
}

// Excludes a link from all further events.
void Monitor::forget(uint64_t id, Key key) {
  auto [first, last] = by_key_.equal_range(key);
  while (first != last && first->second != id) ++first;
  if (first != last) by_key_.erase(first);
  unsettled_.erase(id);
}

void Monitor::settle_later(base::Duration delay) {
  later_ = loop_->after(delay, [this] { settle(); });
}

}  // namespace vrdma::netns
