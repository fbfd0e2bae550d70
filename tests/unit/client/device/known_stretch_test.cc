#include "client/device/datapath/known_stretch.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <vector>

namespace vrdma::client {
namespace {

constexpr uint32_t kKey = 3 << 8 | 7, kPd = 5;

class KnownStretchTest : public testing::Test {
 protected:
  KnownStretchTest() : table_(16) {
    region_.pd = kPd;
    region_.access = verbs::kRemoteWrite;
    region_.addr = reinterpret_cast<uintptr_t>(bytes_);
    region_.length = sizeof bytes_;
    region_.iova = 0x1000;
    region_.way = ipc::Way::kInPlace;
    rdma::write_key(table_.data(), kKey, &region_);
  }
  bool learn(uint64_t addr, uint64_t length, uint32_t access = verbs::kRemoteWrite,
             rdma::KeyUser user = {kPd, 9}, uint32_t key = kKey) {
    return stretch_.learn(memory_, user, access, key, addr, length);
  }

  std::vector<ipc::KeyEntry> table_;
  uint8_t bytes_[100];
  rdma::Region region_;
  std::unique_ptr<rdma::AddressSpace> own_ = rdma::AddressSpace::own();
  rdma::Memory memory_{rdma::Keys(table_.data()), own_.get()};
  KnownStretch stretch_;
};

TEST_F(KnownStretchTest, KnowsNothingAtFirst) {
  EXPECT_EQ(stretch_.find(0, 0, 1), nullptr);
  EXPECT_EQ(stretch_.find(kKey, 0x1000, 1), nullptr);
}

TEST_F(KnownStretchTest, KnowsAllOfTheRegionAndNothingElse) {
  ASSERT_TRUE(learn(0x1010, 4));
  EXPECT_EQ(stretch_.find(kKey, 0x1000, 100), bytes_);
  EXPECT_EQ(stretch_.find(kKey, 0x1000 + 99, 1), bytes_ + 99);
  EXPECT_EQ(stretch_.find(kKey, 0x1000 + 99, 2), nullptr);
  EXPECT_EQ(stretch_.find(kKey, 0x1000 + 100, 1), nullptr);
  EXPECT_EQ(stretch_.find(kKey, 0xfff, 2), nullptr);
  EXPECT_EQ(stretch_.find(kKey, 0x1001, UINT64_MAX), nullptr);
  EXPECT_EQ(stretch_.find(kKey + 1, 0x1000, 1), nullptr);
}

TEST_F(KnownStretchTest, ForgetsWhatWasChanged) {
  ASSERT_TRUE(learn(0x1000, 1));
  rdma::write_key(table_.data(), kKey, nullptr);
  EXPECT_EQ(stretch_.find(kKey, 0x1000, 1), nullptr);
  EXPECT_FALSE(learn(0x1000, 1));
  rdma::write_key(table_.data(), kKey, &region_);
  EXPECT_EQ(stretch_.find(kKey, 0x1000, 1), nullptr);
  EXPECT_TRUE(learn(0x1000, 1));
  EXPECT_EQ(stretch_.find(kKey, 0x1000, 1), bytes_);
}

TEST_F(KnownStretchTest, RefusesWhatTheKeyDoesNotGive) {
  EXPECT_FALSE(learn(0x1000, 1, verbs::kRemoteRead));
  EXPECT_FALSE(learn(0x1000, 1, verbs::kRemoteWrite, {kPd + 1, 9}));
  EXPECT_FALSE(learn(0x1000, 1, verbs::kRemoteWrite, {kPd, 9}, kKey + 1));
  EXPECT_FALSE(learn(0x1000, 1, verbs::kRemoteWrite, {kPd, 9}, 0));
  EXPECT_FALSE(learn(0x1000, 1, verbs::kRemoteWrite, {kPd, 9}, kKey + (ipc::kMaxKeys << 8)));
  EXPECT_FALSE(learn(0x1001, 100));
  region_.qpn = 8;  // a window of another queue pair
  rdma::write_key(table_.data(), kKey, &region_);
  EXPECT_FALSE(learn(0x1000, 1));
  EXPECT_EQ(stretch_.find(kKey, 0x1000, 1), nullptr);
}

TEST_F(KnownStretchTest, KnowsNoMoreThanOneWindow) {
  base::Fd arena(::memfd_create("arena", MFD_CLOEXEC));
  ASSERT_EQ(::ftruncate(arena.get(), static_cast<off_t>(4 * ipc::kWindowSize)), 0);
  auto space = rdma::AddressSpace::of_arena(std::move(arena));
  ASSERT_TRUE(space);
  memory_.space = space->get();
  region_.addr = region_.iova = ipc::kWindowSize - 10;
  region_.length = 100;
  rdma::write_key(table_.data(), kKey, &region_);
  EXPECT_FALSE(learn(region_.addr, 11));  // crosses a window boundary
  ASSERT_TRUE(learn(region_.addr, 10));
  EXPECT_EQ(stretch_.find(kKey, region_.addr, 11), nullptr);
  ASSERT_TRUE(learn(ipc::kWindowSize + 3, 1));
  uint8_t* const first = stretch_.find(kKey, ipc::kWindowSize, 90);
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(stretch_.find(kKey, ipc::kWindowSize + 3, 87), first + 3);
  EXPECT_EQ(stretch_.find(kKey, ipc::kWindowSize - 1, 1), nullptr);
}

}  // namespace
}  // namespace vrdma::client
