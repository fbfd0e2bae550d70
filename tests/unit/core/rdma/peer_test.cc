#include "core/rdma/peer.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <functional>
#include <utility>
#include <vector>

namespace vrdma::rdma {
namespace {

using base::Fd;

// A child that made its end of a socket pair, so that it is the peer of the test's end.
struct Child {
  Fd socket;
  pid_t pid = 0;
  Fd commands;

  // Runs `steps` in turn, one for each byte that tell() writes, and waits for the end.
  explicit Child(const std::vector<std::function<void()>>& steps = {}) {
    std::array<int, 2> told{}, done{}, pass{};
    EXPECT_EQ(::pipe(told.data()), 0);
    EXPECT_EQ(::pipe(done.data()), 0);
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pass.data()), 0);
    pid = ::fork();
    if (pid == 0) {
      ::close(told[1]);
      std::array<int, 2> ends{};
      (void)::socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends.data());
      send_fd(pass[1], ends[0]);
      char byte = 0;
      for (const auto& step : steps) {
        if (::read(told[0], &byte, 1) != 1) break;
        step();
        (void)!::write(done[1], &byte, 1);
      }
      while (::read(told[0], &byte, 1) == 1) {
      }
      ::_exit(0);
    }
    socket = receive_fd(pass[0]);
    commands = Fd(told[1]);
    answers = Fd(done[0]);
    for (const int fd : {told[0], done[1], pass[0], pass[1]}) ::close(fd);
  }
  ~Child() {
    if (pid > 0) die();
  }
  void tell() {
    char byte = 0;
    ASSERT_EQ(::write(commands.get(), &byte, 1), 1);
    ASSERT_EQ(::read(answers.get(), &byte, 1), 1);
  }
  void die() {
    ::kill(pid, SIGKILL);
    ::waitpid(std::exchange(pid, 0), nullptr, 0);
  }

 private:
  Fd answers;
  static void send_fd(int over, int fd) {
    msghdr message{};
    iovec piece{&fd, 1};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof fd)]{};
    message.msg_iov = &piece;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof fd);
    std::memcpy(CMSG_DATA(header), &fd, sizeof fd);
    (void)::sendmsg(over, &message, 0);
  }
  static Fd receive_fd(int over) {
    msghdr message{};
    char byte = 0;
    iovec piece{&byte, 1};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))]{};
    message.msg_iov = &piece;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    EXPECT_EQ(::recvmsg(over, &message, 0), 1);
    int fd = -1;
    std::memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fd);
    return Fd(fd);
  }
};

void become_another() { (void)!::setresuid(65534, 65534, 65534); }
void run_another() { ::execl("/bin/sleep", "sleep", "60", nullptr); }

TEST(Peers, AreThoseWhoConnected) {
  Child child;
  const auto handle = identify_peer(child.socket.get());
  ASSERT_TRUE(handle) << handle.error().message();
  const Peer& peer = handle->peer;
  EXPECT_EQ(peer.pid, child.pid);
  EXPECT_EQ(peer.uid(), ::geteuid());
  EXPECT_EQ(peer.gid(), ::getegid());
  EXPECT_EQ(peer.start_time, start_time_of(child.pid).value_or(0));
  EXPECT_NE(peer.start_time, 0u);
  EXPECT_NE(peer.program, 0u);
  EXPECT_NE(peer.netns_cookie, 0u);
  EXPECT_NE(peer.executable.inode, 0u);
  struct stat space {};
  ASSERT_EQ(::stat("/proc/self/ns/user", &space), 0);
  EXPECT_EQ(peer.user_namespace.inode, space.st_ino);
  ASSERT_EQ(::stat("/proc/self/ns/net", &space), 0);
  EXPECT_EQ(peer.network_namespace.inode, space.st_ino);
  EXPECT_EQ(peer.secure, 0u);
  EXPECT_EQ(peer.dumpable, 1u);
  EXPECT_EQ(reason_to_refuse(peer), "");
  EXPECT_TRUE(is_unchanged(*handle));
  for (const bool writable : {false, true}) {
    const auto files = open_memory(*handle, writable);
    ASSERT_TRUE(files);
    EXPECT_EQ(::fcntl(files->memory.get(), F_GETFL) & O_ACCMODE, writable ? O_RDWR : O_RDONLY);
  }
  pollfd alive{handle->pidfd.get(), POLLIN, 0};
  EXPECT_EQ(::poll(&alive, 1, 0), 0);
}

