// What the daemon gives away and gives up when it starts.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>

#include "tests/unit/vrdmad/admin/fixture.h"
#include "vrdmad/daemon_user.h"
#include "vrdmad/privileges.h"
#include "vrdmad/system_calls.h"

namespace vrdma::vrdmad {
namespace {

namespace fs = std::filesystem;
constexpr User kDaemon{64789, 64789};

struct Gifts : testing::Test {
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "needs root";
  }
  [[nodiscard]] std::string at(const std::string& name) const { return temp.path() + "/" + name; }
  static void write(const std::string& path) { std::ofstream(path) << "x"; }
  static uid_t owner(const std::string& path) {
    struct stat status {};
    return ::lstat(path.c_str(), &status) == 0 ? status.st_uid : ~uid_t{0};
  }
  const TempDir temp;
};

TEST_F(Gifts, AreADirectoryAndAllInIt) {
  const OwnDirectory own{at("run/vrdma"), 0750, {"state", "file*"}, "broker"};
  ASSERT_TRUE(give(own, kDaemon));
  EXPECT_EQ(owner(at("run")), 0u);
  EXPECT_EQ(owner(own.path), kDaemon.uid);
  // As systemd does at a restart.
  ASSERT_EQ(::chown(own.path.c_str(), 0, 0), 0);
  fs::create_directories(own.path + "/state/deep");
  fs::create_directory(own.path + "/broker");
  write(own.path + "/state/deep/file");
  write(own.path + "/file1");
  ASSERT_TRUE(give(own, kDaemon));
  for (const char* name : {"", "/state", "/state/deep", "/state/deep/file", "/file1"})
    EXPECT_EQ(owner(own.path + name), kDaemon.uid) << name;
  EXPECT_EQ(owner(own.path + "/broker"), 0u);
}

TEST_F(Gifts, AreNothingOfOthers) {
  const OwnDirectory own{at("run"), 0755, {"state"}, {}};
  fs::create_directory(own.path);
  write(own.path + "/passwd");
  const auto refused = give(own, kDaemon);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message().find("passwd"), std::string::npos);
  EXPECT_EQ(owner(own.path), 0u);
  fs::remove(own.path + "/passwd");
  ::chmod(own.path.c_str(), 0777);
  EXPECT_FALSE(give(own, kDaemon)) << "others can write to it";
}

TEST_F(Gifts, DoNotFollowLinks) {
  fs::create_directory(at("root"));
  write(at("root/state"));
  fs::create_directory_symlink(at("root"), at("link"));
  EXPECT_TRUE(give({at("link"), 0755, {"*"}, {}}, kDaemon));
  EXPECT_EQ(owner(at("root/state")), 0u);
  EXPECT_TRUE(give({at("link/below"), 0755, {"*"}, {}}, kDaemon));
  EXPECT_FALSE(fs::exists(at("root/below")));
  EXPECT_TRUE(give_file(at("link/state"), kDaemon));
  EXPECT_EQ(owner(at("root/state")), 0u);
  fs::create_symlink(at("root/state"), at("log"));
  EXPECT_FALSE(give_file(at("log"), kDaemon));
  EXPECT_EQ(owner(at("root/state")), 0u);
  // In a directory of another user, any part can be replaced.
  fs::create_directory(at("theirs"));
  ASSERT_EQ(::chown(at("theirs").c_str(), kDaemon.uid, kDaemon.gid), 0);
  fs::create_directory(at("theirs/state"));
  EXPECT_TRUE(give({at("theirs/state"), 0755, {"*"}, {}}, kDaemon));
  EXPECT_EQ(owner(at("theirs/state")), 0u);
}

TEST_F(Gifts, AreNoFilesWithASecondName) {
  fs::create_directory(at("run"));
  write(at("secret"));
  fs::create_hard_link(at("secret"), at("run/state"));
  EXPECT_TRUE(give({at("run"), 0755, {"*"}, {}}, kDaemon));
  EXPECT_EQ(owner(at("run")), kDaemon.uid);
  EXPECT_EQ(owner(at("secret")), 0u);
  fs::create_hard_link(at("secret"), at("log"));
  EXPECT_TRUE(give_file(at("log"), kDaemon));
  EXPECT_EQ(owner(at("secret")), 0u);
  EXPECT_TRUE(give_file(at("new"), kDaemon));
  EXPECT_EQ(owner(at("new")), kDaemon.uid);
}

