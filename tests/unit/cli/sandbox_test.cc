// The command line of vrdma-sandbox, and its explanations of a host that refuses a sandbox.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>

#include "cli/sandbox/limits.h"
#include "cli/sandbox/listening.h"
#include "cli/sandbox/obstacle.h"
#include "cli/sandbox/options.h"

namespace vrdma::cli::sandbox {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

struct Parsed {
  bool good = false;
  int status = 0;
  Options options;
};
Parsed parsed(std::vector<std::string> words) {
  words.insert(words.begin(), "vrdma-sandbox");
  std::vector<char*> argv;
  for (auto& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  Parsed result;
  result.good = parse(static_cast<int>(words.size()), argv.data(), &result.options, &result.status);
  return result;
}

TEST(SandboxOptions, ABadNetworkIsBetweenTwo) {
  const auto bad = parsed({"--pair", "--loss", "1", "--seed", "7", "--", "a", "--", "b"});
  ASSERT_TRUE(bad.good);
  EXPECT_THAT(bad.options.wire, testing::IsSupersetOf({"--loss", "1.000000", "--seed", "7"}));
  EXPECT_TRUE(parsed({"--pair", "--", "a", "--", "b"}).options.wire.empty());
  EXPECT_EQ(parsed({"--delay", "20", "--", "a"}).status, kUsage);
  EXPECT_EQ(parsed({"--pair", "--loss", "101", "--", "a", "--", "b"}).status, kUsage);
}

TEST(SandboxOptions, WhatStandsBehindTheDashesIsTheCommands) {
  const auto one = parsed({"--quota", "qp=1", "--no-direct", "--", "a", "--pair", "--", "b"});
  ASSERT_TRUE(one.good);
  EXPECT_THAT(one.options.commands, ElementsAre(ElementsAre("a", "--pair", "--", "b")));
  EXPECT_THAT(one.options.vdev_options, ElementsAre("--quota", "qp=1", "--no-direct"));
  const auto two = parsed({"--pair", "--", "a", "1", "--", "b", "--", "c"});
  ASSERT_TRUE(two.good);
  EXPECT_THAT(two.options.commands,
              ElementsAre(ElementsAre("a", "1"), ElementsAre("b", "--", "c")));
  EXPECT_EQ(two.options.vdevices, 2u);
}

TEST(SandboxOptions, MistakesAreStatusTwo) {
  for (const std::vector<std::string>& words : {std::vector<std::string>{},
                                                {"--"},
                                                {"a"},
                                                {"--vdevices", "0", "--", "a"},
                                                {"--vdevices", "65", "--", "a"},
                                                {"--pair", "--", "a"},
                                                {"--pair", "--", "a", "--"},
                                                {"--pair", "--vdevices", "2", "--", "a", "--", "b"},
                                                {"--two-tenants", "--", "a"},
                                                {"--wait", "-1", "--", "a"},
                                                {"--nothing", "--", "a"}}) {
    const auto result = parsed(words);
    EXPECT_FALSE(result.good) << testing::PrintToString(words);
    EXPECT_EQ(result.status, kUsage) << testing::PrintToString(words);
  }
}

TEST(SandboxLimits, EachIsNamedWithItsRemedy) {
  const Needs needs{256, rlim_t{10} << 30, rlim_t{256} << 20, 64};
  const Limits none{RLIM_INFINITY, RLIM_INFINITY, RLIM_INFINITY, RLIM_INFINITY};
  const auto said = [&](Limits limits, unsigned startable = 64) {
    const auto enough = compare(needs, limits, startable);
    return enough ? std::string("enough") : enough.error().message();
  };
  EXPECT_EQ(said(none), "enough");
  EXPECT_EQ(said({256, rlim_t{10} << 30, rlim_t{256} << 20, RLIM_INFINITY}), "enough");
  Limits limits = none;
  limits.files = 255;
  EXPECT_THAT(said(limits), HasSubstr("ulimit -Hn is 255, and vrdmad needs 256 open files"));
  limits = none;
  limits.address_space = rlim_t{4'000'000} << 10;
  EXPECT_THAT(said(limits), HasSubstr("ulimit -v is 4000000 KiB"));
  limits = none;
  limits.data = rlim_t{100} << 20;
  EXPECT_THAT(said(limits), HasSubstr("ulimit -d is 102400 KiB"));
  limits = none;
  limits.file_size = rlim_t{1} << 40;
  EXPECT_THAT(said(limits), HasSubstr("ulimit -f is 1073741824 KiB"));
  EXPECT_THAT(said(none, 63), HasSubstr("no more than 63 processes and threads can be started "
                                        "here, and a sandbox needs 64: raise ulimit -u"));
}

TEST(SandboxLimits, MoreProgramsNeedMore) {
  Options options;
  const Needs one = needs_of(options);
  options.pair = options.two_tenants = true;
  options.vdevices = 2;
  const Needs two = needs_of(options);
  EXPECT_GT(two.files, one.files);
  EXPECT_EQ(two.address_space, 2 * one.address_space);
  EXPECT_GT(two.threads, one.threads);
}

TEST(SandboxLimits, ThreadsAreCounted) { EXPECT_EQ(startable_threads(20), 20u); }

TEST(SandboxObstacle, EachIsNamedWithItsRemedy) {
  const auto said = [](Step step, int code, const HostFacts& facts) {
    const auto error = explain(step, code, facts);
    EXPECT_EQ(error.code(), code);
    return error.message();
  };
  HostFacts facts;
  facts.max_user = 0;
  EXPECT_THAT(said(Step::kUserNamespace, ENOSPC, facts),
              HasSubstr("user.max_user_namespaces is 0: as root, sysctl -w"));
  facts.max_user = 100;
  EXPECT_THAT(said(Step::kUserNamespace, ENOSPC, facts), HasSubstr("is reached"));
  facts.max_net = 0;
  EXPECT_THAT(said(Step::kNetNamespace, ENOSPC, facts), HasSubstr("user.max_net_namespaces is 0"));
  facts = {};
  facts.unprivileged_userns_clone = 0;
  EXPECT_THAT(said(Step::kUserNamespace, EPERM, facts),
              HasSubstr("sysctl -w kernel.unprivileged_userns_clone=1"));
  facts.unprivileged_userns_clone = 1;
  facts.apparmor_restricts = 1;
  for (const Step step : {Step::kUserNamespace, Step::kIdMap, Step::kMount, Step::kNetdev})
    EXPECT_THAT(said(step, EPERM, facts),
                HasSubstr("sysctl -w kernel.apparmor_restrict_unprivileged_userns=0"));
  facts = {};
  facts.seccomp_filter = true;
  EXPECT_THAT(said(Step::kUserNamespace, EPERM, facts), HasSubstr("seccomp=unconfined"));
  facts.apparmor_profile = "docker-default";
  EXPECT_THAT(said(Step::kMount, EACCES, facts), HasSubstr("profile 'docker-default'"));
  facts = {};
  facts.root = facts.seccomp_filter = true;
  facts.may_map_root = false;  // --cap-drop=ALL
  EXPECT_THAT(said(Step::kIdMap, EPERM, facts),
              testing::AllOf(HasSubstr("root without the capability SETFCAP"),
                             HasSubstr("--user 1000"), testing::Not(HasSubstr("seccomp"))));
  EXPECT_THAT(said(Step::kUserNamespace, EPERM, facts),
              testing::AllOf(HasSubstr("seccomp=unconfined"), HasSubstr("--cap-add=SETFCAP")));
  facts.root = false;
  EXPECT_THAT(said(Step::kIdMap, EPERM, facts), HasSubstr("seccomp=unconfined"));
  EXPECT_THAT(said(Step::kUserNamespace, EPERM, {}), HasSubstr("chroot(2)"));
  EXPECT_THAT(said(Step::kUserNamespace, EINVAL, {}), HasSubstr("CONFIG_USER_NS"));
  EXPECT_THAT(said(Step::kNetdev, EOPNOTSUPP, {}), HasSubstr("modprobe veth"));
  EXPECT_THAT(said(Step::kMount, ENOMEM, {}), HasSubstr("Cannot allocate memory"));
}

TEST(SandboxListening, OnlySocketsThatListenCount) {
  const std::string titles = "  sl  local_address rem_address   st tx_queue rx_queue\n";
  const std::string open = "   0: 0100007F:1F90 0100007F:C350 01 00000000:00000000\n";
  const std::string listens = "   1: 00000000:4853 00000000:0000 0A 00000000:00000000\n";
  EXPECT_FALSE(has_listener(""));
  EXPECT_FALSE(has_listener(titles + open));
  EXPECT_TRUE(has_listener(titles + open + listens));
}

}  // namespace
}  // namespace vrdma::cli::sandbox
