// The command `vrdmactl wait`.
//
// The daemon subscribes the watch before it says that the watch has begun. What it answers from
// then on is thus followed by every later change, and nothing is missed between answer and event.
// The daemon resolves the names, again at each change that may matter.
#include <chrono>
#include <map>
#include <optional>
#include <utility>

#include "api/client.h"
#include "cli/commands.h"
#include "cli/connect.h"
#include "core/base/printable.h"

namespace vrdma::cli {

namespace {

class Waiting {
 public:
  Waiting(api::Client& client, const std::vector<std::string>& names, bool for_active)
      : client_(client), for_active_(for_active) {
    for (const auto& name : names) pending_.push_back({name});
  }

  void begin() {
    if (auto all = client_.list_vdevs()) {
      for (const auto& vdev : *all) states_[vdev.id()] = vdev.port_state();
    } else {
      failure_ = all.error();
    }
    look();
    if (is_over()) client_.end_watch();
  }
  // Whether to wait on.
  bool on_event(const v1::WatchEvent& event) {
    const auto& vdev = event.vdev();
    if (event.type() == v1::WatchEvent::REMOVED) {
      states_.erase(vdev.id());
      if (!for_active_)
        std::erase_if(pending_, [&](const Pending& one) { return one.id == vdev.id(); });
      else
        look();
    } else {
      const std::string before = std::exchange(states_[vdev.id()], vdev.port_state());
      // The watch begins with all that there are, which begin() has seen.
      const bool is_news = event.type() != v1::WatchEvent::ADDED || before != vdev.port_state();
      if (for_active_ && is_news) look();
    }
    return !is_over();
  }

  [[nodiscard]] bool is_over() const { return failure_ || pending_.empty(); }
  [[nodiscard]] const std::optional<base::Error>& failure() const { return failure_; }
  // "vdevice 'a' is DOWN; vdevice 'b' does not exist"
  [[nodiscard]] std::string still() const {
    std::string text;
    for (const auto& one : pending_)
      text += (text.empty() ? "vdevice '" : "; vdevice '") + base::printable(one.name) + "' " +
              (one.state.empty() ? "does not exist" : "is " + one.state);
    return text;
  }

 private:
  struct Pending {
    std::string name, state = {};  // state empty: it does not exist
    uint64_t id = 0;               // of the vdevice whose end is waited for
  };

  // Asks for the vdevices that are waited for.
  void look() {
    std::erase_if(pending_, [this](Pending& one) {
      if (failure_) return false;
      const auto vdev = client_.get_vdev(one.name);
      if (!vdev && vdev.error().code() != ENOENT) failure_ = vdev.error();
      if (!vdev) {
        one.state = "";
        return !failure_ && !for_active_;
      }
      one.state = vdev->port_state();
      one.id = vdev->id();
      return for_active_ && one.state == "ACTIVE";
    });
  }

  api::Client& client_;
  const bool for_active_;
  std::vector<Pending> pending_;
  std::map<uint64_t, std::string> states_;
  std::optional<base::Error> failure_;
};

}  // namespace

Outcome wait(const Options& options, Output&) {
  return with_client(options, [&](api::Client& client) -> Outcome {
    Waiting waiting(client, options.names, options.wait_for == "active");
    api::Client::Deadline deadline;
    if (options.timeout)
      deadline = std::chrono::system_clock::now() +
                 std::chrono::duration_cast<std::chrono::system_clock::duration>(
                     std::chrono::duration<double>(*options.timeout));
    const auto watched =
        client.watch_vdevs([&](const v1::WatchEvent& event) { return waiting.on_event(event); },
                           [&] { waiting.begin(); }, deadline);
    if (waiting.failure()) return base::pass(*waiting.failure());
    if (waiting.is_over()) return {};
    if (!watched && watched.error().code() == ETIMEDOUT)
      return base::fail(ETIMEDOUT, "the time is over: " + waiting.still());
    return watched;
  });
}

}  // namespace vrdma::cli
