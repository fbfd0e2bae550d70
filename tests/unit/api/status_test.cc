#include "api/status.h"

#include <grpc/status.h>
#include <gtest/gtest.h>

#include <cerrno>

namespace vrdma::api {
namespace {

TEST(Status, an_errno_has_a_code_and_the_code_an_errno) {
  EXPECT_EQ(status_code_of(ENOENT), GRPC_STATUS_NOT_FOUND);
  EXPECT_EQ(status_code_of(ENODEV), GRPC_STATUS_NOT_FOUND);
  EXPECT_EQ(status_code_of(EBUSY), GRPC_STATUS_FAILED_PRECONDITION);
  EXPECT_EQ(errno_of(GRPC_STATUS_NOT_FOUND), ENOENT);
  EXPECT_EQ(errno_of(GRPC_STATUS_UNAVAILABLE), ECONNRESET);
}

TEST(Status, no_errno_is_a_success) {
  for (int error = 0; error < 4096; ++error) EXPECT_NE(status_code_of(error), GRPC_STATUS_OK);
  for (int code = 0; code < 32; ++code) EXPECT_GT(errno_of(code), 0);
}

}  // namespace
}  // namespace vrdma::api
