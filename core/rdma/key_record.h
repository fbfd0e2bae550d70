// The keys of one session as the daemon recorded them: which memory each names, and which object
// holds it.
//
// A worker looks keys up here and nowhere else. The table in the queue arena (key_table.h) says the
// same to programs, but its owner can write it. A record is changed and read by one thread.
//
// Keys are unpredictable: tag and slot come from base/random.h. The slots of a session lie in a few
// pages of its table, chosen at random, so that the table stays sparse: half of the slots of these
// pages are free on average, and a new page is opened when more than half are taken. Who knows no
// key of a session has to guess 32 bits; who knows one, and so a page, 12 bits of tag for each of
// the 64 slots.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/ipc/layout.h"
#include "core/rdma/key_table.h"

namespace vrdma::rdma {

struct Mr;
struct Mw;

class KeyRecord {
 public:
  struct Object {  // what holds a slot: one of the two
    Mr* mr = nullptr;
    Mw* mw = nullptr;
  };

  // A new key for `object`; 0: all slots are taken.
  [[nodiscard]] uint32_t take(Object object);
  // The key `wanted`. False: its slot is taken.
  [[nodiscard]] bool take(Object object, uint32_t wanted);
  // Gives a key's slot back, whatever tag the key has now.
  void give_back(uint32_t key);

  // The object that holds the slot of `key`, which may have another tag now; empty if none does.
  [[nodiscard]] Object object(uint32_t key) const;

  // `key` names `region` from now on; nullptr: it names nothing, and keeps its slot.
  void set(uint32_t key, const Region* region);

  // The region that `key` names, or nullptr. Good until the key is set or given back.
  [[nodiscard]] const Region* find(uint32_t key) const {
    const Entry* entry = at(ipc::slot_of(key));
    return entry != nullptr && entry->names && entry->key == key ? &entry->region : nullptr;
  }

 private:
  struct Entry {
    uint32_t key = 0;  // also the last one that the slot had
    bool taken = false;
    bool names = false;  // `key` names `region`
    Object object;
    Region region;
  };
  // A page of the table, and the pages of a part of it.
  static constexpr uint32_t kPageSlots = 4096 / sizeof(ipc::KeyEntry);
  static constexpr uint32_t kPages = ipc::kMaxKeys / kPageSlots;
  static constexpr uint32_t kGroupPages = 128;
  using Page = std::array<Entry, kPageSlots>;
  using Group = std::array<std::unique_ptr<Page>, kGroupPages>;

  // nullptr if the slot's page was never opened.
  [[nodiscard]] const Entry* at(uint32_t slot) const {
    const uint32_t page = slot / kPageSlots;
    const Group* group = groups_[page / kGroupPages].get();
    if (group == nullptr) return nullptr;
    const Page* entries = (*group)[page % kGroupPages].get();
    return entries != nullptr ? &(*entries)[slot % kPageSlots] : nullptr;
  }
  Entry& open(uint32_t slot);
  void open_random_page();
  [[nodiscard]] uint32_t random_free_slot();

  std::array<std::unique_ptr<Group>, kPages / kGroupPages> groups_;
  std::vector<uint32_t> pages_;  // that are open; they stay so
  uint32_t taken_ = 0;           // slots
};

}  // namespace vrdma::rdma
