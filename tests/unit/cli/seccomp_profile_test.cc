#include "cli/seccomp_profile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace vrdma::cli {
namespace {

using Json = nlohmann::json;
using testing::HasSubstr;

// UFFD_USER_MODE_ONLY is 1.
const Json kRule = Json::parse(R"({
  "names": ["userfaultfd"], "action": "SCMP_ACT_ALLOW",
  "args": [{"index": 0, "value": 1, "valueTwo": 1, "op": "SCMP_CMP_MASKED_EQ"}],
  "comment": "with UFFD_USER_MODE_ONLY, for registered memory of vrdma"})");

Json profile(const std::string& default_action, const std::string& rules) {
  return Json::parse(R"({"defaultAction": ")" + default_action + R"(", "defaultErrnoRet": 38,
    "archMap": [{"architecture": "SCMP_ARCH_X86_64", "subArchitectures": ["SCMP_ARCH_X86"]}],
    "syscalls": [)" + rules +
                     "]}");
}

Json result(const Json& given) {
  const auto text = with_userfaultfd(given.dump());
  EXPECT_TRUE(text) << text.error().message();
  return Json::parse(text ? *text : "null");
}

constexpr char kReads[] = R"({"names": ["read", "pread64"], "action": "SCMP_ACT_ALLOW",
  "args": [], "includes": {}, "excludes": {}})";

TEST(SeccompProfile, a_call_that_no_rule_names_gets_one) {
  Json given = profile("SCMP_ACT_ERRNO", kReads);
  const Json changed = result(given);
  given["syscalls"].push_back(kRule);
  EXPECT_EQ(changed, given);
}

// As podman's profile, which lists what it forbids so that it fails with EPERM.
TEST(SeccompProfile, a_rule_that_forbids_the_call_loses_it) {
  const std::string forbids =
      R"({"names": ["swapoff", "userfaultfd", "vm86"], "action": "SCMP_ACT_ERRNO", "errnoRet": 1},
         {"names": ["userfaultfd"], "action": "SCMP_ACT_TRAP"},)";
  const Json changed = result(profile("SCMP_ACT_ERRNO", forbids + kReads));
  ASSERT_EQ(changed["syscalls"].size(), 3U);
  EXPECT_EQ(changed["syscalls"][0]["names"], Json({"swapoff", "vm86"}));
  EXPECT_EQ(changed["syscalls"][1], Json::parse(kReads));
  EXPECT_EQ(changed["syscalls"][2], kRule);
}

TEST(SeccompProfile, a_rule_with_conditions_does_not_suffice) {
  for (const char* condition :
       {R"("includes": {"caps": ["CAP_SYS_PTRACE"]})", R"("excludes": {"arches": ["s390x"]})",
        R"("args": [{"index": 0, "value": 5, "op": "SCMP_CMP_EQ"}])"}) {
    const std::string permits = R"({"names": ["userfaultfd"], "action": "SCMP_ACT_ALLOW", )";
    Json given = profile("SCMP_ACT_ERRNO", permits + condition + "}");
    const Json changed = result(given);
    given["syscalls"].push_back(kRule);
    EXPECT_EQ(changed, given);
  }
}

TEST(SeccompProfile, one_that_permits_the_call_stays_as_it_is) {
  const std::string permits = R"({"names": ["ioctl", "userfaultfd"], "action": "SCMP_ACT_ALLOW",
    "args": [], "includes": {}, "excludes": {}})";
  for (const Json& given : {profile("SCMP_ACT_ERRNO", permits), profile("SCMP_ACT_ALLOW", ""),
                            profile("SCMP_ACT_ALLOW", kReads)}) {
    const std::string text = given.dump(4) + "\n\n";
    EXPECT_EQ(*with_userfaultfd(text), text);
  }
  const std::string again = *with_userfaultfd(profile("SCMP_ACT_ERRNO", kReads).dump());
  EXPECT_EQ(*with_userfaultfd(again), again);
}

TEST(SeccompProfile, what_is_none_is_refused) {
  for (const char* text :
       {"", "{", "[]", "null", "{}", R"({"defaultAction": "SCMP_ACT_ERRNO"})",
        R"({"defaultAction": 1, "syscalls": []})",
        R"({"defaultAction": "SCMP_ACT_ERRNO", "syscalls": {}})",
        R"({"defaultAction": "SCMP_ACT_ERRNO", "syscalls": [[]]})",
        R"({"defaultAction": "SCMP_ACT_ERRNO", "syscalls": [{"names": "read"}]})",
        R"({"defaultAction": "SCMP_ACT_ERRNO", "syscalls": [{"names": ["read"]}]})",
        R"({"defaultAction": "SCMP_ACT_ERRNO", "syscalls": [{"names": [1], "action": "x"}]})"}) {
    const auto made = with_userfaultfd(text);
    ASSERT_FALSE(made) << text;
    EXPECT_EQ(made.error().code(), EINVAL);
    EXPECT_THAT(made.error().message(), HasSubstr("no seccomp profile")) << text;
  }
  const auto names = R"({"names": ["userfaultfd"], "action": "SCMP_ACT_ERRNO"})";
  const auto made = with_userfaultfd(profile("SCMP_ACT_ALLOW", names).dump());
  ASSERT_FALSE(made);
  EXPECT_THAT(made.error().message(), HasSubstr("names userfaultfd"));
}

}  // namespace
}  // namespace vrdma::cli
