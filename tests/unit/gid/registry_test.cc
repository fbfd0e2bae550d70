#include "gid/registry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/gid/gid_text.h"

namespace vrdma::gid {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

struct Registries : testing::Test {
  Registry registry;
  int retries = 0;

  base::Result<Registry::Holding> claim(const std::string& fabric, const std::string& holder,
                                        std::initializer_list<const char*> wanted) {
    return registry.claim(fabric, holder, gids_of(wanted), [this] { ++retries; });
  }
  std::string holder(const std::string& fabric, const char* gid) {
    const auto* name = registry.holder(fabric, gid_of(gid));
    return name ? *name : "";
  }
};

TEST_F(Registries, KnowTheHolder) {
  const auto red = claim("red", "red0", {"fe80::1", "10.0.0.1"});
  ASSERT_TRUE(red);
  EXPECT_EQ(holder("red", "10.0.0.1"), "red0");
  EXPECT_EQ(holder("red", "10.0.0.2"), "");
  EXPECT_EQ(holder("blue", "10.0.0.1"), "");
  EXPECT_EQ(red->gids(), gids_of({"fe80::1", "10.0.0.1"}));
}

TEST_F(Registries, RefuseADuplicateAndClaimNothingThen) {
  const auto first = claim("red", "red0", {"fe80::1", "10.0.0.1"});
  const auto second = claim("red", "red1", {"fe80::2", "10.0.0.1"});
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code(), EADDRINUSE);
  EXPECT_EQ(second.error().message(), "GID ::ffff:10.0.0.1 is held by vdevice red0 in fabric red");
  EXPECT_EQ(holder("red", "fe80::2"), "");
  EXPECT_EQ(registry.refusals(), 1u);
  EXPECT_EQ(retries, 0);
}

TEST_F(Registries, LetFabricsHaveTheSameAddresses) {
  const auto red = claim("red", "red0", {"fe80::1", "10.0.0.1"});
  const auto blue = claim("blue", "blue0", {"fe80::1", "10.0.0.1"});
  ASSERT_TRUE(red && blue);
  EXPECT_EQ(holder("red", "10.0.0.1"), "red0");
  EXPECT_EQ(holder("blue", "10.0.0.1"), "blue0");
}

TEST_F(Registries, FreeWhatAHoldingHeld) {
  {
    auto first = claim("red", "red0", {"10.0.0.1"});
    const Registry::Holding moved = std::move(*first);
    EXPECT_EQ(holder("red", "10.0.0.1"), "red0");
    EXPECT_THAT(first->gids(), IsEmpty());
  }
  EXPECT_EQ(holder("red", "10.0.0.1"), "");
  EXPECT_TRUE(claim("red", "red1", {"10.0.0.1"}));
}

TEST_F(Registries, FollowAnInterface) {
  auto red = claim("red", "red0", {"fe80::1", "10.0.0.1"});
  auto update = red->update(gids_of({"fe80::1", "10.0.0.2"}));
  EXPECT_TRUE(update.change);
  EXPECT_THAT(texts_of(update.change.added), ElementsAre("::ffff:10.0.0.2"));
  EXPECT_THAT(texts_of(update.change.removed), ElementsAre("::ffff:10.0.0.1"));
  EXPECT_EQ(holder("red", "10.0.0.1"), "");
  EXPECT_EQ(holder("red", "10.0.0.2"), "red0");
  EXPECT_FALSE(red->update(gids_of({"fe80::1", "10.0.0.2"})).change);
}

TEST_F(Registries, LeaveALateDuplicateOutAndGrantItWhenItIsFree) {
  auto first = claim("red", "red0", {"fe80::1", "10.0.0.1"});
  auto second = claim("red", "red1", {"fe80::2"});
  const auto wanted = gids_of({"fe80::2", "10.0.0.1", "10.0.0.2"});

  auto update = second->update(wanted);
  ASSERT_EQ(update.refusals.size(), 1u);
  EXPECT_EQ(update.refusals[0].gid, gid_of("10.0.0.1"));
  EXPECT_EQ(update.refusals[0].holder, "red0");
  EXPECT_EQ(update.refusals[0].sentence,
            "GID ::ffff:10.0.0.1 is held by vdevice red0 in fabric red");
  EXPECT_EQ(second->gids(), gids_of({"fe80::2", "10.0.0.2"}));
  EXPECT_EQ(second->refused(), 1u);
  EXPECT_THAT(second->update(wanted).refusals, IsEmpty()) << "the refusal was already reported";
  EXPECT_EQ(registry.refusals(), 1u);

  first->update(gids_of({"fe80::1"}));
  EXPECT_EQ(retries, 1);
  update = second->update(wanted);
  EXPECT_THAT(texts_of(update.change.added), ElementsAre("::ffff:10.0.0.1"));
  EXPECT_EQ(second->gids(), gids_of({"fe80::2", "10.0.0.2", "10.0.0.1"}));
  EXPECT_EQ(second->refused(), 0u);
}

TEST_F(Registries, TellThoseWhoWaitWhenAHolderGoes) {
  auto first = claim("red", "red0", {"10.0.0.1", "10.0.0.2", "10.0.0.3"});
  auto second = claim("red", "red1", {});
  auto third = claim("red", "red2", {});
  auto elsewhere = claim("blue", "blue0", {});
  second->update(gids_of({"10.0.0.1", "10.0.0.2"}));
  third->update(gids_of({"10.0.0.3"}));
  third->update({});
  elsewhere->update(gids_of({"10.0.0.1"}));
  first->reset();
  EXPECT_EQ(retries, 1) << "once for two GIDs, and not for a vdevice that no longer wants it";
}

}  // namespace
}  // namespace vrdma::gid
