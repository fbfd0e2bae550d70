// When to register a resource with the kubelet: decisions only, in the time that the caller gives.
//
// The kubelet knows a resource from the answer of Register until the plugin's stream of devices
// ends. It forgets all plugins when it restarts, which shows as another kubelet.sock, and it ends
// the stream when another instance of the plugin registers the same resource. It may also end the
// stream for no such reason: kubelet 1.36 disconnects an instance when its predecessor ends.
//
//   kAbsent     no kubelet.sock: there is no kubelet
//   kTrying     not registered; the next attempt comes, or is in progress
//   kRegistered the kubelet has accepted it and reads its devices
//   kYielding   a younger instance serves the resource. Without this rule two instances would end
//               each other's streams forever. Kubelet 1.36 leaves the older one's stream until the
//               younger one ends, and then knows neither, so the older one registers again, also
//               after an instance that it never saw listen
//
// An attempt comes at once for a new kubelet.sock or a new socket of the plugin, and after the end
// of a stream that lasted for a second, or of the first. Otherwise attempts are a second apart.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <set>
#include <string>

#include "core/base/clock.h"
#include "core/serve/unix_path.h"

namespace vrdma::cli::kubernetes {

// The other instances of the resource whose sockets are younger.
struct Younger {
  std::set<std::string> files;  // of all of them, also of those that have ended
  bool listens = false;         // one of them
};

class Registration {
 public:
  enum class State { kAbsent, kTrying, kRegistered, kYielding };
  static constexpr base::Duration kInterval = std::chrono::seconds(1);

  // Call it after each event and at next_attempt(). `endpoint`: the name of our socket; empty:
  // there is none, so nothing can be registered. True: call Register now, and then answered().
  [[nodiscard]] bool look(base::TimePoint now, const std::optional<serve::FileId>& kubelet,
                          const std::string& endpoint,
                          const std::function<Younger()>& look_for_younger);
  // `refusal`: why Register failed; empty: it succeeded.
  void answered(base::TimePoint now, const std::string& refusal);
  void stream_began(base::TimePoint now);
  void stream_ended(base::TimePoint now);

  [[nodiscard]] State state() const { return state_; }
  // In state kTrying: why.
  [[nodiscard]] const std::string& why() const { return why_; }
  // Since when the kubelet reads our devices; empty: it does not.
  [[nodiscard]] std::optional<base::TimePoint> stream_since() const;
  // In state kTrying: no attempt comes before.
  [[nodiscard]] base::TimePoint next_attempt() const { return next_; }

 private:
  void settle();

  State state_ = State::kAbsent;
  std::string why_;
  std::optional<serve::FileId> kubelet_;  // of the last attempt
  std::string endpoint_;                  // of the last attempt
  std::set<std::string> ended_;           // younger instances whose files an ended process left
  bool calling_ = false;
  bool accepted_ = false;   // the last attempt
  bool hurried_ = false;    // an attempt at once was spent on the end of a short stream
  base::TimePoint next_{};  // no attempt for the same kubelet and endpoint before
  unsigned streams_ = 0;    // a new one may begin before the old one ends
  base::TimePoint stream_since_{};
};

}  // namespace vrdma::cli::kubernetes
