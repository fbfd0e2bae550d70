// The descriptors that came beside a message, as the intake process judged them.
#pragma once

#include <span>
#include <utility>

#include "vrdmad/broker/intake.h"

namespace vrdma::vrdmad {

class Shown {
 public:
  Shown() = default;
  Shown(Intake::AccountRef account, Intake::Received received)
      : account_(std::move(account)), received_(std::move(received)) {}
  Shown(Shown&& other) noexcept = default;
  Shown& operator=(Shown&& other) noexcept {
    give_back();
    account_ = std::move(other.account_);
    received_ = std::move(other.received_);
    other.received_ = {};
    return *this;
  }
  ~Shown() { give_back(); }

  [[nodiscard]] bool empty() const { return received_.report.count == 0; }
  // The verdict on the only descriptor; nullptr: there is none or more than one.
  [[nodiscard]] const intake::Verdict* only() const {
    return received_.report.count == 1 ? &received_.report.verdicts[0] : nullptr;
  }
  // Of memory files that were passed, and nothing else: their verdicts, and the descriptors in the
  // same order. Empty: something else is among them, or was lost.
  struct Memory {
    std::span<const intake::Verdict> verdicts;
    std::span<const base::Fd> files;
  };
  [[nodiscard]] Memory all_memory() const {
    const size_t count = received_.report.count;
    if (count != received_.passed.size() || count > intake::kMostVerdicts) return {};
    return {{received_.report.verdicts.data(), count}, received_.passed};
  }
  // The first descriptor. Call only if its verdict identifies it as a memfd that the daemon made.
  [[nodiscard]] base::Fd take_memory() { return std::move(received_.passed.front()); }

 private:
  // The intake closes them, because freeing a tenant's memory may take long.
  void give_back() {
    for (base::Fd& fd : received_.passed) account_->intake()->close(account_, std::move(fd));
    received_.passed.clear();
  }
  Intake::AccountRef account_;
  Intake::Received received_;
};

}  // namespace vrdma::vrdmad
