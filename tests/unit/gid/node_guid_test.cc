#include "gid/node_guid.h"

#include <gtest/gtest.h>

#include <set>

namespace vrdma::gid {
namespace {

TEST(NodeGuid, IsLocalUnicastAndEachAnother) {
  std::set<uint64_t> seen;
  for (int i = 0; i < 1000; ++i) {
    const NodeGuid guid = make_node_guid();
    EXPECT_EQ(guid.bytes[0] & 0x03, 0x02);
    seen.insert(guid.big_endian());
  }
  EXPECT_EQ(seen.size(), 1000u);
}

TEST(NodeGuid, IsWrittenAsIbvDevinfoDoes) {
  const NodeGuid guid{{0x02, 0x11, 0x22, 0xff, 0xfe, 0x03, 0x44, 0x55}};
  EXPECT_EQ(guid.text(), "0211:22ff:fe03:4455");
}

}  // namespace
}  // namespace vrdma::gid
