#include "vrdmad/control/run_dir.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "tests/unit/vrdmad/admin/fixture.h"

namespace vrdma::vrdmad {
namespace {

namespace fs = std::filesystem;

void make_socket(const std::string& path) {
  const base::Fd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, path.size());
  ASSERT_EQ(::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
}

unsigned mode_of(const std::string& path) {
  struct stat status {};
  EXPECT_EQ(::stat(path.c_str(), &status), 0) << path;
  return status.st_mode & 07777;
}

uint64_t inode_of(const std::string& path) {
  struct stat status {};
  EXPECT_EQ(::stat(path.c_str(), &status), 0) << path;
  return status.st_ino;
}

TEST(RunDir, makes_its_directories_and_leaves_only_what_containers_mount) {
  const TempDir temp;
  const std::string path = temp.path() + "/a/b";
  const mode_t before = ::umask(077);
  {
    auto dir = RunDir::open(path + "/");
    ASSERT_TRUE(dir) << dir.error().message();
    EXPECT_EQ(dir->path(), path);
    EXPECT_EQ(mode_of(path), 0755U);
    EXPECT_EQ(mode_of(path + "/netns"), 0711U) << "tenants cannot list the namespaces";
    EXPECT_EQ(mode_of(path + "/sysfs"), 0711U) << "a hook without root reaches its own";
    EXPECT_EQ(mode_of(path + "/vrdmad.lock"), 0600U);
    const auto netns = dir->make_netns_dir(77);
    ASSERT_TRUE(netns);
    EXPECT_EQ(*netns, path + "/netns/77");
    EXPECT_EQ(mode_of(*netns), 0755U);
    EXPECT_EQ(dir->sysfs_dir(77), path + "/sysfs/77");
    EXPECT_EQ(mode_of(path + "/sysfs/77"), 0700U) << "only root may read names and addresses";
    ASSERT_TRUE(dir->let_read(77, 4711));
    EXPECT_EQ(mode_of(path + "/sysfs/77"), 0750U) << "the group is the mask of the ACL";
    EXPECT_TRUE(dir->make_netns_dir(77)) << "a second vdevice of that netns";
    EXPECT_EQ(mode_of(path + "/sysfs/77"), 0750U) << "the user may still read it";
    ASSERT_TRUE(dir->make_netns_dir(78));
    dir->remove_netns_dir(78);
    EXPECT_FALSE(fs::exists(path + "/netns/78") || fs::exists(path + "/sysfs/78"));
    make_socket(path + "/admin.sock");
    make_socket(path + "/netns/77/0.sock");
    dir->remove_netns_dir(77);
    EXPECT_TRUE(fs::exists(path + "/sysfs/77")) << "another vdevice of that netns has a socket";
  }
  ::umask(before);
  for (const auto& entry : fs::directory_iterator(path)) EXPECT_EQ(entry.path(), path + "/netns");
  EXPECT_TRUE(fs::is_empty(path + "/netns/77"));
  const base::Fd held(::open((path + "/netns").c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  const auto next = RunDir::open(path);
  ASSERT_TRUE(next && next->make_netns_dir(79));
  EXPECT_EQ(::faccessat(held.get(), "79", F_OK, 0), 0) << "another directory remains";
}

TEST(RunDir, keeps_the_directories_of_a_namespace_over_a_restart) {
  const TempDir temp;
  const std::string netns = temp.path() + "/netns/5", sysfs = temp.path() + "/sysfs/5/red0";
  {
    const auto dir = RunDir::open(temp.path());
    ASSERT_TRUE(dir && dir->make_netns_dir(5));
    fs::create_directory(sysfs);
  }
  const uint64_t before = inode_of(netns), tree = inode_of(sysfs);
  make_socket(netns + "/0.sock");  // of a daemon that was killed
  const auto next = RunDir::open(temp.path());
  ASSERT_TRUE(next && next->make_netns_dir(5));
  next->keep({{5, {"red0"}}});
  EXPECT_TRUE(fs::is_empty(netns));
  EXPECT_EQ(inode_of(netns), before) << "a container has it mounted";
  EXPECT_EQ(inode_of(sysfs), tree);
}

TEST(RunDir, a_second_daemon_is_refused_and_harms_nothing) {
  const TempDir temp;
  const auto first = RunDir::open(temp.path());
  ASSERT_TRUE(first);
  make_socket(first->admin_socket());
  const auto second = RunDir::open(temp.path());
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code(), EBUSY);
  EXPECT_EQ(second.error().message(), "another vrdmad (pid " + std::to_string(::getpid()) +
                                          ") already runs on " + temp.path());
  EXPECT_TRUE(fs::exists(first->admin_socket()));
}

TEST(RunDir, replaces_what_a_dead_daemon_left) {
  const TempDir temp;
  fs::create_directories(temp.path() + "/netns/5");
  make_socket(temp.path() + "/admin.sock");
  make_socket(temp.path() + "/netns/5/0.sock");
  fs::create_directories(temp.path() + "/sysfs/6/blue0");
  fs::create_directories(temp.path() + "/sysfs/5/red0/infiniband");
  fs::create_directories(temp.path() + "/sysfs/5/red1~/infiniband");  // killed while building it
  ASSERT_EQ(::chmod((temp.path() + "/netns").c_str(), 0755), 0);      // as older daemons did
  std::ofstream(temp.path() + "/vrdmad.lock") << "999999\n";
  std::ofstream(temp.path() + "/notes") << "mine\n";
  {
    const auto dir = RunDir::open(temp.path());
    ASSERT_TRUE(dir) << dir.error().message();
    EXPECT_FALSE(fs::exists(temp.path() + "/admin.sock"));
    EXPECT_TRUE(fs::is_empty(temp.path() + "/netns/5"));
    EXPECT_EQ(mode_of(temp.path() + "/netns"), 0711U);
    dir->keep({{5, {"red0"}}});
    EXPECT_TRUE(fs::exists(temp.path() + "/sysfs/5/red0/infiniband"));
    EXPECT_FALSE(fs::exists(temp.path() + "/sysfs/5/red1~"));
    EXPECT_FALSE(fs::exists(temp.path() + "/sysfs/6"));
    dir->keep({{5, {}}});
    EXPECT_TRUE(fs::is_empty(temp.path() + "/sysfs/5")) << "its vdevices may be shown later";
    EXPECT_TRUE(fs::exists(temp.path() + "/netns/5"));
    dir->keep({});
    EXPECT_TRUE(fs::is_empty(temp.path() + "/sysfs"));
    EXPECT_TRUE(fs::is_empty(temp.path() + "/netns"));
  }
  EXPECT_TRUE(fs::exists(temp.path() + "/notes")) << "only sockets are removed";
  EXPECT_FALSE(fs::exists(temp.path() + "/vrdmad.lock"));
  EXPECT_TRUE(RunDir::open(temp.path())) << "the holder's end releases the lock";
}

TEST(RunDir, refuses_a_directory_where_others_may_write) {
  const TempDir temp;
  ASSERT_EQ(::chmod(temp.path().c_str(), 0777), 0);
  const auto dir = RunDir::open(temp.path());
  ASSERT_FALSE(dir);
  EXPECT_EQ(dir.error().message(), temp.path() + " is writable by other users");
}

TEST(RunDir, says_what_it_cannot_make) {
  const auto dir = RunDir::open("/proc/nowhere");
  ASSERT_FALSE(dir);
  EXPECT_EQ(dir.error().message(), "make the directory /proc/nowhere: No such file or directory");
  const TempDir temp;
  std::ofstream(temp.path() + "/file") << "x";
  const auto file = RunDir::open(temp.path() + "/file");
  ASSERT_FALSE(file);
  EXPECT_EQ(file.error().message(), temp.path() + "/file is not a directory");
}

}  // namespace
}  // namespace vrdma::vrdmad
