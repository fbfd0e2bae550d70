#include "provisioning/cgroup.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

namespace vrdma::provisioning {
namespace {

TEST(Cgroup, IsOneOfThoseThatTheKernelNames) {
  const std::string mine = cgroup_of(::getpid());
  ASSERT_FALSE(mine.empty());
  EXPECT_EQ(mine[0], '/');
  bool named = mine == "/";
  std::ifstream file("/proc/self/cgroup");
  for (std::string line; std::getline(file, line);)
    named = named || line.substr(line.find(':', line.find(':') + 1) + 1) == mine;
  EXPECT_TRUE(named) << mine;
}

TEST(Cgroup, OfNobodyIsTheRoot) { EXPECT_EQ(cgroup_of(1 << 30), "/"); }

TEST(Cgroup, WithoutTheControllerHasNoLimitsOfTheKernel) {
  if (has_rdma_controller()) GTEST_SKIP() << "this kernel has the rdma controller";
  const auto set = set_rdma_max("/", "rxe0", 1, 1);
  ASSERT_FALSE(set);
  EXPECT_EQ(set.error().code(), EOPNOTSUPP);
}

}  // namespace
}  // namespace vrdma::provisioning
