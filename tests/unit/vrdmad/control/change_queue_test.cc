#include "vrdmad/control/change_queue.h"

#include <gtest/gtest.h>

#include <chrono>

namespace vrdma::vrdmad {
namespace {

using std::chrono::milliseconds;
using Results = std::vector<base::Result<void>>;

constexpr base::TimePoint kNow{std::chrono::hours(1)};
const auto kFull = base::fail(ENOSPC, "the disk is full");

StoredVdev vdev(uint64_t id, uint32_t ifindex) {
  StoredVdev vdev;
  vdev.id = id;
  vdev.ifindex = ifindex;
  return vdev;
}

TEST(ChangeQueue, WritesAtOnceWhatACallerWaitsFor) {
  ChangeQueue queue;
  EXPECT_FALSE(queue.due());
  queue.write_later(vdev(1, 1), kNow);
  EXPECT_EQ(queue.due(), kNow + ChangeQueue::kDelay);
  auto written = queue.write(vdev(2, 1));
  EXPECT_EQ(queue.due(), base::TimePoint::min());
  auto batch = queue.take();
  EXPECT_FALSE(queue.due());
  ASSERT_EQ(batch.changes.size(), 2u);
  queue.finish(std::move(batch), Results(2), kNow, false);
  EXPECT_TRUE(written.get());
  EXPECT_FALSE(queue.due());
}

TEST(ChangeQueue, WritesAgainWhatHasFailedWithoutACaller) {
  ChangeQueue queue;
  queue.write_later(vdev(1, 1), kNow);
  queue.finish(queue.take(), {kFull}, kNow, false);
  EXPECT_EQ(queue.due(), kNow + ChangeQueue::kRetryDelay);
  queue.finish(queue.take(), {kFull}, kNow, true);
  EXPECT_FALSE(queue.due()) << "the daemon ends";
}

// It would come after its own deletion.
TEST(ChangeQueue, DoesNotBringBackWhatIsReplaced) {
  ChangeQueue queue;
  queue.write_later(vdev(1, 1), kNow);
  auto written = queue.write(Store::Replacement{vdev(2, 1), {1}});
  EXPECT_EQ(queue.take().changes.size(), 1u);
}

// While the disk was about to refuse a change, a newer one of the vdevice came.
TEST(ChangeQueue, LeavesOutWhatANewerChangeReplaces) {
  const std::vector<Store::Change> newer{vdev(1, 2), Store::Forgotten{1},
                                         Store::Replacement{vdev(2, 1), {1}}};
  for (const auto& change : newer) {
    ChangeQueue queue;
    queue.write_later(vdev(1, 1), kNow);
    auto batch = queue.take();
    auto written = queue.write(change);
    queue.finish(std::move(batch), {kFull}, kNow, false);
    EXPECT_EQ(queue.take().changes.size(), 1u) << "the newer one alone";
  }
  // A reservation of ids, which has no vdevice, is not replaced by another change without one.
  ChangeQueue queue;
  queue.write_later(Store::Reserved{1000}, kNow);
  auto batch = queue.take();
  auto written = queue.write(FabricSpec{"f", Reach::kNetwork});
  queue.finish(std::move(batch), {kFull}, kNow, false);
  EXPECT_EQ(queue.take().changes.size(), 2u);
}

}  // namespace
}  // namespace vrdma::vrdmad
