#include "gid/table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/gid/gid_text.h"

namespace vrdma::gid {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

struct Tables : testing::Test {
  Table table;
  Table::Change update(std::initializer_list<const char*> wanted) {
    return table.update(gids_of(wanted));
  }
};

TEST_F(Tables, TakesWhatIsWantedInItsOrder) {
  const auto change = update({"fe80::1", "10.0.0.1"});
  EXPECT_TRUE(change);
  EXPECT_THAT(texts_of(change.added), ElementsAre("fe80::1", "::ffff:10.0.0.1"));
  EXPECT_THAT(change.removed, IsEmpty());
  EXPECT_FALSE(change.moved);
  EXPECT_EQ(table.gids(), gids_of({"fe80::1", "10.0.0.1"}));
  EXPECT_TRUE(table.contains(gid_of("10.0.0.1")));
  EXPECT_FALSE(table.contains(gid_of("10.0.0.2")));
}

TEST_F(Tables, SeesThatNothingChanged) {
  update({"fe80::1", "10.0.0.1", "fd00::1"});
  EXPECT_FALSE(update({"fe80::1", "10.0.0.1", "fd00::1"}));
  EXPECT_FALSE(update({"fe80::1", "fd00::1", "10.0.0.1"})) << "the kernel's order is ignored";
  EXPECT_EQ(table.gids(), gids_of({"fe80::1", "10.0.0.1", "fd00::1"}));
}

TEST_F(Tables, PutsNewOnesBehindThoseThatStay) {
  update({"fe80::1", "fd00::2"});
  const auto change = update({"fe80::1", "fd00::1", "fd00::2"});
  EXPECT_THAT(texts_of(change.added), ElementsAre("fd00::1"));
  EXPECT_FALSE(change.moved);
  EXPECT_EQ(table.gids(), gids_of({"fe80::1", "fd00::2", "fd00::1"}));
}

TEST_F(Tables, PutsTheFirstIpv4GidAtIndexOne) {
  update({"fe80::1", "fd00::1"});
  EXPECT_TRUE(update({"fe80::1", "fd00::1", "10.0.0.1"}).moved);
  EXPECT_EQ(table.gids(), gids_of({"fe80::1", "10.0.0.1", "fd00::1"}));
  EXPECT_FALSE(update({"fe80::1", "10.0.0.2", "fd00::1", "10.0.0.1"}).moved);
  EXPECT_EQ(table.gids(), gids_of({"fe80::1", "10.0.0.1", "fd00::1", "10.0.0.2"}));
  update({"fe80::1", "fd00::1", "10.0.0.2"});
  EXPECT_EQ(table.gids(), gids_of({"fe80::1", "10.0.0.2", "fd00::1"}));
}

TEST_F(Tables, MovesUpWhatStandsBehindOneThatWent) {
  update({"fe80::1", "10.0.0.1", "10.0.0.2"});
  const auto change = update({"fe80::1", "10.0.0.2"});
  EXPECT_THAT(texts_of(change.removed), ElementsAre("::ffff:10.0.0.1"));
  EXPECT_TRUE(change.moved);
  EXPECT_EQ(table.gids(), gids_of({"fe80::1", "10.0.0.2"}));
  EXPECT_FALSE(update({"fe80::1"}).moved);
}

TEST_F(Tables, KeepsTheDefaultGidFirstWhenTheMacChanges) {
  update({"fe80::1", "10.0.0.1", "fe80::2"});
  auto change = update({"fe80::3", "10.0.0.1", "fe80::2"});
  EXPECT_FALSE(change.moved);
  EXPECT_EQ(table.gids(), gids_of({"fe80::3", "10.0.0.1", "fe80::2"}));
  change = update({"fe80::2", "10.0.0.1"});
  EXPECT_TRUE(change.moved);
  EXPECT_THAT(change.added, IsEmpty());
  EXPECT_EQ(table.gids(), gids_of({"fe80::2", "10.0.0.1"}));
}

TEST_F(Tables, CanBecomeEmpty) {
  update({"10.0.0.1"});
  EXPECT_THAT(texts_of(update({}).removed), ElementsAre("::ffff:10.0.0.1"));
  EXPECT_THAT(table.gids(), IsEmpty());
}

}  // namespace
}  // namespace vrdma::gid
