#include "core/base/nearest.h"

#include <gtest/gtest.h>

namespace vrdma::base {
namespace {

TEST(Nearest, a_word_that_was_misspelt_is_found) {
  const std::vector<std::string> words{"tenant", "fabric", "qp", "srq"};
  EXPECT_EQ(nearest("tennant", words), "tenant");
  EXPECT_EQ(nearest("FABRIC", words), "fabric");
  EXPECT_EQ(nearest("qps", words), "qp");
  EXPECT_EQ(nearest("sqr", words), "srq");
}

TEST(Nearest, a_word_that_is_like_none_is_not) {
  const std::vector<std::string> words{"tenant", "qp"};
  EXPECT_EQ(nearest("colour", words), "");
  EXPECT_EQ(nearest("xy", words), "");  // all of its letters would change
  EXPECT_EQ(nearest("", words), "");
  EXPECT_EQ(nearest(std::string(1000, 't'), words), "");
  EXPECT_EQ(nearest("tenant", {}), "");
}

}  // namespace
}  // namespace vrdma::base
