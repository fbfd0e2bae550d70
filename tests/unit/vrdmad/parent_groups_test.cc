// Where the control groups of workers are made. Version 2 is imitated by files.
#include "vrdmad/parent_groups.h"

#include <gtest/gtest.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>

#include "tests/unit/vrdmad/admin/fixture.h"

namespace vrdma::vrdmad {
namespace {

namespace fs = std::filesystem;
using Words = std::vector<std::string>;

std::vector<Hierarchy> find(const std::string& mountinfo, const std::string& groups) {
  std::istringstream mounts(mountinfo), own(groups);
  return find_hierarchies(mounts, own);
}

TEST(Hierarchies, AreFoundInEachVersion) {
  const auto all = find(
      "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n"
      "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw shared:9 - cgroup cgroup rw,cpu,cpuacct\n"
      "33 31 0:29 / /other/cpu rw - cgroup cgroup rw,cpu,cpuacct\n"
      "36 31 0:30 /box /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n"
      "37 31 0:31 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,name=systemd\n"
      "38 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw,nsdelegate\n",
      "9:name=systemd:/service\n8:pids:/box/in\n3:memory:/m\n1:cpu,cpuacct:/a:b\n0::/two\n");
  ASSERT_EQ(all.size(), 4u);
  EXPECT_EQ(all[0].mount, "/sys/fs/cgroup/cpu,cpuacct");
  EXPECT_EQ(all[0].own, "/a:b");
  EXPECT_TRUE(all[0].has("cpu") && all[0].has("cpuacct") && !all[0].has("pids"));
  EXPECT_EQ(all[1].directory(all[1].own), "/sys/fs/cgroup/pids/in");
  EXPECT_EQ(all[1].directory("/box"), "/sys/fs/cgroup/pids");
  EXPECT_EQ(all[1].directory("/boxes"), "");
  EXPECT_EQ(all[1].directory("/"), "");
  EXPECT_TRUE(all[2].has("name=systemd"));
  EXPECT_TRUE(all[3].unified);
  EXPECT_EQ(all[3].directory("/two"), "/sys/fs/cgroup/unified/two");
  EXPECT_EQ(all[3].directory("/"), "/sys/fs/cgroup/unified");
}

TEST(Hierarchies, AreNotFoundInNonsense) {
  EXPECT_TRUE(find("", "").empty());
  EXPECT_TRUE(find("- - cgroup2\n1 2 3 4 5 6 - cgroup2\n\n", "0::/\n").empty());
  EXPECT_TRUE(find("38 31 0:38 / /sys rw - cgroup2 cgroup2 rw\n", "0:/\n\n1:cpu:/\n").empty());
}

TEST(GroupPaths, AreAbsoluteAndNormal) {
  for (const char* path : {"/", "/a", "/a/b.c/d"}) EXPECT_TRUE(is_group_path(path)) << path;
  for (const char* path : {"", "a", "/a/", "/../a", "/a/./b", "/a//b", "/a/.."})
    EXPECT_FALSE(is_group_path(path)) << path;
}

// A unified hierarchy of files, in which this process is in /service.
struct Unified : testing::Test {
  Unified() {
    put("cgroup.controllers", "cpuset cpu io memory pids\n");
    for (const char* group : {"/service", "/service/daemon", "/other"}) {
      fs::create_directories(temp.path() + group);
      put(std::string(group) + "/cgroup.controllers", "cpu memory pids\n");
      for (const char* file : {"/cgroup.procs", "/cgroup.subtree_control", "/cgroup.type"})
        put(std::string(group) + file, "");
    }
  }
  void put(const std::string& file, const std::string& text) const {
    std::ofstream(temp.path() + "/" + file) << text;
  }
  [[nodiscard]] std::string get(const std::string& file) const {
    std::ifstream in(temp.path() + "/" + file);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  [[nodiscard]] auto prepare(const std::string& asked) const {
    return prepare_parent_groups(asked, {{true, {}, "/", temp.path(), "/service"}});
  }
  const TempDir temp;
};

TEST_F(Unified, GivesTheNamedGroupItsControllers) {
  EXPECT_EQ(prepare("/other").value(), Words{temp.path() + "/other"});
  EXPECT_EQ(get("other/cgroup.subtree_control"), "+memory") << "the last that was written";
  EXPECT_EQ(get("service/daemon/cgroup.procs"), "") << "it left its group for another one";
}

TEST_F(Unified, LeavesAGroupThatIsItsOwn) {
  EXPECT_EQ(prepare("/service").value(), Words{temp.path() + "/service"});
  EXPECT_EQ(get("service/daemon/cgroup.procs"), "0");
  EXPECT_EQ(get("service/cgroup.subtree_control"), "+memory");
}

TEST_F(Unified, IsNotUsedUnlessItIsDelegated) {
  EXPECT_EQ(prepare("").value(), Words{});
  EXPECT_EQ(get("service/cgroup.subtree_control"), "");
  const std::string service = temp.path() + "/service";
  if (::setxattr(service.c_str(), "trusted.delegate", "1", 1, 0) != 0)
    GTEST_SKIP() << "needs root and a file system with trusted extended attributes";
  EXPECT_EQ(prepare("").value(), Words{service});
  EXPECT_EQ(prepare("none").value(), Words{});
  ASSERT_EQ(::setxattr(service.c_str(), "trusted.delegate", "0", 1, 0), 0);
  EXPECT_EQ(prepare("").value(), Words{});
}

TEST_F(Unified, MustHaveAController) {
  put("other/cgroup.controllers", "io\n");
  const auto none = prepare("/other");
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().message(),
            "--cgroup: the control group /other has none of the controllers cpu, pids and memory: "
            "enable them in cgroup.subtree_control of the group above it");
  put("cgroup.controllers", "io\n");
  EXPECT_FALSE(prepare("/fresh"));
  EXPECT_FALSE(fs::exists(temp.path() + "/fresh")) << "it was made for nothing";
}

TEST_F(Unified, SaysWhatCannotBeWritten) {
  if (::geteuid() != 0) fs::permissions(temp.path() + "/other", fs::perms::none);
  fs::remove(temp.path() + "/other/cgroup.subtree_control");
  const auto none = prepare("/other");
  ASSERT_FALSE(none);
  EXPECT_NE(none.error().message().find("write +cpu to " + temp.path() + "/other"),
            std::string::npos)
      << none.error().message();
}

}  // namespace
}  // namespace vrdma::vrdmad
