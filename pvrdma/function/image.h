// The image of a function: what the next process must know if this one dies, in a memory file that
// the keeper holds (pvrdma/keeper/keeper.h).
//
// What a message of the VMM changes counts from the moment that the message is noted
// (vfio_user/progress.h), all of it at once: the function's registers lie there twice, by the
// parity of the message, and a record of an object has the numbers of the messages that made it and
// that ended it. Completions happen between messages; Pushed is about them.
//
// The process that reads an image does not trust it: a guest may have taken over the one that wrote
// it. What it says is checked as if the guest had said it.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "core/base/error.h"
#include "core/base/fd.h"
#include "core/base/mapping.h"
#include "core/ipc/export_state.h"
#include "pvrdma/device/guest_ram.h"
#include "pvrdma/encoding/commands.h"
#include "pvrdma/encoding/registers.h"
#include "pvrdma/function/objects.h"
#include "pvrdma/vfio_user/progress.h"

namespace vrdma::pvrdma {

// Numbers of messages; 0: none.
struct Life {
  uint64_t born = 0, died = 0;
};

// A completion that is pushed into a ring of the guest ends a request of a queue pair. Both must be
// known, or none: so this is stored first. It holds if the ring's producer has become `producer`.
struct Pushed {
  uint32_t producer = 0;
  uint32_t qp = 0;        // its handle
  uint32_t position = 0;  // in its ring, of the first request that has not ended
  bool is_receive = false;

  [[nodiscard]] uint64_t word() const {
    return 1 | (is_receive ? 2u : 0u) | uint64_t{producer & 0xffff} << 2 |
           uint64_t{position & 0xffff} << 18 | uint64_t{qp} << 34;
  }
  // Empty: nothing was pushed.
  [[nodiscard]] static std::optional<Pushed> of(uint64_t word) {
    if ((word & 1) == 0) return std::nullopt;
    return Pushed{static_cast<uint32_t>(word >> 2 & 0xffff), static_cast<uint32_t>(word >> 34),
                  static_cast<uint32_t>(word >> 18 & 0xffff), (word & 2) != 0};
  }
};
static_assert(2 * kMostEntries <= 0x10000);

// What is counted of a vdevice's VMs: for operators, and the rest for the log.
struct Counts : ipc::ExportCounts {
  uint64_t sends = 0, receives = 0, completions = 0;
};

struct ImagedRange {
  Life life;
  uint64_t address, length, offset;
};
struct ImagedVector {
  Life life;
};
struct ImagedGid {
  Life life;
  ibv_gid gid;
};
struct ImagedContext {
  Life life;
  uint32_t page;
};
struct ImagedPd {
  Life life;
  uint32_t context;
};
struct ImagedMr {
  Life life;
  uint32_t pd, lkey;
  bool is_of_all_memory;
};
struct ImagedCq {
  Life life;
  CreateCq wish;
  std::atomic<uint64_t> pushed;
};
struct ImagedSrq {
  Life life;
  uint32_t context;
};
struct ImagedQp {
  Life life;
  CreateQp wish;
  std::atomic<uint32_t> sends_ended, receives_ended;  // positions in the rings
  // The state that the driver has asked for, before the message `changed` and from then on.
  uint64_t changed;
  uint32_t before, after;
};

template <class Kind, uint32_t kCount>
struct Records {
  std::atomic<uint32_t> end{0};  // those from here on were never used
  std::array<Kind, kCount> all;
};

struct Image {
  struct Registers {
    std::array<uint8_t, 256> config;
    uint32_t region_low, error, mask, is_attached;
    uint64_t shared_region;
    uint64_t reset;  // the message that ended all objects which were there
  };

  vfio::Progress progress;
  std::array<Registers, 2> registers;  // by the parity of the message
  // How often the attachment was looked for and not yet found; 0 when all is right.
  std::atomic<uint32_t> attempts{0};
  Counts counts;

  Records<ImagedRange, GuestRam::kMostRanges> ranges;
  Records<ImagedVector, kVectors> vectors;
  Records<ImagedGid, kGidTable> gids;
  Records<ImagedContext, kDoorbellPages> contexts;
  Records<ImagedPd, kMostPds> pds;
  Records<ImagedMr, kMostMrs> mrs;
  Records<ImagedCq, kMostCqs + 1> cqs;
  Records<ImagedSrq, kMostSrqs> srqs;
  Records<ImagedQp, kMostQps> qps;

  // An empty one: zeros.
  [[nodiscard]] static base::Result<base::Fd> make() {
    return base::make_memfd("vrdma-pvrdma-image", sizeof(Image));
  }
  [[nodiscard]] static base::Result<base::Mapping> map(const base::Fd& file) {
    return base::Mapping::shared(file, sizeof(Image), 0, PROT_READ | PROT_WRITE);
  }

  // The message that is executed, or a number after all noted ones.
  [[nodiscard]] uint64_t now() const { return progress.begun; }
  [[nodiscard]] bool counts_now(const Life& life, uint64_t since) const {
    const uint64_t noted = progress.noted;
    return life.born > since && life.born <= noted && (life.died == 0 || life.died > noted);
  }
  // The record of a new object, which is filled before the message is noted.
  template <class Kind, uint32_t kCount>
  [[nodiscard]] Kind& make(Records<Kind, kCount>& records, uint32_t index) {
    Kind& one = records.all[index];
    one.life = {now(), 0};
    if (records.end <= index) records.end = index + 1;
    return one;
  }
  template <class Kind, uint32_t kCount>
  void end(Records<Kind, kCount>& records, uint32_t index) {
    records.all[index].life.died = now();
  }
  // The one that was made last since then, also if it has ended; 0: none. Before each().
  template <class Kind, uint32_t kCount>
  [[nodiscard]] uint32_t last_made(const Records<Kind, kCount>& records, uint64_t since) const {
    const uint64_t noted = progress.noted;
    uint32_t last = 0;
    uint64_t when = since;
    for (uint32_t i = 0; i < std::min<uint32_t>(records.end, kCount); ++i) {
      const uint64_t born = records.all[i].life.born;
      if (born <= when || born > noted) continue;
      last = i;
      when = born;
    }
    return last;
  }
  // Calls `found(index, record)` for each that counts, and undoes what messages did that were never
  // noted. `since`: those of this message and before have ended.
  template <class Kind, uint32_t kCount, class Found>
  void each(Records<Kind, kCount>& records, uint64_t since, Found found) {
    for (uint32_t i = 0; i < std::min<uint32_t>(records.end, kCount); ++i) {
      Kind& one = records.all[i];
      if (one.life.died > progress.noted) one.life.died = 0;
      if (counts_now(one.life, since))
        found(i, one);
      else
        one.life = {};
    }
  }
};

}  // namespace vrdma::pvrdma
