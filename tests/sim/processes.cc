#include "tests/sim/processes.h"

#include <utility>
#include <vector>

namespace vrdma::sim {

using base::fail;
using base::Result;
using vrdmad::Owner;

class SimProcesses::Held final : public Processes::Watch {
 public:
  Held(std::shared_ptr<All> all, uint64_t id) : all_(std::move(all)), id_(id) {}
  ~Held() override { all_->erase(id_); }

 private:
  const std::shared_ptr<All> all_;
  const uint64_t id_;
};

Result<Owner> SimProcesses::identify(const Owner& said) {
  const auto found = host_.processes.find(said.pid);
  if (found == host_.processes.end())
    return fail(ESRCH, "there is no process " + std::to_string(said.pid));
  return Owner{said.pid, found->second.start_time, host_.boot_id};
}

Result<std::unique_ptr<SimProcesses::Watch>> SimProcesses::watch(const Owner& owner,
                                                                 std::function<void()> ended) {
  const auto found = host_.processes.find(owner.pid);
  if (found == host_.processes.end() || found->second.start_time != owner.start_time ||
      owner.boot_id != host_.boot_id)
    return fail(ESRCH, "process " + std::to_string(owner.pid) + " has ended");
  const uint64_t id = next_++;
  watched_->emplace(id, Watched{owner.pid, std::move(ended)});
  return std::make_unique<Held>(watched_, id);
}

// All of a namespace are up and have routes, if they have addresses; the first has the default one.
Result<netns::RoutedNetdevs> SimProcesses::netdevs(pid_t pid) const {
  const auto found = host_.processes.find(static_cast<uint32_t>(pid));
  if (found == host_.processes.end())
    return fail(ESRCH, "process " + std::to_string(pid) + " has ended");
  return host_.routed(found->second.netns);
}

void SimProcesses::tell_soon(uint32_t pid) {
  ++*untold_;
  host_.after(host_.chance.up_to(std::chrono::milliseconds(20)),
              [pid, all = std::weak_ptr(watched_), untold = untold_] {
                --*untold;
                const auto living = all.lock();
                if (living == nullptr) return;
                std::vector<std::function<void()>> calls;
                for (const auto& [id, one] : *living)
                  if (one.pid == pid) calls.push_back(one.ended);
                for (const auto& call : calls) call();
              });
}

void SimAside::run(std::function<void()> work) {
  *works_ = true;
  host_.after(host_.chance.up_to(std::chrono::milliseconds(20)),
              [weak = std::weak_ptr(works_), work = std::move(work)] {
                const auto works = weak.lock();
                if (works == nullptr) return;
                *works = false;
                work();
              });
}

}  // namespace vrdma::sim
