#include "client/device/memory/pins.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/aio_abi.h>
#include <linux/userfaultfd.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <string>

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

// In a namespace that has another device under the name of an adapter. What a child ends with.
enum Seen : int { kAsExpected = 0, kWrong = 1, kNotPermitted = 2 };

Seen look_beside_an_adapter() {
  constexpr char kAdapter[] = "/dev/infiniband/uverbs0";
  if (::unshare(CLONE_NEWNS) != 0 ||
      ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0)
    return kNotPermitted;
  const base::Fd null(::open("/dev/null", O_PATH | O_CLOEXEC));
  const std::string source = "/proc/self/fd/" + std::to_string(null.get());
  if (::mount("none", "/dev", "tmpfs", 0, nullptr) != 0 || ::mkdir("/dev/infiniband", 0755) != 0 ||
      !base::Fd(::open(kAdapter, O_CREAT | O_WRONLY | O_CLOEXEC, 0600)).valid() ||
      ::mount(source.c_str(), kAdapter, nullptr, MS_BIND, nullptr) != 0)
    return kNotPermitted;
  if (may_have_pinned_pages({})) return kWrong;
  const base::Fd adapter(::open(kAdapter, O_RDWR | O_CLOEXEC));
  return adapter.valid() && may_have_pinned_pages({}) ? kAsExpected : kWrong;
}

TEST(Pins, AnAdapterMayHaveSome) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(look_beside_an_adapter());
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == kNotPermitted) GTEST_SKIP() << "this host forbids mounting";
  EXPECT_EQ(WEXITSTATUS(status), kAsExpected);
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
