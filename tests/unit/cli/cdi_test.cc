#include "cli/cdi.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

namespace vrdma::cli {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using testing::HasSubstr;

const CdiHook kHook{"/usr/lib/vrdma/vrdma-oci-hook", "/run/vrdma"};

Json parsed(const std::vector<std::string>& classes, const CdiHook& hook = kHook) {
  const auto text = cdi_specification(classes, hook);
  EXPECT_TRUE(text);
  return Json::parse(text ? *text : "null");
}

TEST(Cdi, a_class_is_a_device_with_two_hooks_and_nothing_else) {
  const Json specification = parsed({"default", "small"});
  EXPECT_EQ(specification["kind"], "vrdma.io/device");
  ASSERT_EQ(specification["devices"].size(), 2U);
  EXPECT_EQ(specification["devices"][1], Json::parse(R"({
    "name": "small",
    "containerEdits": {"hooks": [
      {"hookName": "createRuntime", "path": "/usr/lib/vrdma/vrdma-oci-hook",
       "args": ["vrdma-oci-hook", "createRuntime", "small"], "env": ["PATH=/usr/bin"],
       "timeout": 30},
      {"hookName": "poststop", "path": "/usr/lib/vrdma/vrdma-oci-hook",
       "args": ["vrdma-oci-hook", "poststop"], "env": ["PATH=/usr/bin"], "timeout": 30}]}})"));
}

TEST(Cdi, the_version_is_the_lowest_that_the_names_need) {
  EXPECT_EQ(parsed({"default", "x.1-a_b"})["cdiVersion"], "0.3.0");
  EXPECT_EQ(parsed({"default", "8qp"})["cdiVersion"], "0.5.0");
}

TEST(Cdi, another_run_directory_is_an_argument) {
  const Json device = parsed({"default"}, {"/hook", "/r"})["devices"][0];
  EXPECT_EQ(device["containerEdits"]["hooks"][0]["args"],
            Json({"vrdma-oci-hook", "--run-dir", "/r", "createRuntime", "default"}));
}

TEST(Cdi, a_share_of_a_claim_is_a_device_whose_hook_names_both) {
  const std::string uid = "a3f0c1d2-0000-4000-8000-000000000001";
  const Json specification =
      Json::parse(claim_specification({"/hook", "/r"}, uid, {"data", "control"}));
  EXPECT_EQ(specification["kind"], "vrdma.io/claim");
  EXPECT_EQ(specification["cdiVersion"], "0.3.0");
  ASSERT_EQ(specification["devices"].size(), 2U);
  EXPECT_EQ(specification["devices"][1]["name"], uid + "-control");
  const Json& edits = specification["devices"][1]["containerEdits"];
  ASSERT_EQ(edits.size(), 1U);
  EXPECT_EQ(edits["hooks"][0]["args"], Json({"vrdma-oci-hook", "--run-dir", "/r", "createRuntime",
                                             "--claim", uid, "--share", "control"}));
  EXPECT_EQ(edits["hooks"][1]["args"], Json({"vrdma-oci-hook", "--run-dir", "/r", "poststop"}));
  EXPECT_EQ(Json::parse(claim_specification(kHook, "1" + uid, {"a"}))["cdiVersion"], "0.5.0")
      << "most uids begin with a digit";
}

TEST(Cdi, names_that_engines_refuse_are_refused_here) {
  for (const char* const name : {"_a", "a-", "a.", ""}) {
    const auto text = cdi_specification({"default", name}, kHook);
    ASSERT_FALSE(text) << name;
    EXPECT_THAT(text.error().message(), HasSubstr("can be no CDI device"));
  }
}

TEST(ReplaceFile, makes_the_directory_and_leaves_nothing_beside) {
  std::string name = (fs::temp_directory_path() / "cdi.XXXXXX").string();
  ASSERT_NE(::mkdtemp(name.data()), nullptr);
  const fs::path directory = fs::path(name) / "cdi", file = directory / "vrdma.json";
  for (const char* const text : {"a longer text", "text"}) {
    ASSERT_TRUE(replace_file(file, text));
    std::ifstream read(file);
    EXPECT_EQ(std::string(std::istreambuf_iterator<char>(read), {}), text);
  }
  struct stat status {};
  ASSERT_EQ(::stat(file.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777U, 0644U);
  EXPECT_FALSE(replace_file(directory / "no" / "cdi" / "x.json", "text"))
      << "only the last directory";
  EXPECT_FALSE(replace_file(directory / "no" / "x.json", "text")) << "only /etc/cdi and the like";
  EXPECT_FALSE(fs::exists(directory / "no"));
  fs::create_directory(directory / "full.json");
  EXPECT_FALSE(replace_file(directory / "full.json", "text"));
  EXPECT_EQ(std::distance(fs::directory_iterator(directory), {}), 2);
  fs::remove_all(name);
}

}  // namespace
}  // namespace vrdma::cli
