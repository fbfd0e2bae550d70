// Watches links in any number of network namespaces from outside.
//
// Theory of operation. One socket in the monitor's own namespace receives the link and address
// events of all namespaces that have an nsid there (NETLINK_LISTEN_ALL_NSID). Watching a link
// assigns an nsid to its namespace (RTM_NEWNSID). A second socket, separate so that a flood of link
// events cannot overflow it, receives the end of each namespace (RTM_DELNSID). Neither holds a
// reference to any namespace; the caller of watch_link() may close its descriptor after the call.
//
// The monitor uses an event only as a notification: it then reads the link (RTM_GETLINK,
// RTM_GETADDR with an nsid) and calls its observer if the link has changed. Therefore events may be
// late, duplicated or lost: when the socket overflows (ENOBUFS), the monitor reads all links again.
// Only RTM_DELLINK is used itself, because nothing else tells whether the netdev was deleted or
// moved. The key of a link is (nsid, ifindex), so a link may be renamed.
//
// A namespace has a tenth of the loop's time at most. A pass reads each changed link once and tells
// its observer; then the namespace rests for nine times as long as its links took, and the next
// pass serves all events of the meantime. So a tenant that changes thousands of addresses all the
// time delays only what is told of its own namespace.
//
// Nothing is polled: without events, the monitor never wakes up. Events of unwatched links, in any
// namespace with an nsid, wake the monitor and are dropped.
//
// Single-threaded: all calls to the monitor and to observers are on the event loop's thread. Needs
// CAP_NET_ADMIN and CAP_NET_BROADCAST over the watched namespaces.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "core/base/error.h"
#include "core/base/event_loop.h"
#include "netns/links.h"
#include "netns/netns.h"
#include "netns/route_socket.h"

namespace vrdma::netns {

class Monitor final : public Links {
 public:
  // Reads a link: RouteQueries::link().
  using ReadLink =
      std::function<base::Result<Link>(int nsid, const std::string& name, uint32_t ifindex)>;
  // Opens the sockets in the calling thread's namespace. `loop` must outlive the monitor. `read`:
  // by a process that has the privileges, and has assigned an nsid to each namespace that is
  // watched; empty: the monitor does both itself. `receive_buffer`: bytes for each event socket.
  [[nodiscard]] static base::Result<std::unique_ptr<Monitor>> create(base::EventLoop* loop,
                                                                     ReadLink read = {},
                                                                     int receive_buffer = 4 << 20);
  ~Monitor() override;

  [[nodiscard]] base::Result<LinkWatch> watch_link(const Netns& netns, const std::string& netdev,
                                                   LinkObserver observer) override;
  [[nodiscard]] base::Result<LinkWatch> watch_link(const Netns& netns, uint32_t ifindex,
                                                   LinkObserver observer) override;
  [[nodiscard]] base::Result<std::shared_ptr<void>> watch_netns(
      const Netns& netns, std::function<void()> changed) override;

  // How many times events were lost and all links were read again.
  [[nodiscard]] uint64_t overflows() const { return overflows_; }

 private:
  using Key = std::pair<int, uint32_t>;  // nsid, ifindex
  struct Watched {
    Key key;
    Link link;
    LinkObserver observer;
    std::optional<Gone> gone;  // not yet reported to the observer
    bool doubted = false;      // the nsid may belong to another namespace by now
  };

  class Held;

  struct WatchedNetns {
    int nsid = 0;
    std::function<void()> changed;
    bool unsettled = false;  // `changed` must be called
  };

  Monitor(base::EventLoop* loop, Netns own) : loop_(loop), own_(std::move(own)) {}
  base::Result<int> nsid_of(const Netns& netns);
  base::Result<LinkWatch> watch(const Netns& netns, const std::string& netdev, uint32_t ifindex,
                                LinkObserver observer);
  void receive();
  void settle();
  using Spent = std::map<int, base::Duration>;  // in one pass, by nsid
  void settle(uint64_t id, Spent* spent);
  void tell(uint64_t id, Watched& watched);
  [[nodiscard]] bool has_unsettled() const;
  void settle_namespaces(Spent* spent);
  bool read_anew(uint64_t id, Watched* watched, Link* now);
  void forget(uint64_t id, Key key);
  void settle_later(base::Duration delay);
  [[nodiscard]] bool rests(int nsid) const;
  [[nodiscard]] base::Duration until_due() const;  // of what is unsettled
  void on_nsid_event(const nlmsghdr* message);
  void on_link_event(int nsid, nlmsghdr* message);
  void learn_own_nsid();
  void read_all_anew(bool doubt_nsids);
  template <class F>
  void for_each_of(Key first, Key last, F f);

  base::EventLoop* loop_;
  Netns own_;
  // The nsid that our own namespace has in itself, if any; events of our namespace then carry it.
  int own_nsid_ = kOwnNetns;
  RouteEvents nsid_events_;
  RouteEvents link_events_;
  std::unique_ptr<RouteQueries> queries_;
  ReadLink read_link_;
  base::EventLoop::Watch nsid_watch_;
  base::EventLoop::Watch link_watch_;
  base::EventLoop::Timer later_;

  uint64_t next_id_ = 1;
  std::map<uint64_t, std::shared_ptr<Watched>> watched_;
  std::multimap<Key, uint64_t> by_key_;  // those that are not gone
  std::set<uint64_t> unsettled_;         // to be read again, or to be reported as gone
  std::map<uint64_t, std::shared_ptr<WatchedNetns>> namespaces_;
  std::map<int, base::TimePoint> resting_;  // by nsid, until when
  uint64_t overflows_ = 0;
};

}  // namespace vrdma::netns
