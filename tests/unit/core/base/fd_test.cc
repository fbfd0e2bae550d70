#include "core/base/fd.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/eventfd.h>

namespace vrdma::base {
namespace {

bool is_open(int fd) { return ::fcntl(fd, F_GETFD) >= 0; }

TEST(Fd, ClosesOnce) {
  int raw = -1;
  {
    const Fd fd(::eventfd(0, EFD_CLOEXEC));
    raw = fd.get();
    EXPECT_TRUE(fd.valid());
  }
  EXPECT_FALSE(is_open(raw));
}

TEST(Fd, MovesItsDescriptor) {
  Fd first(::eventfd(0, EFD_CLOEXEC));
  const int raw = first.get();
  Fd second(std::move(first));
  EXPECT_FALSE(first.valid());  // NOLINT(bugprone-use-after-move): under test
  Fd third(::eventfd(0, EFD_CLOEXEC));
  const int replaced = third.get();
  third = std::move(second);
  EXPECT_EQ(third.get(), raw);
  EXPECT_FALSE(is_open(replaced));
  EXPECT_EQ(third.release(), raw);
  EXPECT_FALSE(third.valid());
  EXPECT_TRUE(is_open(raw));
  ::close(raw);
}

TEST(Fd, ResetKeepsErrno) {
  Fd fd(::eventfd(0, EFD_CLOEXEC));
  ::close(fd.get());  // so that the close() in reset() fails
  errno = EXDEV;
  fd.reset();
  EXPECT_EQ(errno, EXDEV);
}

TEST(Fd, DuplicateSharesItsDescriptionReopenDoesNot) {
  const Fd fd(::open("/dev/null", O_RDWR | O_CLOEXEC));
  const auto copy = fd.duplicate();
  const auto fresh = fd.reopen(O_WRONLY);
  ASSERT_TRUE(copy && fresh);
  EXPECT_NE(::fcntl(copy->get(), F_GETFD) & FD_CLOEXEC, 0);
  EXPECT_NE(::fcntl(fresh->get(), F_GETFD) & FD_CLOEXEC, 0);
  ASSERT_EQ(::fcntl(fd.get(), F_SETFL, O_NONBLOCK), 0);
  EXPECT_NE(::fcntl(copy->get(), F_GETFL) & O_NONBLOCK, 0);
  EXPECT_EQ(::fcntl(fresh->get(), F_GETFL) & O_NONBLOCK, 0);
  EXPECT_EQ(::fcntl(fresh->get(), F_GETFL) & O_ACCMODE, O_WRONLY);
}

TEST(Fd, OfNothingCannotBeDuplicated) {
  EXPECT_EQ(Fd().duplicate().error().code(), EBADF);
  EXPECT_FALSE(Fd().reopen(O_RDONLY));
}

}  // namespace
}  // namespace vrdma::base
