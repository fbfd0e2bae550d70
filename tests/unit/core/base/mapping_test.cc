#include "core/base/mapping.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>

namespace vrdma::base {
namespace {

constexpr size_t kSize = 64 << 10;

TEST(Memfd, IsPrivateSparseAndSealed) {
  const auto fd = make_memfd("test", 1ull << 47);
  ASSERT_TRUE(fd);
  struct stat status {};
  ASSERT_EQ(::fstat(fd->get(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
  EXPECT_EQ(status.st_size, 1ll << 47);
  EXPECT_EQ(status.st_blocks, 0);
  EXPECT_EQ(::fcntl(fd->get(), F_GET_SEALS), F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
  EXPECT_NE(::fcntl(fd->get(), F_GETFD) & FD_CLOEXEC, 0);
}

TEST(Memfd, CannotBeMadeToFault) {
  const auto fd = make_memfd("test", kSize);
  ASSERT_TRUE(fd);
  EXPECT_EQ(::ftruncate(fd->get(), 0), -1);
  EXPECT_EQ(errno, EPERM);
  EXPECT_EQ(::ftruncate(fd->get(), 2 * kSize), -1);
  EXPECT_EQ(::fcntl(fd->get(), F_ADD_SEALS, F_SEAL_WRITE), -1);
  EXPECT_EQ(::fcntl(fd->get(), F_ADD_SEALS, F_SEAL_FUTURE_WRITE), -1);
}

TEST(Mapping, ShowsTheFileFromItsOffset) {
  const auto fd = make_memfd("test", kSize);
  ASSERT_TRUE(fd);
  const auto whole = Mapping::shared(*fd, kSize, 0, PROT_READ | PROT_WRITE);
  const auto rest = Mapping::shared(*fd, kSize - 8192, 8192, PROT_READ);
  ASSERT_TRUE(whole && rest);
  *whole->at<uint32_t>(8192 + 4) = 0xabcdef;
  EXPECT_EQ(*rest->at<uint32_t>(4), 0xabcdefu);
  EXPECT_EQ(rest->size(), kSize - 8192);
}

TEST(Mapping, UnmapsOnceAndMoves) {
  const auto fd = make_memfd("test", kSize);
  auto first = Mapping::shared(*fd, kSize, 0, PROT_READ | PROT_WRITE);
  ASSERT_TRUE(first);
  uint8_t* bytes = first->bytes();
  const auto mapped = [&] { return ::msync(bytes, 4096, MS_ASYNC) == 0; };
  Mapping second(std::move(*first));
  EXPECT_FALSE(first->valid());
  Mapping third;
  third = std::move(second);
  EXPECT_EQ(third.bytes(), bytes);
  EXPECT_TRUE(mapped());
  third.reset();
  EXPECT_FALSE(third.valid());
  EXPECT_FALSE(mapped());
}

TEST(Mapping, IsNotInheritedByChildren) {
  const auto fd = make_memfd("test", kSize);
  const auto mapping = Mapping::shared(*fd, kSize, 0, PROT_READ | PROT_WRITE);
  ASSERT_TRUE(mapping);
  const pid_t child = ::fork();
  if (child == 0) ::_exit(::msync(mapping->bytes(), 4096, MS_ASYNC) == 0 ? 1 : 0);
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST(Mapping, RefusesWhatCannotBeMapped) {
  EXPECT_FALSE(Mapping::shared(Fd(), kSize, 0, PROT_READ));
  const auto fd = make_memfd("test", kSize);
  EXPECT_EQ(Mapping::shared(*fd, kSize, 1, PROT_READ).error().code(), EINVAL);
}

}  // namespace
}  // namespace vrdma::base
