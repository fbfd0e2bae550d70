// Shared by the tests of memory: a pair of connected queue pairs, and a full exercise of a region.
#pragma once

#include <cstdint>

#include "tests/conformance/queue.h"

namespace conformance {

struct Pair {
  explicit Pair(const Side& given) : side(given), cq(given), qp(given, cq) { qp.connect(); }
  const Side& side;
  Cq cq;
  Qp qp;
};

// A region of any memory; its owner deregisters it.
struct Region {
  uint8_t* data;
  size_t size;
  ibv_mr* mr;
  [[nodiscard]] ibv_sge sge(size_t offset, size_t length) const;
  [[nodiscard]] Remote remote() const;
};
// Registers or fails the test.
Region enroll(const Side& side, void* data, size_t size, int access = kAllAccess);
void release(const Region& region);

// Both sides call it with regions of one size (at least 4096): WRITE, READ, SEND and atomics from
// and into them, each byte checked. Afterwards b's region has the bytes of key 100 + salt.
void exercise(Pair& pair, const Region& region, uint64_t salt);

// The same for read-only memory that is filled with key `key`: READ from it, SEND from it.
void exercise_read_only(Pair& pair, const Region& region, uint64_t key);

}  // namespace conformance
