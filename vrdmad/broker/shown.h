// The descriptors that came beside a message, as the intake judged them.
#pragma once

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
  // The only one; nullptr: there is none, or there are more.
  [[nodiscard]] const intake::Verdict* only() const {
    return received_.report.count == 1 ? &received_.report.verdicts[0] : nullptr;
  }
  // The first descriptor, if it is a memory file that is sealed as ours, once it is known to be one
  // of ours.
  [[nodiscard]] base::Fd take_memory() { return std::move(received_.passed.front()); }

 private:
  // Memory of a tenant may take long to free.
  void give_back() {
    for (base::Fd& fd : received_.passed) account_->intake()->close(account_, std::move(fd));
    received_.passed.clear();
  }
  Intake::AccountRef account_;
  Intake::Received received_;
};

}  // namespace vrdma::vrdmad
