#include "core/ipc/event_ends.h"

#include <gtest/gtest.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "core/ipc/layout.h"
#include "core/ipc/messages.h"

namespace vrdma::ipc {
namespace {

TEST(EventEnds, KeepTheirOrder) {
  const EventEnds ends = make_event_ends(8).value();
  for (uint32_t i = 0; i < 8; ++i) {
    const EventMessage message{i, 2 * i};
    ASSERT_TRUE(put_event(ends.write.get(), &message, sizeof message));
  }
  for (uint32_t i = 0; i < 8; ++i) {
    EventMessage message{};
    ASSERT_EQ(::read(ends.read.get(), &message, sizeof message),
              static_cast<ssize_t>(sizeof message));
    EXPECT_EQ(message.event, i);
    EXPECT_EQ(message.object, 2 * i);
  }
}

// Flags that a reader sets, for itself or for both ends, do not matter.
TEST(EventEnds, WaitForNobodyWhenTheyAreFull) {
  const EventEnds ends = make_event_ends(8).value();
  const int wait = 0;
  ::ioctl(ends.write.get(), FIONBIO, &wait);
  const EventMessage message{};
  int count = 0;
  while (put_event(ends.write.get(), &message, sizeof message)) ++count;
  EXPECT_GE(count, 8);
  EXPECT_LT(count, 10'000);
}

TEST(EventEnds, HaveTheRoomThatTheySay) {
  const EventEnds ends = make_event_ends(8).value();
  const unsigned room = room_of(ends.write.get());
  EXPECT_GE(room, 8u);
  const ChannelMessage message{};
  for (unsigned i = 0; i < room; ++i)
    ASSERT_TRUE(put_event(ends.write.get(), &message, sizeof message)) << i;
}

TEST(EventEnds, HaveRoomForAsManyAsWasAskedFor) {
  if (::geteuid() != 0) GTEST_SKIP() << "exceeding the socket buffer limit needs CAP_NET_ADMIN";
  const EventEnds ends = make_event_ends(8192).value();
  const ChannelMessage message{};
  for (int i = 0; i < 8192; ++i)
    ASSERT_TRUE(put_event(ends.write.get(), &message, sizeof message)) << i;
}

TEST(EventEnds, SendNoSignalWhenNobodyReads) {
  EventEnds ends = make_event_ends(8).value();
  ends.read.reset();
  const EventMessage message{};
  EXPECT_FALSE(put_event(ends.write.get(), &message, sizeof message));
}

}  // namespace
}  // namespace vrdma::ipc
