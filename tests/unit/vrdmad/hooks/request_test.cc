#include "vrdmad/hooks/request.h"

#include <gtest/gtest.h>

#include <cstring>

namespace vrdma::vrdmad {
namespace {

using Op = hook::Request::Op;

hook::Request set_up() {
  hook::Request request;
  request.op = Op::kSetUp;
  std::strcpy(request.container, "c0ffee");
  std::strcpy(request.pod, "p");
  std::strcpy(request.device_class, "small");
  std::strcpy(request.quota, "qp=1");
  return request;
}

std::string error_of(const hook::Request& wire) {
  const auto request = read_request(&wire, sizeof wire, sizeof wire);
  return request ? "" : request.error().message();
}

TEST(HookRequests, are_read) {
  const hook::Request wire = set_up();
  const auto request = read_request(&wire, sizeof wire, sizeof wire);
  ASSERT_TRUE(request) << request.error().message();
  EXPECT_EQ(request->op, Op::kSetUp);
  EXPECT_EQ(request->container, "c0ffee");
  EXPECT_EQ(request->pod, "p");
  EXPECT_EQ(request->device_class, "small");
  EXPECT_EQ(request->quota, "qp=1");
  EXPECT_FALSE(request->network_admin);
  EXPECT_EQ(request->netdev + request->name + request->claim + request->share, "");
}

TEST(HookRequests, may_name_a_claim_and_a_share) {
  hook::Request wire = set_up();
  std::strcpy(wire.claim, "u-1");
  std::strcpy(wire.share, "data");
  const auto request = read_request(&wire, sizeof wire, sizeof wire);
  ASSERT_TRUE(request) << request.error().message();
  EXPECT_EQ(request->claim, "u-1");
  EXPECT_EQ(request->share, "data");
  std::memset(wire.share, 'a', sizeof wire.share);
  EXPECT_EQ(error_of(wire), "the hook's share has no end: install hook and vrdmad of one version");
}

TEST(HookRequests, of_another_build_are_refused) {
  hook::Request wire = set_up();
  EXPECT_FALSE(read_request(&wire, sizeof wire, sizeof wire - 1));
  EXPECT_FALSE(read_request(&wire, sizeof wire, sizeof wire + 1));
  EXPECT_FALSE(read_request(&wire, sizeof wire - 1, sizeof wire)) << "not all of it arrived";
  wire.version = hook::kVersion + 1;
  EXPECT_EQ(error_of(wire),
            "the hook speaks version 5, and vrdmad version 4: install hook and "
            "vrdmad of one version");
  wire.version = hook::kVersion;
  wire.op = static_cast<Op>(5);
  EXPECT_EQ(error_of(wire),
            "the hook asks for what vrdmad does not know: install hook and vrdmad "
            "of one version");
}

TEST(HookRequests, say_why_a_hook_failed) {
  hook::Request wire = set_up();
  wire.op = Op::kFailed;
  std::memset(wire.reason, '\n', sizeof wire.reason);  // without an end
  std::memcpy(wire.reason, "no space", 8);
  const auto request = read_request(&wire, sizeof wire, sizeof wire);
  ASSERT_TRUE(request) << request.error().message();
  EXPECT_TRUE(request->reason.starts_with("no space\\x0a\\x0a")) << request->reason;
}

TEST(HookRequests, have_texts_that_end_and_can_be_logged) {
  hook::Request wire = set_up();
  std::memset(wire.container, 'a', sizeof wire.container);
  EXPECT_EQ(error_of(wire),
            "the hook's container id has no end: install hook and vrdmad of one version");
  wire = set_up();
  wire.name[3] = 'x';
  EXPECT_NE(error_of(wire), "") << "something is behind the end";
  wire = set_up();
  std::strncpy(wire.container, "a\nb", sizeof wire.container);
  EXPECT_EQ(error_of(wire),
            "container id 'a\\x0ab' has characters that it may not have: use "
            "letters and digits");
  wire = set_up();
  wire.container[0] = '\0';
  EXPECT_NE(error_of(wire), "");
}

TEST(HookRequests, are_refused_with_one_line_that_fits) {
  const hook::Answer answer = refusal({EPERM, std::string(2000, 'a') + "\n"});
  EXPECT_EQ(answer.error, EPERM);
  EXPECT_EQ(std::string(answer.reason), std::string(sizeof answer.reason - 1, 'a'));
  EXPECT_STREQ(refusal({EPERM, "a\nb"}).reason, "a\\x0ab");
}

}  // namespace
}  // namespace vrdma::vrdmad
