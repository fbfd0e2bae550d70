#include "core/ipc/socket.h"

#include <dirent.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>
#include <tuple>

#include "core/ipc/messages.h"

namespace vrdma::ipc {
namespace {

using base::Fd;

int open_fds() {
  int count = 0;
  DIR* listing = ::opendir("/proc/self/fd");
  while (::readdir(listing) != nullptr) ++count;
  ::closedir(listing);
  return count;
}

struct Sockets : testing::Test {
  Sockets() {
    std::tie(here, there) = make_socket_pair(SOCK_NONBLOCK).value();
    before = open_fds();
  }
  int receive(size_t size) {
    buffer.assign(size, 0);
    const auto result = receive_message(there.get(), buffer.data(), size, &fds);
    return result ? 0 : result.error().code();
  }
  // Sends a message with any number of fds.
  void send_raw(size_t size, size_t count) {
    const Fd event(::eventfd(0, EFD_CLOEXEC));
    std::vector<char> data(size), control(CMSG_SPACE(sizeof(int) * std::max<size_t>(count, 1)));
    iovec piece{data.data(), size};
    msghdr message{};
    message.msg_iov = &piece;
    message.msg_iovlen = 1;
    if (count > 0) {
      message.msg_control = control.data();
      message.msg_controllen = CMSG_SPACE(sizeof(int) * count);
      cmsghdr* header = CMSG_FIRSTHDR(&message);
      header->cmsg_level = SOL_SOCKET;
      header->cmsg_type = SCM_RIGHTS;
      header->cmsg_len = CMSG_LEN(sizeof(int) * count);
      for (size_t i = 0; i < count; ++i) {
        const int fd = event.get();
        std::memcpy(CMSG_DATA(header) + i * sizeof fd, &fd, sizeof fd);
      }
    }
    ASSERT_EQ(::sendmsg(here.get(), &message, 0), static_cast<ssize_t>(size));
  }

