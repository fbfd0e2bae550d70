#include "client/device/memory/pins.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/aio_abi.h>
#include <linux/userfaultfd.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>

#include "core/base/fd.h"

namespace vrdma::client {
namespace {

TEST(Pins, APlainProcessHasNone) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  EXPECT_FALSE(may_have_pinned_pages({}));
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST(Pins, ARingMayHaveSome) {
  alignas(8) uint8_t parameters[120] = {};  // struct io_uring_params
  const base::Fd ring(static_cast<int>(::syscall(SYS_io_uring_setup, 4, parameters)));
  if (!ring.valid()) GTEST_SKIP() << "this host forbids io_uring";
  EXPECT_TRUE(may_have_pinned_pages({}));
}

TEST(Pins, AsynchronousRequestsMayHaveSome) {
  aio_context_t context = 0;
  ASSERT_EQ(::syscall(SYS_io_setup, 4, &context), 0);
  EXPECT_TRUE(may_have_pinned_pages({}));
  ASSERT_EQ(::syscall(SYS_io_destroy, context), 0);
  EXPECT_FALSE(may_have_pinned_pages({}));
}

TEST(Pins, OwnDescriptorsDoNotCount) {
  const base::Fd events(
      static_cast<int>(::syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY)));
  if (!events.valid()) GTEST_SKIP() << "this host forbids userfaultfd(2)";
  EXPECT_TRUE(may_have_pinned_pages({}));
  EXPECT_FALSE(may_have_pinned_pages({-1, events.get()}));
}

}  // namespace
}  // namespace vrdma::client
