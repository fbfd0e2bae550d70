#include "cli/hook/runtime.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace vrdma::cli::hook {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(RuntimeSettings, the_defaults_are_without_a_file) {
  const auto settings = parse_runtime_settings("", "f");
  ASSERT_TRUE(settings);
  EXPECT_EQ(settings->device_class, "default");
  EXPECT_EQ(settings->runtime, "runc");
  EXPECT_EQ(settings->run_dir, "/run/vrdma");
}

TEST(RuntimeSettings, values_with_and_without_quotes_and_comments) {
  const auto settings = parse_runtime_settings(
      "# a comment\n\n  class = \"small\"\t\r\nruntime=/usr/bin/crun\nrun-dir = /r", "f");
  ASSERT_TRUE(settings);
  EXPECT_EQ(settings->device_class, "small");
  EXPECT_EQ(settings->runtime, "/usr/bin/crun");
  EXPECT_EQ(settings->run_dir, "/r");
}

TEST(RuntimeSettings, errors_name_the_file_and_the_line) {
  for (const auto& [text, sentence] :
       {std::pair{"\ncolour = red", "f, line 2: 'colour' is none of class, runtime, run-dir"},
        {"class", "f, line 1: class has no value"},
        {"class = \"\"", "f, line 1: class has no value"}}) {
    const auto settings = parse_runtime_settings(text, "f");
    ASSERT_FALSE(settings) << text;
    EXPECT_EQ(settings.error().message(), sentence);
  }
}

std::string bundle_of(const std::vector<std::string>& words) {
  const auto call = parse_runtime_call(words);
  return call ? call->bundle : "error: " + call.error().message();
}

TEST(RuntimeCall, the_bundle_of_create_run_and_restore) {
  EXPECT_EQ(bundle_of({"create", "--bundle", "/b", "c1"}), "/b");
  EXPECT_EQ(bundle_of({"create", "--bundle=/b", "c1"}), "/b");
  EXPECT_EQ(bundle_of({"run", "-b", "/b", "c1"}), "/b");
  EXPECT_EQ(bundle_of({"run", "c1"}), ".");
  EXPECT_EQ(bundle_of({"restore", "--image-path", "/i", "--bundle", "/b", "c1"}), "/b");
  EXPECT_EQ(bundle_of({"--systemd-cgroup", "--root", "run", "--log=x", "create", "c1"}), ".");
}

TEST(RuntimeCall, other_commands_have_none) {
  for (const auto& words : std::vector<std::vector<std::string>>{{},
                                                                 {"--version"},
                                                                 {"--root", "create"},
                                                                 {"delete", "create"},
                                                                 {"exec", "c1", "run"},
                                                                 {"--root"}})
    EXPECT_EQ(bundle_of(words), "") << testing::PrintToString(words);
}

TEST(RuntimeCall, own_words_are_not_passed_on) {
  const auto call = parse_runtime_call(
      {"--vrdma-class", "small", "--root", "/r", "--vrdma-config=/f", "create", "-b", "/b", "c1"});
  ASSERT_TRUE(call);
  EXPECT_EQ(call->device_class, "small");
  EXPECT_EQ(call->file, "/f");
  EXPECT_THAT(call->words, ElementsAre("--root", "/r", "create", "-b", "/b", "c1"));
  EXPECT_EQ(parse_runtime_call({"state", "c1"})->file, "/etc/vrdma/runtime.conf");
}

TEST(RuntimeCall, words_behind_the_subcommand_are_the_runtimes) {
  for (const auto& words : std::vector<std::vector<std::string>>{
           {"exec", "c1", "program", "--vrdma-class=large", "--vrdma-config", "/f"},
           {"create", "--bundle", "/b", "--vrdma-class=large", "c1"},
           {"run", "-b", "/b", "--vrdma-config"},
           {"--root", "--vrdma-class=large", "state", "c1"}}) {
    const auto call = parse_runtime_call(words);
    ASSERT_TRUE(call) << testing::PrintToString(words);
    EXPECT_EQ(call->words, words);
    EXPECT_EQ(call->device_class, "") << testing::PrintToString(words);
    EXPECT_EQ(call->file, kRuntimeFile) << testing::PrintToString(words);
  }
}

TEST(RuntimeCall, an_option_without_its_value_is_an_error) {
  EXPECT_THAT(bundle_of({"--vrdma-class"}), HasSubstr("--vrdma-class has no value"));
  EXPECT_THAT(bundle_of({"create", "--bundle"}), HasSubstr("--bundle has no value"));
}

}  // namespace
}  // namespace vrdma::cli::hook
