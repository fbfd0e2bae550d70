// Unread events, found by their id and by the request that they announce.
#include "vrdmad/cm/events.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace vrdma::vrdmad {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

struct Events : testing::Test {
  CmEvents events;
  uint32_t last = 0;

  void push(uint32_t channel, uint32_t handle, uint32_t request = 0) {
    ipc::CmEventMessage message;
    message.handle = handle;
    message.request = request;
    message.sequence = ++last;
    events.push(channel, {message, {}});
  }
  static std::vector<uint32_t> sequences(const std::vector<CmEvents::Unread>& of) {
    std::vector<uint32_t> all;
    for (const auto& event : of) all.push_back(event.message.sequence);
    return all;
  }
};

TEST_F(Events, AreReadInTheOrderOfTheirChannel) {
  push(1, 10);
  push(2, 10);
  push(1, 11);
  EXPECT_EQ(events.size(), 3u);
  EXPECT_EQ(events.front(1)->message.sequence, 1u);
  EXPECT_EQ(events.pop(1).message.sequence, 1u);
  EXPECT_EQ(events.pop(1).message.sequence, 3u);
  EXPECT_EQ(events.front(1), nullptr);
  EXPECT_THAT(sequences(events.take_all(2)), ElementsAre(2));
  EXPECT_EQ(events.size(), 0u);
}

TEST_F(Events, AreFoundByTheirId) {
  for (uint32_t i = 0; i < 3; ++i) {
    push(1, 10);
    push(1, 11);
  }
  EXPECT_EQ(events.about(10), 3u);
  EXPECT_THAT(sequences(events.take_about(10)), ElementsAre(1, 3, 5));
  EXPECT_EQ(events.about(10), 0u);
  EXPECT_THAT(events.take_about(10), IsEmpty());
  EXPECT_THAT(sequences(events.take_all(1)), ElementsAre(2, 4, 6));
}

TEST_F(Events, AreFoundByTheRequestTheyAnnounce) {
  push(1, 10, 77);
  push(1, 10, 78);
  EXPECT_EQ(events.take_announcement(77)->message.sequence, 1u);
  EXPECT_FALSE(events.take_announcement(77));
  EXPECT_THAT(sequences(events.take_about(10)), ElementsAre(2));
  EXPECT_FALSE(events.take_announcement(78)) << "removed with its listener";
}

TEST_F(Events, MoveWithTheirId) {
  push(1, 10);
  push(1, 11);
  push(2, 12);
  push(1, 10);
  events.move_about(10, 2);
  EXPECT_THAT(sequences(events.take_all(1)), ElementsAre(2));
  EXPECT_THAT(sequences(events.take_about(10)), ElementsAre(1, 4));
  EXPECT_THAT(sequences(events.take_all(2)), ElementsAre(3));
}

TEST_F(Events, GiveBackTheirCharge) {
  provisioning::Ledger ledger;
  const auto used = [&] { return ledger.used(provisioning::Kind::kCmEvents); };
  for (uint32_t handle = 1; handle <= 3; ++handle) {
    ipc::CmEventMessage message;
    message.handle = handle;
    events.push(1, {message, std::move(*ledger.charge(provisioning::Kind::kCmEvents, 1))});
  }
  EXPECT_EQ(used(), 3u);
  (void)events.pop(1);
  EXPECT_EQ(used(), 2u);
  (void)events.take_about(2);
  EXPECT_EQ(used(), 1u);
  (void)events.take_all(1);
  EXPECT_EQ(used(), 0u);
}

}  // namespace
}  // namespace vrdma::vrdmad
