#include "core/base/error.h"

#include <gtest/gtest.h>

namespace vrdma::base {
namespace {

Result<int> inner(bool works) {
  if (!works) return fail_errno("open /x", ENOENT);
  return 7;
}

Result<std::string> outer(bool works) {
  auto number = inner(works);
  if (!number) return pass(std::move(number.error()), "create vdevice red0");
  return std::to_string(*number);
}

TEST(Error, GathersContextOnTheWayUp) {
  const auto failed = outer(false);
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().code(), ENOENT);
  EXPECT_EQ(failed.error().message(), "create vdevice red0: open /x: No such file or directory");
  EXPECT_EQ(outer(true).value(), "7");
}

TEST(Error, TakesErrnoAtTheFailure) {
  errno = EMFILE;
  const Result<void> failed = fail_errno("open");
  EXPECT_EQ(failed.error().code(), EMFILE);
}

}  // namespace
}  // namespace vrdma::base
