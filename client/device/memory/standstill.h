// This process's other threads stand still, while one of them exchanges pages that all write to.
//
// The daemon's stopper holds them (kHold, HoldWords). While it does, the holding thread may take no
// lock of the program or of the C library, and so neither allocate nor print: the owner of the lock
// may stand still. The hold can end by itself: after a time, or because the stopper was killed. So
// each exchange of pages is a Switch: it is begun only while all are held, and what was written to
// the old pages nevertheless, when the hold ended in its middle, is carried over to the new ones.
//
// For that, the old pages are kept until the exchange is known to have been in time: as references
// in a pipe (vmsplice(2)), and as a copy of what was taken from them. Where that call is forbidden,
// as in Podman's containers, they are moved aside instead, and for a moment there are none.
#pragma once

#include <cstdint>

#include "core/base/fd.h"
#include "core/ipc/layout.h"
#include "core/ipc/messages.h"

namespace vrdma::client {

class Session;

// What an exchange needs besides the hold; made before it.
class Spare {
 public:
  static constexpr uint64_t kMost = 256u << 10;  // bytes
  // What is exchanged at once. If the hold ends in the middle of that, because its keeper was
  // killed, others run before it is over only if it takes longer than a process takes to die.
  static constexpr uint64_t kStep = 16u << 10;

  Spare() = default;
  ~Spare();
  Spare(const Spare&) = delete;
  Spare& operator=(const Spare&) = delete;
  // False: there is no room. Once it was true, it stays so.
  [[nodiscard]] bool make();
  // Closes the descriptors, which a forked child has in common with its parent.
  void leave();

  // So many bytes may be exchanged at once.
  [[nodiscard]] uint64_t size() const { return size_; }
  [[nodiscard]] uint8_t* copy() const { return copy_; }
  // What an exchange is to be begun as.
  [[nodiscard]] ipc::HoldPhase phase() const {
    return aside_ != nullptr ? ipc::HoldPhase::kMoving : ipc::HoldPhase::kExchanging;
  }
  // Keeps the pages of [start, start + length) until forget(), or takes note that exchange() will.
  // False: it has kept none.
  [[nodiscard]] bool keep(uint64_t start, uint64_t length);
  // Maps `file` at `offset` in the place of the next pages that were kept, `most` bytes or fewer.
  // How many; 0: all are there.
  [[nodiscard]] uint64_t exchange(uint64_t at, uint64_t most, int prot, const base::Fd& file,
                                  uint64_t offset);
  // What stands now in the oldest pages that were kept, into `out`; of those moved aside, in the
  // last ones. They are forgotten.
  [[nodiscard]] bool recall(uint8_t* out, uint64_t length);
  void forget(uint64_t length);

 private:
  [[nodiscard]] bool make_aside();
  [[nodiscard]] bool move_aside(uint64_t at, uint64_t length);

  base::Fd in_, out_, nowhere_;
  uint8_t* aside_ = nullptr;  // kStep bytes: the pages that were exchanged last
  uint8_t* copy_ = nullptr;   // kMost bytes, and as many behind it for what is recalled
  uint64_t size_ = 0;
};

class Standstill {
 public:
  // Asks the daemon. `words` are those of the session.
  Standstill(Session& session, ipc::HoldWords& words);
  ~Standstill();  // they run on
  Standstill(const Standstill&) = delete;
  Standstill& operator=(const Standstill&) = delete;

  // kNot: they are held, or were a moment ago.
  [[nodiscard]] ipc::Reached reached() const { return reached_; }
  // False: they are not held any more, and nothing may be exchanged.
  [[nodiscard]] bool begin_exchange(ipc::HoldPhase as);
  // False: the hold may have ended before the exchange was over.
  [[nodiscard]] bool end_exchange();

 private:
  ipc::HoldWords& words_;
  ipc::Reached reached_ = ipc::Reached::kRefused;
  uint32_t serial_ = 0, owner_ = 0, begun_ = 0;
};

// `was` was copied from old pages, in which `is` stands now: brings the difference to `now`, which
// others may write meanwhile, unless they have changed the same bytes. Of whole words.
void carry_over(const uint8_t* was, const uint8_t* is, uint8_t* now, uint64_t length);

}  // namespace vrdma::client
