#include "tests/sim/links.h"

#include <vector>

namespace vrdma::sim {

using base::fail;
using base::Result;
using netns::Link;

class SimLinks::Held final : public LinkWatch::Held {
 public:
  Held(std::shared_ptr<All> all, uint64_t id) : all_(std::move(all)), id_(id) {}
  ~Held() override { all_->erase(id_); }
  [[nodiscard]] const Link& link() const override { return all_->at(id_)->told; }

 private:
  const std::shared_ptr<All> all_;
  const uint64_t id_;
};

Result<SimLinks::LinkWatch> SimLinks::watch_link(const netns::Netns& netns,
                                                 const std::string& netdev,
                                                 netns::LinkObserver observer) {
  if (const Namespace* const its = host_.of_cookie(netns.cookie))
    for (const auto& [ifindex, link] : its->links)
      if (link.name == netdev) return watch(link, std::move(observer));
  return fail(ENODEV, "there is no netdev '" + netdev + "'");
}

Result<SimLinks::LinkWatch> SimLinks::watch_link(const netns::Netns& netns, uint32_t ifindex,
                                                 netns::LinkObserver observer) {
  if (const Link* const link = host_.find_link(netns.cookie, ifindex))
    return watch(*link, std::move(observer));
  return fail(ENODEV, "there is no netdev with the index " + std::to_string(ifindex));
}

// Which namespace has changed is not looked at: an observer finds out.
Result<std::shared_ptr<void>> SimLinks::watch_netns(const netns::Netns& /*netns*/,
                                                    std::function<void()> changed) {
  const uint64_t id = next_++;
  namespaces_->emplace(id, std::move(changed));
  return std::make_shared<HeldNetns>(namespaces_, id);
}

SimLinks::LinkWatch SimLinks::watch(const Link& link, netns::LinkObserver observer) {
  const uint64_t id = next_++;
  watched_->emplace(id, std::make_shared<Watched>(Watched{link, std::move(observer)}));
  return LinkWatch(std::make_unique<Held>(watched_, id));
}

void SimLinks::settle_soon() {
  *unsettled_ = true;
  host_.after(host_.chance.up_to(std::chrono::milliseconds(20)),
              [&host = host_, all = std::weak_ptr(watched_), of_netns = std::weak_ptr(namespaces_),
               unsettled = unsettled_] {
                *unsettled = false;
                if (const auto living = all.lock()) settle(host, *living);
                if (const auto living = of_netns.lock()) tell(*living);
              });
}

void SimLinks::tell(const OfNetns& all) {
  std::vector<std::function<void()>> calls;
  for (const auto& [id, changed] : all) calls.push_back(changed);
  for (const auto& call : calls) call();
}

void SimLinks::settle(Host& host, All& all) {
  std::vector<uint64_t> ids;
  for (const auto& [id, one] : all) ids.push_back(id);
  for (const uint64_t id : ids) {
    const auto found = all.find(id);
    if (found == all.end() || found->second->gone) continue;
    const auto one = found->second;  // the observer may end the watch
    if (const Link* const now = host.find_link(one->told.netns_cookie, one->told.ifindex)) {
      if (*now == one->told) continue;
      one->told = *now;
      one->observer.changed(one->told);
    } else {
      one->gone = true;
      one->observer.gone(host.of_cookie(one->told.netns_cookie) != nullptr ? netns::Gone::kDeleted
                                                                           : netns::Gone::kNetns);
    }
  }
}

}  // namespace vrdma::sim