TEST(Users, HaveNamesOrNumbers) {
  const auto root = find_user("root");
  ASSERT_TRUE(root);
  EXPECT_EQ(root->uid, 0u);
  EXPECT_EQ(find_user("no such user").error().code(), ENOENT);
  EXPECT_EQ(find_user("12x").error().code(), ENOENT);
  if (const auto man = find_user("man")) {
    const auto same = find_user(std::to_string(man->uid));
    ASSERT_TRUE(same);
    EXPECT_EQ(same->gid, man->gid) << "a number is a user of that name";
  }
}

// The errno of a call under the filter; 0: it succeeds.
int filtered(base::Result<void> (*confine)(), int (*call)()) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(!confine() ? 255 : call() == 0 ? 0 : errno);
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(Filters, ForbidWhatWouldGiveCapabilitiesOrATerminal) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || defined(VRDMA_COVERAGE)
  GTEST_SKIP() << "there are no filters with a sanitizer";
#endif
  for (const auto confine : {&confine_system_calls, &confine_broker, &confine_intake,
                             &confine_stopper, &confine_metrics}) {
    EXPECT_EQ(filtered(confine, [] { return ::getpid() > 0 ? 0 : -1; }), 0);
    EXPECT_EQ(filtered(confine,
                       [] {
                         return static_cast<int>(::syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD,
                                                           nullptr, nullptr, nullptr, 0));
                       }),
              EPERM);
    EXPECT_EQ(filtered(confine, [] { return static_cast<int>(::syscall(SYS_clone3, 0, 0)); }),
              ENOSYS);
    EXPECT_EQ(filtered(confine, [] { return ::execl("/bin/true", "true", nullptr); }), ENOSYS);
    EXPECT_EQ(filtered(confine,
                       [] {
                         return static_cast<int>(
                             ::syscall(SYS_execveat, -1, "", nullptr, nullptr, AT_EMPTY_PATH));
                       }),
              confine == &confine_broker ? EBADF : ENOSYS);
    EXPECT_EQ(filtered(confine, [] { return ::unshare(CLONE_NEWUSER); }), ENOSYS);
  }
  for (const auto confine : {&confine_system_calls, &confine_broker})
    EXPECT_EQ(filtered(confine,
                       [] {
                         char key = 'x';
                         // The kernel ignores what is above 32 bits.
                         return static_cast<int>(
                             ::syscall(SYS_ioctl, 0, uint64_t{1} << 32 | TIOCSTI, &key));
                       }),
              EPERM);
}

TEST(Filters, ForbidWhatOtherProcessesDo) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || defined(VRDMA_COVERAGE)
  GTEST_SKIP() << "there are no filters with a sanitizer";
#endif
  const auto trace = [] {
    return static_cast<int>(::syscall(SYS_ptrace, PTRACE_TRACEME, 0, nullptr, nullptr));
  };
  const auto mount = [] { return ::mount("none", "/proc/none", "tmpfs", 0, nullptr); };
  const auto make_socket = [] { return ::socket(AF_UNIX, SOCK_STREAM, 0) < 0 ? -1 : 0; };
  const auto read_file = [] { return ::open("/dev/null", O_RDONLY) < 0 ? -1 : 0; };
  for (const auto confine : {&confine_system_calls, &confine_broker, &confine_intake,
                             &confine_stopper, &confine_metrics}) {
    EXPECT_EQ(filtered(confine, trace), confine == &confine_stopper ? 0 : ENOSYS);
    EXPECT_EQ(filtered(confine, mount), ENOSYS);
  }
  for (const auto confine : {&confine_intake, &confine_stopper, &confine_metrics})
    EXPECT_EQ(filtered(confine, make_socket), ENOSYS);
  EXPECT_EQ(filtered(confine_intake, read_file), ENOSYS);
  for (const auto confine : {&confine_stopper, &confine_metrics}) {
    EXPECT_EQ(filtered(confine, read_file), 0);
    EXPECT_EQ(filtered(confine, [] { return ::open("/dev/null", O_WRONLY) < 0 ? -1 : 0; }), EPERM);
  }
  EXPECT_EQ(filtered(confine_stopper, [] { return ::open("/dev/null", O_RDWR) < 0 ? -1 : 0; }),
            EPERM);
  EXPECT_EQ(filtered(confine_stopper,
                     [] { return ::open("/tmp", O_TMPFILE | O_WRONLY, 0600) < 0 ? -1 : 0; }),
            EPERM);
}

}  // namespace
}  // namespace vrdma::vrdmad
