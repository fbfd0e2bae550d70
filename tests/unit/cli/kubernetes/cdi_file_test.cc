#include "cli/kubernetes/node/cdi_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/core/base/temp_dir.h"

namespace vrdma::cli::kubernetes {
namespace {

using test::TempDir;
using test::write_file;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Pair;

std::string specification(const std::string& name, const std::string& program) {
  return R"({"cdiVersion":"0.3.0","kind":"vrdma.io/device","devices":[{"name":")" + name +
         R"(","containerEdits":{"hooks":[{"hookName":"createRuntime","path":")" + program +
         R"("},{"hookName":"poststop","path":")" + program + R"("}]}}]})";
}

TEST(PluginCdi, reads_devices_and_their_hooks) {
  const auto devices = parse_cdi(specification("small", "/bin/hook"));
  ASSERT_TRUE(devices);
  EXPECT_THAT(*devices, ElementsAre(Pair("small", ElementsAre("/bin/hook"))));
}

TEST(PluginCdi, survives_any_content) {
  for (const char* text : {"", "{", "[]", "null", "7", "\"x\"", "{}", "{\"devices\":7}",
                           "{\"devices\":{}}", "\xff\xfe", "{\"devices\":[]} x"})
    EXPECT_THAT(parse_cdi(text).value_or(CdiDevices()), IsEmpty()) << text;
  const auto odd = parse_cdi(
      R"({"devices":[1,null,[],{},{"name":7},{"name":"a"},{"name":"b","containerEdits":[]},
          {"name":"c","containerEdits":{"hooks":{}}},
          {"name":"d","containerEdits":{"hooks":[1,{},{"path":[]},{"path":"/x"}]}}]})");
  ASSERT_TRUE(odd);
  EXPECT_THAT(*odd, ElementsAre(Pair("a", IsEmpty()), Pair("b", IsEmpty()), Pair("c", IsEmpty()),
                                Pair("d", ElementsAre("/x"))));
  EXPECT_FALSE(parse_cdi(std::string(100000, '[')));
  EXPECT_FALSE(parse_cdi(std::string(100000, '[') + std::string(100000, ']')));
}

TEST(PluginCdi, names_the_problem_and_notices_changes) {
  const TempDir dir;
  CdiFile file(dir / "vrdma.json");
  const auto problem = [&](const std::string& name = "small") {
    file.look();
    return file.problem(name);
  };
  EXPECT_EQ(problem(),
            "CDI file " + (dir / "vrdma.json") + ": it does not exist: run vrdmactl cdi generate");
  write_file(dir / "vrdma.json", "{");
  EXPECT_THAT(problem(), HasSubstr(": it is not JSON: run"));
  write_file(dir / "vrdma.json", specification("small", dir / "hook"));
  EXPECT_THAT(problem(), HasSubstr("is not an executable file"));
  EXPECT_THAT(problem("big"), HasSubstr("has no device 'big': run vrdmactl cdi generate"));
  write_file(dir / "hook", "#!/bin/sh\n");
  EXPECT_THAT(problem(), HasSubstr("is not an executable file"));
  std::filesystem::permissions(dir / "hook", std::filesystem::perms(0755));
  EXPECT_EQ(problem(), "");
  std::filesystem::remove(dir / "hook");
  std::filesystem::create_directory(dir / "hook");
  EXPECT_THAT(problem(), HasSubstr("is not an executable file"));
  write_file(dir / "vrdma.json", R"({"devices":[{"name":"small"}]})");
  EXPECT_THAT(problem(), HasSubstr("device 'small' has no hook"));
  write_file(dir / "vrdma.json", std::string(2 << 20, ' '));
  EXPECT_THAT(problem(), HasSubstr("it is larger than 1024 KiB"));
  std::filesystem::remove(dir / "vrdma.json");
  std::filesystem::create_directory(dir / "vrdma.json");
  EXPECT_THAT(problem(), HasSubstr("it is not a regular file"));
}

}  // namespace
}  // namespace vrdma::cli::kubernetes