  Fd here, there;
  std::vector<char> buffer;
  std::vector<Fd> fds;
  int before = 0;
};

TEST_F(Sockets, CarryMessagesAndDescriptors) {
  const Fd event(::eventfd(3, EFD_CLOEXEC));
  ASSERT_TRUE(send_message(here.get(), "hello", 5, {event.get(), event.get()}));
  ASSERT_TRUE(send_message(here.get(), "again", 5));
  ASSERT_EQ(receive(5), 0);
  EXPECT_EQ(std::string(buffer.data(), 5), "hello");
  ASSERT_EQ(fds.size(), 2u);
  EXPECT_NE(::fcntl(fds[1].get(), F_GETFD) & FD_CLOEXEC, 0);
  eventfd_t value = 0;
  ASSERT_EQ(::eventfd_read(fds[1].get(), &value), 0);
  EXPECT_EQ(value, 3u);
  ASSERT_EQ(receive(5), 0);
  EXPECT_EQ(fds.size(), 2u);
  EXPECT_EQ(receive(5), EAGAIN);
}

TEST_F(Sockets, RefuseWrongSizes) {
  for (const size_t size : {1u, 4u, 6u, 5000u}) {
    send_raw(size, 3);
    EXPECT_EQ(receive(5), EBADMSG) << size;
    fds.clear();
    EXPECT_EQ(open_fds(), before);
  }
  send_raw(5, 0);  // each message was received completely
  EXPECT_EQ(receive(5), 0);
}

TEST_F(Sockets, TakeAsManyDescriptorsAsAllowed) {
  send_raw(5, kMaxFds);
  EXPECT_EQ(receive(5), 0);
  EXPECT_EQ(fds.size(), kMaxFds);
}

TEST_F(Sockets, RefuseMoreAndLeakNone) {
  for (const size_t count : {kMaxFds + 1, kMaxFds + 2, size_t{100}, size_t{253}}) {
    send_raw(5, count);
    EXPECT_EQ(receive(5), EBADMSG) << count;
    fds.clear();
    EXPECT_EQ(open_fds(), before) << count;
  }
}

TEST_F(Sockets, RefuseToSendMore) {
  const std::vector<int> many(254, 0);
  EXPECT_EQ(send_message(here.get(), "hello", 5, many).error().code(), E2BIG);
  EXPECT_EQ(send_message(here.get(), "hello", 5, {-1}).error().code(), EBADF);
  EXPECT_EQ(receive(5), EAGAIN);
}

TEST_F(Sockets, TellTheEnd) {
  ASSERT_TRUE(send_message(here.get(), "hello", 5));
  here.reset();
  EXPECT_EQ(receive(5), 0);
  EXPECT_EQ(receive(5), ECONNRESET);
  EXPECT_EQ(send_message(there.get(), "hello", 5).error().code(), EPIPE);  // and no signal
}

TEST_F(Sockets, TellWhenFull) {
  int code = 0;
  for (int i = 0; i < 100'000 && code == 0; ++i) {
    const auto sent = send_message(here.get(), "hello", 5);
    code = sent ? 0 : sent.error().code();
  }
  EXPECT_EQ(code, EAGAIN);
}

// Messages with a size field: shorter and longer ones of a served version.
TEST_F(Sockets, TakeMessagesOfOtherSizes) {
  std::vector<uint8_t> bytes(600);
  Request request;
  request.call = Call::kRegMr;
  request.reg_mr.addr = 0x1122;
  request.reg_mr.length = 7;
  const auto take = [&](size_t length, uint32_t says, uint32_t version = kVersion) {
    Request sent = request;
    sent.size = says;
    sent.version = version;
    std::memcpy(bytes.data(), &sent, sizeof sent);
    EXPECT_TRUE(send_message(here.get(), bytes.data(), length));
    std::memset(static_cast<void*>(&sent), 0xaa, sizeof sent);
    const auto got = vrdma::ipc::receive(there.get(), &sent, &fds);
    if (!got) return got.error().code();
    EXPECT_EQ(sent.reg_mr.addr, length >= offsetof(Request, reg_mr) + 8 ? 0x1122u : 0u);
    EXPECT_EQ(sent.reg_mr.length, length >= offsetof(Request, reg_mr) + 16 ? 7u : 0u);
    for (size_t i = sizeof sent.reg_mr; i < sizeof sent.bytes; ++i) EXPECT_EQ(sent.bytes[i], 0);
    return 0;
  };
  EXPECT_EQ(take(sizeof request, sizeof request), 0);
  EXPECT_EQ(take(offsetof(Request, bytes), offsetof(Request, bytes)), 0);
  EXPECT_EQ(take(offsetof(Request, reg_mr) + 8, offsetof(Request, reg_mr) + 8), 0);
  EXPECT_EQ(take(600, 600), 0);
  EXPECT_EQ(take(600, sizeof request), EBADMSG);
  EXPECT_EQ(take(24, 600), EBADMSG);
  EXPECT_EQ(take(16, 16), EBADMSG) << "without a size";
  EXPECT_EQ(take(15, 15, 0), EBADMSG) << "without a version";
  EXPECT_EQ(take(176, 0, kOldestVersion - 1), 0) << "to be answered with an error";
  EXPECT_EQ(take(600, 0, kVersion + 1), 0) << "to be answered with an error";
  bytes[599] = 1;
  EXPECT_EQ(take(600, 600), EBADMSG) << "an unknown field";
  EXPECT_EQ(take(599, 599), 0);
}

TEST_F(Sockets, TellWhoSent) {
  Request request;
  Sender sender;
  ASSERT_TRUE(send_message(here.get(), &request, sizeof request));
  ASSERT_TRUE(vrdma::ipc::receive(there.get(), &request, &fds, &sender));
  EXPECT_EQ(sender.pid, 0) << "SO_PASSCRED is not set";
  const int on = 1;
  ASSERT_EQ(::setsockopt(there.get(), SOL_SOCKET, SO_PASSCRED, &on, sizeof on), 0);
  if (const pid_t child = ::fork(); child == 0) {
    ::_exit(send_message(here.get(), &request, sizeof request) ? 0 : 1);
  } else {
    ::waitpid(child, nullptr, 0);
    ASSERT_TRUE(vrdma::ipc::receive(there.get(), &request, &fds, &sender));
    EXPECT_EQ(sender.pid, child);
  }
  ASSERT_TRUE(send_message(here.get(), &request, sizeof request));
  ASSERT_TRUE(vrdma::ipc::receive(there.get(), &request, &fds, &sender));
  EXPECT_EQ(sender.pid, ::getpid());
  EXPECT_EQ(sender.uid, ::getuid());
  EXPECT_EQ(sender.gid, ::getgid());
}

}  // namespace
}  // namespace vrdma::ipc
