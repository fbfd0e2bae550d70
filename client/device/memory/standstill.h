// Holds this process's other threads while one thread exchanges pages that all may write to.
//
// The daemon's stopper holds them (kHold, HoldWords). Meanwhile the converting thread must not take
// a lock of the program or the C library, so it neither allocates nor prints: a held thread may own
// the lock. The hold can end unexpectedly, after a time limit or because the stopper was killed.
// Therefore each exchange begins only while all threads are held. If the hold ends during it,
// writes to the old pages are carried over to the new ones.
//
// For that, the old pages are kept until the exchange is known to have finished in time: as
// references in a pipe (vmsplice(2)), and as a copy of their contents. If that call is forbidden,
// as in Podman's containers, they are moved aside, and for a moment no pages are mapped.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

#include "core/base/fd.h"
#include "core/ipc/layout.h"
#include "core/ipc/messages.h"

namespace vrdma::client {

class Session;

// The session whose daemon holds this process's other threads, and its words.
struct Asker {
  Session& session;
  ipc::HoldWords& words;
};

// Resources of an exchange besides the hold; allocated before it.
class Spare {
 public:
  static constexpr uint64_t kMost = 256u << 10;  // bytes
  // Bytes exchanged at once. If the stopper is killed during a step, other threads run before its
  // end only if the step takes longer than the death of a process.
  static constexpr uint64_t kStep = 16u << 10;

  Spare() = default;
  ~Spare();
  Spare(const Spare&) = delete;
  Spare& operator=(const Spare&) = delete;
  // False: no memory. Once true, further calls succeed.
  [[nodiscard]] bool make();
  // Closes the descriptors, which a forked child shares with its parent.
  void leave();

  // The number of bytes that may be exchanged at once.
  [[nodiscard]] uint64_t size() const { return size_; }
  [[nodiscard]] uint8_t* copy() const { return copy_; }
  // The phase with which an exchange must begin.
  [[nodiscard]] ipc::HoldPhase phase() const {
    return aside_ != nullptr ? ipc::HoldPhase::kMoving : ipc::HoldPhase::kExchanging;
  }
  // Keeps the pages of [start, start + length) until forget(); if pages are moved aside, exchange()
  // does it instead. False: none are kept.
  [[nodiscard]] bool keep(uint64_t start, uint64_t length);
  // Maps `file` at `offset` in place of the next kept pages, `most` bytes or fewer. Returns how
  // many; 0: failed, and the old pages are still in place.
  [[nodiscard]] uint64_t exchange(uint64_t at, uint64_t most, int prot, const base::Fd& file,
                                  uint64_t offset);
  // Copies the present contents of the oldest kept pages (of those moved aside, the last) into
  // `out`, and forgets them.
  [[nodiscard]] bool recall(uint8_t* out, uint64_t length);
  void forget(uint64_t length);

 private:
  [[nodiscard]] bool make_aside();
  [[nodiscard]] bool move_aside(uint64_t at, uint64_t length);

  base::Fd in_, out_, nowhere_;
  uint8_t* aside_ = nullptr;  // kStep bytes: the pages of the last exchange
  uint8_t* copy_ = nullptr;   // kMost bytes, and as many behind it for recall()
  uint64_t size_ = 0;
};

class Standstill {
 public:
  // Sends kHold to the daemon. `words` are those of the session.
  Standstill(Session& session, ipc::HoldWords& words);
  ~Standstill();  // the threads run on
  Standstill(Standstill&& other) noexcept;
  Standstill& operator=(Standstill&&) = delete;

  // kNot: the threads are held, or were a moment ago.
  [[nodiscard]] ipc::Reached reached() const { return reached_; }
  // False: the threads are no longer held; do not exchange anything.
  [[nodiscard]] bool begin_exchange(ipc::HoldPhase as);
  // False: the hold may have ended during the exchange.
  [[nodiscard]] bool end_exchange();

  // This thread runs on in the program, the others do not until ipc::kRest is over. False: they are
  // not held, or were held long enough, or the daemon does not know of rests.
  [[nodiscard]] bool rest();
  // After rest(), with signals blocked. False: the threads run, or the program has made another.
  [[nodiscard]] bool go_on();
  [[nodiscard]] bool is_of(const ipc::HoldWords& words) const { return words_ == &words; }

 private:
  [[nodiscard]] bool is_held() const;

  ipc::HoldWords* words_;
  ipc::Reached reached_ = ipc::Reached::kRefused;
  uint32_t serial_ = 0, owner_ = 0, begun_ = 0;
  uint64_t threads_ = 0;  // of the process while all others are held; 0: not known
  uint32_t rests_ = 0;
  std::chrono::steady_clock::time_point began_;
};

// To hold many threads takes far longer than a small exchange, and programs register many small
// ranges in a row. So the threads rest after a small exchange that followed another one within
// ipc::kRest. If the next comes as soon, it finds them held. If not, they were held needlessly, at
// most once in a row of exchanges.
class Holds {
 public:
  // Holds the other threads, or finds them at rest. With signals blocked. An exchange keeps the
  // Standstill on its stack: what it writes elsewhere may be in the pages that it exchanges.
  [[nodiscard]] Standstill begin(const Asker& asker);
  // The exchange is over. `may_rest`: it was small.
  void end(Standstill still, bool may_rest);
  void let_go() { resting_.reset(); }
  // The same, if the hold is of a session that ends.
  void let_go(const ipc::HoldWords& words) {
    if (resting_ && resting_->is_of(words)) resting_.reset();
  }

 private:
  std::optional<Standstill> resting_;
  std::chrono::steady_clock::time_point ended_;  // the exchange before
  bool in_a_row_ = false;
};

// `was` is a copy of the old pages, `is` their present contents. Applies the difference to `now`,
// except for bytes that other threads have changed there meanwhile. `length` is a multiple of a
// word.
void carry_over(const uint8_t* was, const uint8_t* is, uint8_t* now, uint64_t length);

}  // namespace vrdma::client
