#include "core/base/shared_page.h"

#include <gtest/gtest.h>

#include <atomic>

namespace vrdma::base {
namespace {

struct Numbers {
  std::atomic<uint64_t> first = 7, second = 0;
};

TEST(SharedPage, IsOnePageForAllThatMapIt) {
  const auto made = SharedPage<Numbers>::make("test");
  ASSERT_TRUE(made);
  EXPECT_EQ((*made)->first, 7u);
  auto file = made->file().duplicate();
  ASSERT_TRUE(file);
  const auto mapped = SharedPage<Numbers>::map(std::move(*file));
  ASSERT_TRUE(mapped);
  EXPECT_NE(mapped->get(), made->get());
  (*mapped)->second = 5;
  EXPECT_EQ((*made)->first, 7u);
  EXPECT_EQ((*made)->second, 5u);
}

TEST(SharedPage, StaysMappedForItsReaders) {
  std::shared_ptr<Numbers> kept;
  {
    const auto made = SharedPage<Numbers>::make("test");
    ASSERT_TRUE(made);
    kept = made->get();
  }
  EXPECT_EQ(kept->first, 7u);
}

TEST(SharedPage, IsNotMappedFromAnotherFile) {
  auto larger = make_memfd("test", 2 * sizeof(Numbers));
  ASSERT_TRUE(larger);
  const auto of_another_size = SharedPage<Numbers>::map(std::move(*larger));
  ASSERT_FALSE(of_another_size);
  EXPECT_EQ(of_another_size.error().code(), EPROTO);
  Fd unsealed(::memfd_create("test", MFD_CLOEXEC));
  ASSERT_EQ(::ftruncate(unsealed.get(), sizeof(Numbers)), 0);
  EXPECT_FALSE(SharedPage<Numbers>::map(std::move(unsealed)));  // its maker could shorten it
}

}  // namespace
}  // namespace vrdma::base
