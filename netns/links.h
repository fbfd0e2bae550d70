// Watches of links in any number of network namespaces: of the kernel's (monitor.h), or of a
// test's.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "core/base/error.h"
#include "netns/link.h"
#include "netns/netns.h"

namespace vrdma::netns {

// Called from the event loop, never from inside watch_link(). An observer may end any watch,
// including its own, and start new ones.
struct LinkObserver {
  std::function<void(const Link& link)> changed;  // the complete new state
  std::function<void(Gone why)> gone;             // called once, as the last call
};

// All calls, and those of observers, are on the event loop's thread.
class Links {
 public:
  // Move-only; the destructor ends the watch. Must not outlive the Links.
  class LinkWatch {
   public:
    // Of who watches: its destructor ends the watch.
    struct Held {
      virtual ~Held() = default;
      [[nodiscard]] virtual const Link& link() const = 0;
    };
    LinkWatch() = default;
    explicit LinkWatch(std::unique_ptr<Held> held) : held_(std::move(held)) {}
    void reset() { held_.reset(); }
    [[nodiscard]] bool active() const { return held_ != nullptr; }
    // The state that the observer was last told, or the initial one. Call only while active().
    [[nodiscard]] const Link& link() const { return held_->link(); }

   private:
    std::unique_ptr<Held> held_;
  };

  Links() = default;
  virtual ~Links() = default;
  Links(const Links&) = delete;
  Links& operator=(const Links&) = delete;

  // Watches the netdev of that name. ENODEV if there is none. link() returns the initial state; the
  // observer receives all later changes. The caller may close `netns` afterwards.
  [[nodiscard]] virtual base::Result<LinkWatch> watch_link(const Netns& netns,
                                                           const std::string& netdev,
                                                           LinkObserver observer) = 0;
  // The same by index, independent of the name.
  [[nodiscard]] virtual base::Result<LinkWatch> watch_link(const Netns& netns, uint32_t ifindex,
                                                           LinkObserver observer) = 0;
  // Calls `changed` after a link or an address of the namespace may have changed, until the
  // returned token is destroyed; once for several events. Needs no netdev there. The token must not
  // outlive the Links.
  [[nodiscard]] virtual base::Result<std::shared_ptr<void>> watch_netns(
      const Netns& netns, std::function<void()> changed) = 0;
};

}  // namespace vrdma::netns
