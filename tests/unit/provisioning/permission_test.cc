#include "provisioning/permission.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace vrdma::provisioning {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(Permissions, AreNoneUnlessNamed) {
  EXPECT_FALSE(Permissions().has(Permission::kRawPacket));
  const auto none = Permissions::of({});
  ASSERT_TRUE(none);
  EXPECT_FALSE(none->has(Permission::kRawPacket));
  EXPECT_THAT(none->names(), IsEmpty());
  const auto raw = Permissions::of({"raw-packet"});
  ASSERT_TRUE(raw);
  EXPECT_TRUE(raw->has(Permission::kRawPacket));
  EXPECT_FALSE(raw->has(Permission::kQp1));
  EXPECT_THAT(raw->names(), ElementsAre("raw-packet"));
  EXPECT_THAT(Permissions::of({"qp1", "raw-packet"})->names(), ElementsAre("raw-packet", "qp1"));
}

TEST(Permissions, AreKnownAndNamedOnce) {
  for (const char* name : {"frogs", "", "raw-packet,", "RAW-PACKET"}) {
    const auto refused = Permissions::of({name});
    ASSERT_FALSE(refused) << name;
    EXPECT_EQ(refused.error().code(), EINVAL);
    EXPECT_EQ(refused.error().message(), "there is no permission '" + std::string(name) +
                                             "': there are raw-packet, qp1, userfaultfd");
  }
  const auto twice = Permissions::of({"raw-packet", "raw-packet"});
  ASSERT_FALSE(twice);
  EXPECT_EQ(twice.error().message(), "permission raw-packet is named twice");
}

}  // namespace
}  // namespace vrdma::provisioning
