// Watches links in any number of network namespaces from outside of them.
//
// Theory of operation. One socket in the monitor's own namespace receives the link and address
// events of all namespaces that have an nsid there (NETLINK_LISTEN_ALL_NSID); watching a link
// gives its namespace one (RTM_NEWNSID). A second one, of its own so that no flood of link events
// can lose it, hears that an nsid ended (RTM_DELNSID): the namespace is gone. Neither holds a
// reference to any namespace; the descriptor handed to watch_link() may be closed after the call.
//
// What an event says is not used, but that it came: the link is then read anew (RTM_GETLINK,
// RTM_GETADDR with an nsid) and its observer told if it is another than before. So events may be
// late, doubled or lost: when the socket overflows (ENOBUFS), all watched links are read anew.
// Only the end of a link is taken from the event itself (RTM_DELLINK), since it alone says whether
// the netdev was deleted or moved; a link is known by (nsid, ifindex), so it may be renamed.
//
// Nothing is polled: without an event, there is no wake-up. Events of links that nobody watches,
// in whatever namespace, wake the monitor and are dropped.
//
// Single-threaded: all calls, and all calls of observers, are on the event loop's thread. Needs
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
#include "netns/link.h"
#include "netns/netns.h"
#include "netns/route_socket.h"

namespace vrdma::netns {

// Called from the event loop, never from inside watch_link(). A call may end any watch, also its
// own, and begin new ones.
struct LinkObserver {
  std::function<void(const Link& link)> changed;  // all of it, as it is now
  std::function<void(Gone why)> gone;             // once; nothing comes after it
};

class Monitor {
 public:
  // Move-only; the destructor ends the watch. Must not outlive the monitor.
  class LinkWatch {
   public:
    LinkWatch() = default;
    LinkWatch(LinkWatch&& other) noexcept { *this = std::move(other); }
    LinkWatch& operator=(LinkWatch&& other) noexcept;
    LinkWatch(const LinkWatch&) = delete;
    LinkWatch& operator=(const LinkWatch&) = delete;
    ~LinkWatch() { reset(); }
    void reset();
    [[nodiscard]] bool active() const { return monitor_ != nullptr; }
    // As last told to the observer, at first as it was when the watch began. Only while active.
    [[nodiscard]] const Link& link() const;

   private:
    friend class Monitor;
    Monitor* monitor_ = nullptr;
    uint64_t id_ = 0;
  };

  // In the namespace of the calling thread, on `loop`, which must outlive the monitor.
  // `receive_buffer` is that of each event socket, in bytes.
  [[nodiscard]] static base::Result<std::unique_ptr<Monitor>> create(base::EventLoop* loop,
                                                                     int receive_buffer = 4 << 20);
  ~Monitor();
  Monitor(const Monitor&) = delete;
  Monitor& operator=(const Monitor&) = delete;

  // Watches the netdev of that name. ENODEV with a sentence if there is none. What happened before
  // is in link(), what happens afterwards comes to the observer.
  [[nodiscard]] base::Result<LinkWatch> watch_link(const Netns& netns, const std::string& netdev,
                                                   LinkObserver observer);
  // The same by its index, whatever its name is now.
  [[nodiscard]] base::Result<LinkWatch> watch_link(const Netns& netns, uint32_t ifindex,
                                                   LinkObserver observer);

  // How often events were lost and all links read anew.
  [[nodiscard]] uint64_t overflows() const { return overflows_; }

 private:
  using Key = std::pair<int, uint32_t>;  // nsid, ifindex
  struct Watched {
    Key key;
    Link link;
    LinkObserver observer;
    std::optional<Gone> gone;  // to be told
    bool doubted = false;      // the nsid may mean another namespace by now
  };

  Monitor(base::EventLoop* loop, Netns own) : loop_(loop), own_(std::move(own)) {}
  base::Result<LinkWatch> watch(const Netns& netns, const std::string& netdev, uint32_t ifindex,
                                LinkObserver observer);
  void receive();
  void settle();
  void settle(uint64_t id);
  bool read_anew(uint64_t id, Watched* watched, Link* now);
  void forget(uint64_t id, Key key);
  void settle_later(base::Duration delay);
  void on_nsid_event(const nlmsghdr* message);
  void on_link_event(int nsid, nlmsghdr* message);
  void learn_own_nsid();
  void read_all_anew(bool doubt_nsids);
  template <class F>
  void for_each_of(Key first, Key last, F f);

  base::EventLoop* loop_;
  Netns own_;
  // An nsid that somebody gave our own namespace in itself: events of ours then carry it.
  int own_nsid_ = kOwnNetns;
  RouteEvents nsid_events_;
  RouteEvents link_events_;
  std::unique_ptr<RouteQueries> queries_;
  base::EventLoop::Watch nsid_watch_;
  base::EventLoop::Watch link_watch_;
  base::EventLoop::Timer later_;

  uint64_t next_id_ = 1;
  std::map<uint64_t, std::shared_ptr<Watched>> watched_;
  std::multimap<Key, uint64_t> by_key_;  // those that are not gone
  std::set<uint64_t> unsettled_;         // to be read anew, or to be told that they are gone
  uint64_t overflows_ = 0;
};

}  // namespace vrdma::netns
