#include "vrdmad/worker/descriptors.h"

#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <sys/resource.h>

#include <algorithm>
#include <vector>

#include "core/base/fd.h"

namespace vrdma::vrdmad {
namespace {

TEST(Descriptors, LeaveRoomForWhatControlSends) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit few{std::min<rlim_t>(before.rlim_max, 1000), before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  std::vector<base::Fd> all;
  do {
    all.emplace_back(::eventfd(0, EFD_CLOEXEC));
  } while (all.back().valid());
  ASSERT_GT(all.size(), kSpareDescriptors + kSessionDescriptors);
  all.resize(all.size() - 1 - kSpareDescriptors - kSessionDescriptors);
  EXPECT_TRUE(has_descriptors_for(kSessionDescriptors));
  all.emplace_back(::eventfd(0, EFD_CLOEXEC));
  EXPECT_FALSE(has_descriptors_for(kSessionDescriptors));
  EXPECT_TRUE(has_descriptors_for(2));
  all.pop_back();
  EXPECT_TRUE(has_descriptors_for(kSessionDescriptors)) << "those of the answer before are closed";
  all.resize(all.size() - 100);
  const base::Fd last(::dup2(all.front().get(), static_cast<int>(few.rlim_cur) - 1));
  EXPECT_TRUE(has_descriptors_for(kSessionDescriptors)) << "there is room elsewhere";
  ::setrlimit(RLIMIT_NOFILE, &before);
}

TEST(Descriptors, AreLeftForOtherTenants) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit few{std::min<rlim_t>(before.rlim_max, 1000), before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  EXPECT_TRUE(is_within_share(484, 484, 16)) << "half of all";
  EXPECT_FALSE(is_within_share(485, 485, 16));
  EXPECT_TRUE(is_within_share(600, 100, 16)) << "an eighth";
  EXPECT_FALSE(is_within_share(600, 110, 16));
  ::setrlimit(RLIMIT_NOFILE, &before);
}

}  // namespace
}  // namespace vrdma::vrdmad
