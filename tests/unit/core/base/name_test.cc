#include "core/base/name.h"

#include <gtest/gtest.h>

#include <string>

namespace vrdma::base {
namespace {

TEST(Name, has_only_what_a_file_name_and_a_word_may_have) {
  for (const char* const good : {"vrdma0", "mlx5_0", "_a", "9", "A.b-c"})
    EXPECT_TRUE(is_name(good)) << good;
  for (const char* const bad : {"", "-a", ".a", "..", "a/b", "a b", "a\n", "\xc3\xa9"})
    EXPECT_FALSE(is_name(bad)) << bad;
  EXPECT_TRUE(is_name(std::string(kMaxName, 'a')));
  EXPECT_FALSE(is_name(std::string(kMaxName + 1, 'a')));
}

}  // namespace
}  // namespace vrdma::base
