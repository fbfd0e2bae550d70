#include "netns/netns.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "core/base/netns_cookie.h"

namespace vrdma::netns {
namespace {

using testing::HasSubstr;

std::string pid_spec(pid_t pid) { return "pid:" + std::to_string(pid); }

TEST(Resolve, FindsTheNetnsOfAProcess) {
  const auto netns = resolve(pid_spec(::getpid()));
  ASSERT_TRUE(netns) << netns.error().message();
  const base::Fd socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  EXPECT_EQ(netns->cookie, *base::netns_cookie(socket.get()));
  EXPECT_EQ(::fcntl(netns->fd.get(), F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
  EXPECT_EQ(current()->cookie, netns->cookie);
}

TEST(Resolve, FindsANetnsByItsPath) {
  const auto netns = resolve("/proc/self/ns/net");
  ASSERT_TRUE(netns) << netns.error().message();
  EXPECT_EQ(netns->cookie, current()->cookie);
}

struct Bad {
  std::string spec;
  int code;
  std::string sentence;  // a substring of the sentence
};

void expect_refused(const Bad& bad) {
  const auto netns = resolve(bad.spec);
  ASSERT_FALSE(netns) << bad.spec;
  EXPECT_EQ(netns.error().code(), bad.code) << bad.spec << ": " << netns.error().message();
  EXPECT_THAT(netns.error().message(), HasSubstr(bad.sentence));
  EXPECT_EQ(netns.error().message().find('\n'), std::string::npos);
}

TEST(Resolve, SaysInASentenceWhatIsWrong) {
  for (const Bad& bad : std::initializer_list<Bad>{
           {"", EINVAL, "no netns is given"},
           {"no-such-netns", ENOENT, "there is no netns 'no-such-netns' in /run/netns"},
           {"a/b", EINVAL, "'a/b' is no netns"},
           {"..", EINVAL, "'..' is no netns"},
           {"a\nb", ENOENT, "'a?b'"},
           {std::string("a\0b", 3), EINVAL, "NUL"},
           {std::string(5000, 'x'), ENAMETOOLONG, "File name too long"},
           {"/no/such/netns", ENOENT, "'/no/such/netns': No such file"},
           {"/etc/passwd", EINVAL, "'/etc/passwd' is not a network namespace"},
           {"/proc", EINVAL, "'/proc' is not a network namespace"},
           {"/dev/null", EINVAL, "'/dev/null' is not a network namespace"},
           {"/proc/self/ns/mnt", EINVAL, "'/proc/self/ns/mnt' is not a network namespace"},
           {"pid:", EINVAL, "'pid:' names no process"},
           {"pid:0", EINVAL, "'pid:0' names no process"},
           {"pid:abc", EINVAL, "'pid:abc' names no process"},
           {"pid:-1", EINVAL, "'pid:-1' names no process"},
           {"pid:1/../2", EINVAL, "names no process"},
           {"pid:999999999", ESRCH, "there is no process 999999999"},
           {"pid:99999999999999999999", ESRCH, "there is no process"}})
    expect_refused(bad);
}

TEST(Resolve, DoesNotOpenAFifo) {
  std::string directory = testing::TempDir() + "netns_test.XXXXXX";
  ASSERT_NE(::mkdtemp(directory.data()), nullptr);
  const std::string fifo = directory + "/fifo";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  expect_refused({fifo, EINVAL, "is not a network namespace"});  // open(2) would block here
  ::unlink(fifo.c_str());
  ::rmdir(directory.c_str());
}

TEST(Resolve, KnowsAProcessThatEnds) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  siginfo_t info{};
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT), 0);
  expect_refused({pid_spec(child), ESRCH, std::to_string(child)});
  ::waitpid(child, nullptr, 0);
  expect_refused({pid_spec(child), ESRCH, "there is no process"});
}

TEST(NetnsCookie, RefusesWhatIsNoSocket) {
  const base::Fd file(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  const auto cookie = base::netns_cookie(file.get());
  ASSERT_FALSE(cookie);
  EXPECT_EQ(cookie.error().code(), ENOTSOCK);
}

}  // namespace
}  // namespace vrdma::netns
