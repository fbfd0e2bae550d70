// Queue pair numbers. Vdevices of one network namespace may have the same address, in different
// fabrics; the UDP port of that address then tells their packets apart by the number alone. So no
// two queue pairs of a namespace have the same number, whatever their addresses are and become.
//
// Any thread: the vdevices of a namespace may be on several workers, and who stamps connection
// messages asks whether a number is a vdevice's.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "core/base/unique_numbers.h"
#include "core/verbs/types.h"

namespace vrdma::rdma {

// 0 and 1 are the special queue pairs, the last one names multicast (IBTA 9.2.1, 10.5.2).
[[nodiscard]] constexpr bool is_special_qpn(uint32_t qpn) {
  return qpn < 2 || qpn == verbs::kMulticastQpn;
}

class QpNumbers;

// The numbers of a namespace.
class QpNumberSpace {
 public:
  // With `most` numbers in use, there is no room for more. By default that is half of all: a free
  // one is found soon.
  explicit QpNumberSpace(size_t most = 1u << 23) : most_(most) {}

 private:
  friend class QpNumbers;
  const size_t most_;
  std::mutex mutex_;
  base::UniqueNumbers new_{24};
  std::unordered_multimap<uint32_t, const QpNumbers*> owners_;
};

// Those of a vdevice.
class QpNumbers {
 public:
  explicit QpNumbers(std::shared_ptr<QpNumberSpace> space = std::make_shared<QpNumberSpace>())
      : space_(std::move(space)) {}
  QpNumbers(const QpNumbers&) = delete;
  QpNumbers& operator=(const QpNumbers&) = delete;
  ~QpNumbers() {
    const std::lock_guard lock(space_->mutex_);
    std::erase_if(space_->owners_, [this](const auto& entry) { return entry.second == this; });
  }

  // Whether take() may be called.
  [[nodiscard]] bool has_room() const {
    const std::lock_guard lock(space_->mutex_);
    return space_->owners_.size() < space_->most_;
  }
  // One that nobody in the namespace has, that those before do not tell, and that is given again
  // only after all others.
  [[nodiscard]] uint32_t take() {
    const std::lock_guard lock(space_->mutex_);
    uint32_t qpn = 0;
    do {
      qpn = space_->new_.next();
    } while (is_special_qpn(qpn) || space_->owners_.contains(qpn));
    space_->owners_.emplace(qpn, this);
    return qpn;
  }
  // The number of a queue pair that another daemon made, which its peers know. An older daemon may
  // have given it to another vdevice of the namespace too.
  void keep(uint32_t qpn) {
    const std::lock_guard lock(space_->mutex_);
    space_->owners_.emplace(qpn, this);
  }
  void remove(uint32_t qpn) {
    const std::lock_guard lock(space_->mutex_);
    const auto [begin, end] = space_->owners_.equal_range(qpn);
    const auto own =
        std::find_if(begin, end, [this](const auto& entry) { return entry.second == this; });
    if (own != end) space_->owners_.erase(own);
  }
  [[nodiscard]] bool contains(uint32_t qpn) const {
    const std::lock_guard lock(space_->mutex_);
    const auto [begin, end] = space_->owners_.equal_range(qpn);
    return std::any_of(begin, end, [this](const auto& entry) { return entry.second == this; });
  }

 private:
  const std::shared_ptr<QpNumberSpace> space_;
};

}  // namespace vrdma::rdma
