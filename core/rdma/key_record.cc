#include "core/rdma/key_record.h"

#include "core/base/random.h"

namespace vrdma::rdma {

KeyRecord::Entry& KeyRecord::open(uint32_t slot) {
  const uint32_t number = slot / kPageSlots;
  std::unique_ptr<Group>& group = groups_[number / kGroupPages];
  if (group == nullptr) group = std::make_unique<Group>();
  std::unique_ptr<Page>& page = (*group)[number % kGroupPages];
  if (page == nullptr) {
    page = std::make_unique<Page>();
    pages_.push_back(number);
  }
  return (*page)[slot % kPageSlots];
}

void KeyRecord::open_random_page() {
  const size_t before = pages_.size();
  while (pages_.size() == before) (void)open(base::random_below(kPages) * kPageSlots);
}

uint32_t KeyRecord::random_free_slot() {
  if (2 * taken_ >= pages_.size() * kPageSlots && pages_.size() < kPages) open_random_page();
  // Half of the slots are free, unless the session has most of all keys; then the next free one.
  constexpr int kAttempts = 64;
  uint32_t slot = 0;
  for (int i = 0; i < kAttempts; ++i) {
    slot = pages_[base::random_below(static_cast<uint32_t>(pages_.size()))] * kPageSlots +
           base::random_below(kPageSlots);
    if (slot != 0 && !at(slot)->taken) return slot;
  }
  for (;; slot = (slot + 1) % ipc::kMaxKeys)
    if (slot != 0 && !open(slot).taken) return slot;
}

uint32_t KeyRecord::take(Object object) {
  if (taken_ + 1 >= ipc::kMaxKeys) return 0;
  const uint32_t slot = random_free_slot();
  Entry& entry = open(slot);
  uint32_t key = 0;
  do key = ipc::key_of(slot, base::random32());
  while (key == entry.key);  // the last holder's key stays invalid
  (void)take(object, key);
  return key;
}

bool KeyRecord::take(Object object, uint32_t wanted) {
  const uint32_t slot = ipc::slot_of(wanted);
  if (slot == 0) return false;
  Entry& entry = open(slot);
  if (entry.taken) return false;
  entry = {wanted, true, false, object, {}};
  ++taken_;
  return true;
}

void KeyRecord::give_back(uint32_t key) {
  Entry& entry = open(ipc::slot_of(key));
  if (entry.taken) --taken_;
  entry.taken = entry.names = false;
  entry.object = {};
}

KeyRecord::Object KeyRecord::object(uint32_t key) const {
  const Entry* entry = at(ipc::slot_of(key));
  return entry != nullptr ? entry->object : Object{};
}

void KeyRecord::set(uint32_t key, const Region* region) {
  Entry& entry = open(ipc::slot_of(key));
  entry.names = region != nullptr;
  if (region == nullptr) return;
  entry.key = key;
  entry.region = *region;
}

}  // namespace vrdma::rdma
