// Two connected queue pairs of a guest, and memory from and to which they send.
#pragma once

#include <gtest/gtest.h>

#include <vector>

#include "tests/unit/pvrdma/guest.h"

namespace vrdma::pvrdma {

class Data : public ::testing::Test, protected Guest {
 protected:
  Data() {
    attach();
    bind(0, gid_of(1));
    pd = create_pd();
    cq = create_cq(64);
    a = create_qp(pd, cq, 16);
    b = create_qp(pd, cq, 16);
    connect(a, b.qpn);
    connect(b, a.qpn);
    from = create_mr(pd, 3 * kPageSize, 100);
    to = create_mr(pd, 3 * kPageSize, 200);
    for (uint64_t i = 0; i < 3 * kPageSize; ++i) byte(from, i) = static_cast<uint8_t>(i * 7 + 1);
  }
  [[nodiscard]] std::vector<Element> all(const Memory& mr, uint32_t length = 3 * kPageSize) const {
    return {{mr.start, length, mr.key}};
  }
  [[nodiscard]] bool arrived() {
    for (uint64_t i = 0; i < 3 * kPageSize; ++i)
      if (byte(to, i) != static_cast<uint8_t>(i * 7 + 1)) return false;
    return true;
  }
  [[nodiscard]] static SendEntry request(SendOpcode opcode, uint64_t wr_id) {
    SendEntry entry{};
    entry.wr_id = wr_id;
    entry.opcode = static_cast<uint32_t>(opcode);
    entry.flags = kSignaled;
    return entry;
  }
  uint32_t pd = 0;
  CompletionQueue cq;
  QueuePair a, b;
  Memory from, to;
};

}  // namespace vrdma::pvrdma
