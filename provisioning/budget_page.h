// What the processes of the daemon share of one budget: ceilings, use, and parts of its rates.
//
// Control makes the page (base::SharedPage) and hands it to each worker that has a vdevice of the
// budget. Each process has a slot: control slot 0, a worker the slot that control chose for it.
// Each word has one writer: the process of a slot writes its use and what it asks for, control
// writes all else.
//
// A worker that was taken over can write any word of the page. Then the ceilings and capacities of
// this budget bind no other worker any more, or other workers are refused what is free. It cannot
// reach another budget, nor the limits of a vdevice, which each worker keeps for itself. What is
// read is bounded: a sum stops at UINT64_MAX instead of starting again at zero.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "core/base/event_loop.h"
#include "provisioning/kind.h"

namespace vrdma::provisioning {

// Control, 1,024 worker processes, and processes that replace others while these end.
constexpr size_t kBudgetSlots = 1152;
constexpr size_t kControlSlot = 0;

// Rates that are divided among the vdevices with work, per second: bytes, messages, and nanoseconds
// of processor time.
enum class Rate : uint8_t { kBandwidth, kMessages, kCpu };
constexpr size_t kRateCount = 3;
constexpr uint64_t kUnbounded = 0;  // a capacity or a most
// How long rates are used until they are computed again.
constexpr auto kPeriod = std::chrono::milliseconds(10);

// As the page has it.
[[nodiscard]] inline uint64_t nanoseconds(base::TimePoint time) {
  return static_cast<uint64_t>(base::Duration(time.time_since_epoch()).count());
}

// Its constructor writes nothing, so that the slots that no process uses occupy no memory: a new
// memory file consists of zeros.
class Word {
 public:
  Word() = default;
  [[nodiscard]] uint64_t get(std::memory_order order = std::memory_order_seq_cst) const {
    return std::atomic_ref(value_).load(order);
  }
  void set(uint64_t value, std::memory_order order = std::memory_order_seq_cst) {
    std::atomic_ref(value_).store(value, order);
  }

 private:
  mutable uint64_t value_;
};
static_assert(std::is_trivially_default_constructible_v<Word> &&
              std::atomic_ref<uint64_t>::is_always_lock_free);

// Needs memory of zeros, as that of a new memory file.
struct BudgetPage {
  // Written by the process of the slot.
  struct Asked {
    Word at;  // nanoseconds of the clock: when the process asked last; 0: never
    Word used;
    Word eager;    // not 0: it would have used more
    Word members;  // vdevices with work
    Word most;     // what these may use together, or kUnbounded
  };
  // Written by control.
  struct Granted {
    Word rate;
    Word until;  // nanoseconds of the clock; 0: nothing is granted
    Word least;  // what its vdevices are guaranteed
  };
  struct alignas(64) Slot {
    std::array<Word, kKindCount> used;
    std::array<Asked, kRateCount> asked;
    alignas(64) std::array<Granted, kRateCount> granted;
  };

  BudgetPage() {
    for (Word& ceiling : ceilings) ceiling.set(kCeiling);
  }

  // Written by control.
  std::array<Word, kKindCount> ceilings;  // kCeiling: none
  std::array<Word, kRateCount> capacities;
  Word high;  // no slot from this one on was ever used
  std::array<Slot, kBudgetSlots> slots;
};
static_assert(std::is_standard_layout_v<BudgetPage>);

}  // namespace vrdma::provisioning
