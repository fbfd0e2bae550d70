// Where an executor looks keys up.
//
// A program reads the table in the owner's queue arena, and may remember the last entry: it works
// on its own memory and on that of peers which trust it. A worker reads what the daemon recorded,
// so that it touches no memory outside the regions that were registered, whatever the table says.
#pragma once

#include "core/rdma/key_record.h"
#include "core/rdma/key_table.h"

namespace vrdma::rdma {

class Keys {
 public:
  Keys() = default;
  explicit Keys(const ipc::KeyEntry* table) : table_(table) {}
  explicit Keys(const KeyRecord& record) : record_(&record) {}

  [[nodiscard]] const ipc::KeyEntry* table() const { return table_; }  // nullptr: a record
  // Look-ups of one user of the table go by `known` from now on.
  void remember(KnownRegion* known) { known_ = known; }

  // The region that `key` names now, or nullptr. It may be copied to `room`.
  [[nodiscard]] const Region* find(uint32_t key, Region* room) const {
    if (known_ != nullptr) return known_->find(table_, key);
    if (record_ != nullptr) return record_->find(key);
    return find_region(table_, key, room) ? room : nullptr;
  }

 private:
  const ipc::KeyEntry* table_ = nullptr;
  KnownRegion* known_ = nullptr;
  const KeyRecord* record_ = nullptr;
};

}  // namespace vrdma::rdma
