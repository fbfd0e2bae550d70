// Queue pair numbers. Vdevices of one network namespace may have the same address, in different
// fabrics; the UDP port of that address then tells their packets apart by the number alone. So no
// two queue pairs that a worker has in a namespace have the same number, whatever their addresses
// are and become. Vdevices of a namespace whose fabrics are on two workers may get equal numbers,
// by chance: each worker begins its own space anywhere (base/unique_numbers.h).
//
// All of it belongs to the worker's thread. Control reads the table (qp_number_table.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "core/base/unique_numbers.h"
#include "core/rdma/qp_number_table.h"
#include "core/verbs/types.h"

namespace vrdma::rdma {

// The numbers of a namespace.
class QpNumberSpace {
 public:
  // With `most` numbers in use, there is no room for more. By default that is half of all: a free
  // one is found soon.
  explicit QpNumberSpace(size_t most = 1u << 23) : most_(most) {}

 private:
  friend class QpNumbers;
  const size_t most_;
  base::UniqueNumbers new_{24};
  std::unordered_multiset<uint32_t> used_;
};

// The spaces of a worker.
class QpNumberSpaces {
 public:
  // `netns`: the namespace's cookie. A space lasts as long as a vdevice has it.
  [[nodiscard]] std::shared_ptr<QpNumberSpace> of(uint64_t netns) {
    std::erase_if(spaces_, [](const auto& entry) { return entry.second.expired(); });
    auto& known = spaces_[netns];
    auto space = known.lock();
    if (space == nullptr) known = space = std::make_shared<QpNumberSpace>();
    return space;
  }

 private:
  std::map<uint64_t, std::weak_ptr<QpNumberSpace>> spaces_;
};

// Those of a vdevice.
class QpNumbers {
 public:
  // `table`: empty, and written by this object alone; nullptr: nothing reads the numbers.
  explicit QpNumbers(std::shared_ptr<QpNumberSpace> space = std::make_shared<QpNumberSpace>(),
                     std::shared_ptr<QpNumberTable> table = nullptr)
      : space_(std::move(space)), table_(std::move(table)) {}
  QpNumbers(const QpNumbers&) = delete;
  QpNumbers& operator=(const QpNumbers&) = delete;
  ~QpNumbers() {
    for (const auto& [qpn, slot] : slots_) space_->used_.erase(space_->used_.find(qpn));
    if (table_ != nullptr) table_->clear();
  }

  // Whether take() may be called.
  [[nodiscard]] bool has_room() const {
    return space_->used_.size() < space_->most_ && slots_.size() < QpNumberTable::kCapacity;
  }
  // One that no vdevice in the space has, that those before do not tell, and that is given again
  // only after all others.
  [[nodiscard]] uint32_t take() {
    uint32_t qpn = 0;
    do {
      qpn = space_->new_.next();
    } while (is_special_qpn(qpn) || space_->used_.contains(qpn));
    add(qpn);
    return qpn;
  }
  // The number of a queue pair that another daemon made, which its peers know. An older daemon may
  // have given it to another vdevice of the namespace too. False: it is no number of 24 bits that
  // take() could return, the vdevice has it already, or the table is full.
  [[nodiscard]] bool keep(uint32_t qpn) {
    if (qpn > verbs::kQpnMask || is_special_qpn(qpn) || slots_.contains(qpn) ||
        slots_.size() >= QpNumberTable::kCapacity)
      return false;
    add(qpn);
    return true;
  }
  void remove(uint32_t qpn) {
    const auto its = slots_.find(qpn);
    if (its == slots_.end()) return;
    space_->used_.erase(space_->used_.find(qpn));
    free_.insert(its->second);
    write(its->second, 0);
    slots_.erase(its);
    const uint32_t before = end_;
    while (end_ > 0 && free_.erase(end_ - 1) > 0) --end_;
    if (end_ != before) write_end();
  }

 private:
  // The lowest free slot, so that control has few to look at. A slot is written before the table
  // ends behind it: what an earlier worker left there is never read.
  void add(uint32_t qpn) {
    space_->used_.insert(qpn);
    const bool grows = free_.empty();
    const uint32_t slot = grows ? end_++ : free_.extract(free_.begin()).value();
    slots_.emplace(qpn, slot);
    write(slot, qpn);
    if (grows) write_end();
  }
  void write(uint32_t slot, uint32_t qpn) {
    if (table_ != nullptr) table_->slot(slot).store(qpn, std::memory_order_relaxed);
  }
  void write_end() {
    if (table_ != nullptr) table_->end().store(end_, std::memory_order_release);
  }

  const std::shared_ptr<QpNumberSpace> space_;
  const std::shared_ptr<QpNumberTable> table_;
  std::unordered_map<uint32_t, uint32_t> slots_;  // by number
  std::set<uint32_t> free_;                       // slots below end_
  uint32_t end_ = 0;
};

}  // namespace vrdma::rdma
