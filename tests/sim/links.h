// Watches of the simulated host's links: an observer hears of a change a moment later, and then of
// all that has changed meanwhile, as of netns::Monitor.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>

#include "netns/links.h"
#include "tests/sim/host.h"

namespace vrdma::sim {

class SimLinks final : public netns::Links {
 public:
  explicit SimLinks(Host& host) : host_(host) {
    host_.links_changed = [this] { settle_soon(); };
  }
  ~SimLinks() override {
    host_.links_changed = [] {};
  }

  [[nodiscard]] base::Result<LinkWatch> watch_link(const netns::Netns& netns,
                                                   const std::string& netdev,
                                                   netns::LinkObserver observer) override;
  [[nodiscard]] base::Result<LinkWatch> watch_link(const netns::Netns& netns, uint32_t ifindex,
                                                   netns::LinkObserver observer) override;
  [[nodiscard]] base::Result<std::shared_ptr<void>> watch_netns(
      const netns::Netns& netns, std::function<void()> changed) override;

  [[nodiscard]] size_t watches() const { return watched_->size(); }  // of links
  [[nodiscard]] bool settled() const { return !*unsettled_; }

 private:
  struct Watched {
    netns::Link told;
    netns::LinkObserver observer;
    bool gone = false;
  };
  using All = std::map<uint64_t, std::shared_ptr<Watched>>;
  using OfNetns = std::map<uint64_t, std::function<void()>>;
  class Held;
  struct HeldNetns {
    HeldNetns(std::shared_ptr<OfNetns> of, uint64_t number) : all(std::move(of)), id(number) {}
    ~HeldNetns() { all->erase(id); }
    HeldNetns(const HeldNetns&) = delete;
    HeldNetns& operator=(const HeldNetns&) = delete;
    const std::shared_ptr<OfNetns> all;
    const uint64_t id;
  };

  [[nodiscard]] LinkWatch watch(const netns::Link& link, netns::LinkObserver observer);
  void settle_soon();
  static void settle(Host& host, All& all);
  static void tell(const OfNetns& all);

  Host& host_;
  uint64_t next_ = 1;
  // What the agenda holds may run when this is gone.
  std::shared_ptr<All> watched_ = std::make_shared<All>();
  std::shared_ptr<OfNetns> namespaces_ = std::make_shared<OfNetns>();
  std::shared_ptr<bool> unsettled_ = std::make_shared<bool>(false);
};

}  // namespace vrdma::sim