TEST(Peers, AreFoundAgainAsTheyWere) {
  Child child;
  const auto handle = identify_peer(child.socket.get());
  ASSERT_TRUE(handle);
  const auto again = find_peer(handle->peer);
  ASSERT_TRUE(again);
  EXPECT_EQ(again->peer, handle->peer);
  for (const auto& change : std::vector<std::function<void(Peer&)>>{
           [](Peer& peer) { ++peer.start_time; }, [](Peer& peer) { ++peer.program; },
           [](Peer& peer) { ++peer.uids[2]; }, [](Peer& peer) { ++peer.gids[3]; },
           [](Peer& peer) { peer.permitted ^= 1; }, [](Peer& peer) { ++peer.executable.inode; },
           [](Peer& peer) { ++peer.user_namespace.inode; },
           [](Peer& peer) { ++peer.network_namespace.inode; },
           [](Peer& peer) { peer.dumpable ^= 1; }}) {
    Peer other = handle->peer;
    change(other);
    EXPECT_NE(find_peer(other).error().message().find("has changed"), std::string::npos);
  }
}

TEST(Peers, AreNotWhoTheyWereWithOtherIds) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root";
  Child child({become_another});
  const auto handle = identify_peer(child.socket.get());
  ASSERT_TRUE(handle);
  child.tell();
  EXPECT_EQ(is_unchanged(*handle).error().code(), EPERM);
  EXPECT_EQ(open_memory(*handle, true).error().code(), EPERM);
  EXPECT_FALSE(identify_peer(child.socket.get())) << "it connected as root";
}

TEST(Peers, AreNotWhoTheyWereInAnotherNamespace) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root";
  Child child({[] { (void)::unshare(CLONE_NEWNET); }});
  const auto handle = identify_peer(child.socket.get());
  ASSERT_TRUE(handle);
  child.tell();
  EXPECT_FALSE(is_unchanged(*handle));
}

TEST(Peers, AreNotWhoTheyWereAfterExec) {
  Child child({run_another});
  const auto handle = identify_peer(child.socket.get());
  ASSERT_TRUE(handle);
  ASSERT_EQ(::write(child.commands.get(), "", 1), 1);
  for (int i = 0; i < 1000 && is_unchanged(*handle); ++i) ::usleep(1000);
  EXPECT_FALSE(is_unchanged(*handle));
  EXPECT_FALSE(open_memory(*handle, true));
}

TEST(Peers, ThatHaveEndedAreNobody) {
  Child child, late;
  const auto handle = identify_peer(child.socket.get());
  ASSERT_TRUE(handle);
  child.die();
  EXPECT_FALSE(is_unchanged(*handle));
  EXPECT_FALSE(open_memory(*handle, true));
  EXPECT_NE(find_peer(handle->peer).error().message().find("has ended"), std::string::npos);
  late.die();
  EXPECT_FALSE(identify_peer(late.socket.get()));
}

TEST(Peers, WithOtherEffectiveIdsAreRefused) {
  Peer peer;
  EXPECT_EQ(reason_to_refuse(peer), "");
  for (size_t i = 0; i < peer.uids.size(); ++i) {
    Peer other = peer;
    other.uids[i] = 7;
    EXPECT_NE(reason_to_refuse(other), "");
    other = peer;
    other.gids[i] = 7;
    EXPECT_NE(reason_to_refuse(other), "");
  }
  peer.secure = 1;
  EXPECT_NE(reason_to_refuse(peer), "");
}

TEST(Peers, OfAnythingButASocketAreNot) {
  EXPECT_FALSE(identify_peer(-1));
  EXPECT_FALSE(identify_peer(STDERR_FILENO));
}

}  // namespace
}  // namespace vrdma::rdma
