// vrdma-node: the files on a node, its CDI specification, and what a container runtime says of CDI.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "cli/node/place.h"
#include "cli/node/runtime.h"
#include "cli/node/specification.h"
#include "tests/unit/core/base/temp_dir.h"

namespace vrdma::cli::node {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

const std::vector<std::string> kFew{"vrdma-oci-hook", "libx.so.1", "stubs/liby.so.2"};

struct Node : testing::Test {
  const test::TempDir temp;
  const fs::path root = temp.path();
  const fs::path from = root / "from", opt = root / "opt/vrdma";

  Node() {
    fs::create_directories(from / "stubs");
    fs::create_directories(root / "etc/cdi");
    fill("one");
  }
  void fill(const std::string& text) const {
    for (const auto& file : kFew) std::ofstream(from / file) << text;
  }
  [[nodiscard]] Place place(const std::string& version) const {
    return {"/opt/vrdma", root.string(), version};
  }
  [[nodiscard]] std::string why_not(const std::string& version) const {
    const auto done = install(place(version), from.string(), kFew);
    return done ? "" : done.error().message();
  }
  static std::string text(const fs::path& path) {
    std::ostringstream all;
    all << std::ifstream(path).rdbuf();
    return all.str();
  }
  [[nodiscard]] std::vector<std::string> names() const {
    std::vector<std::string> all;
    for (const auto& entry : fs::directory_iterator(opt)) all.push_back(entry.path().filename());
    return all;
  }
};

TEST_F(Node, HasVersionsAndALinkToTheOneInUse) {
  EXPECT_EQ(why_not("1.0"), "");
  EXPECT_EQ(place("1.0").hook(), "/opt/vrdma/current/vrdma-oci-hook");
  EXPECT_EQ(text(opt / "current/libx.so.1"), "one");
  EXPECT_EQ(text(opt / "current/stubs/liby.so.2"), "one");
  EXPECT_EQ(::access((opt / "current/vrdma-oci-hook").c_str(), X_OK), 0);
  fill("two");
  EXPECT_EQ(why_not("2.0"), "");
  EXPECT_EQ(text(opt / "current/libx.so.1"), "two");
  EXPECT_THAT(names(), UnorderedElementsAre("1.0", "2.0", "current")) << "its hook may be running";
  fill("three");
  EXPECT_EQ(why_not("3.0"), "");
  EXPECT_THAT(names(), UnorderedElementsAre("2.0", "3.0", "current"));
}

TEST_F(Node, KeepsFilesThatAreTheSame) {
  ASSERT_EQ(why_not("1.0"), "");
  struct stat before {
  }, after{};
  ASSERT_EQ(::stat((opt / "1.0/libx.so.1").c_str(), &before), 0);
  EXPECT_EQ(why_not("1.0"), "");
  ASSERT_EQ(::stat((opt / "1.0/libx.so.1").c_str(), &after), 0);
  EXPECT_EQ(before.st_ino, after.st_ino);
  fill("other");
  EXPECT_EQ(why_not("1.0"), "");
  EXPECT_EQ(text(opt / "current/libx.so.1"), "other") << "of the same version, in development";
  EXPECT_THAT(names(), UnorderedElementsAre("1.0", "current"));
}

TEST_F(Node, IsAsBeforeAfterAnError) {
  ASSERT_EQ(why_not("1.0"), "");
  fs::remove(from / "libx.so.1");
  EXPECT_THAT(why_not("2.0"), HasSubstr("libx.so.1"));
  EXPECT_EQ(text(opt / "current/libx.so.1"), "one");
  EXPECT_THAT(names(), UnorderedElementsAre("1.0", "current"));
  // An installation was killed.
  fs::create_directory(opt / ".new-abc");
  fs::create_directory_symlink("2.0", opt / ".current");
  fill("two");
  EXPECT_EQ(why_not("2.0"), "");
  EXPECT_THAT(names(), UnorderedElementsAre("1.0", "2.0", "current"));
}

TEST_F(Node, RunsNoHookThatOthersCouldWrite) {
  fs::create_directories(opt);
  ASSERT_EQ(::chmod(opt.c_str(), 0777), 0);
  EXPECT_THAT(why_not("1.0"), HasSubstr("other users can write to " + opt.string()));
  EXPECT_THAT(names(), IsEmpty());
  fs::remove(opt);
  fs::create_directory_symlink(from, opt);
  EXPECT_THAT(why_not("1.0"), HasSubstr("is not a directory"));
}

TEST_F(Node, IsLeftAsItWas) {
  ASSERT_TRUE(uninstall(place("1.0"))) << "nothing is there";
  ASSERT_EQ(why_not("1.0"), "");
  ASSERT_EQ(why_not("2.0"), "");
  ASSERT_TRUE(uninstall(place("2.0")));
  EXPECT_FALSE(fs::exists(opt));
  ASSERT_EQ(why_not("1.0"), "");
  std::ofstream(opt / "notes") << "an operator's";
  ASSERT_TRUE(uninstall(place("1.0")));
  EXPECT_THAT(names(), ElementsAre("notes"));
}

TEST_F(Node, HasASpecificationOfItsClasses) {
  const fs::path classes = root / "classes.conf", cdi = root / "etc/cdi/vrdma.json";
  const auto write = [&classes](const std::string& lines) { test::write_file(classes, lines); };
  Specification specification(cdi, {"/opt/hook", "/run/vrdma"}, classes);
  EXPECT_THAT(*specification.update(),
              ElementsAre(cdi.string() + ": written, with the classes default"));
  EXPECT_THAT(*specification.update(), IsEmpty());
  write("[small]\n[wrong]\nmost = x\n");
  EXPECT_THAT(*specification.update(),
              ElementsAre(HasSubstr("class 'wrong': most: 'x' is not a number"),
                          HasSubstr("written, with the classes default, small")));
  EXPECT_THAT(*specification.update(), IsEmpty()) << "each mistake is told once";
  write("[small\n");
  EXPECT_THAT(*specification.update(), ElementsAre(HasSubstr("does not begin a class")));
  EXPECT_THAT(text(cdi), HasSubstr("\"small\"")) << "it stays";
  fs::remove(cdi);
  write("");
  EXPECT_THAT(*specification.update(), ElementsAre(HasSubstr("classes default")));
  ASSERT_TRUE(specification.remove());
  EXPECT_FALSE(fs::exists(cdi));
  ASSERT_TRUE(specification.remove());
  std::ofstream(cdi) << "{\"kind\": \"other.io/device\"}";
  ASSERT_TRUE(specification.remove());
  EXPECT_TRUE(fs::exists(cdi)) << "another program's";
}

std::string why_not(const Answer& answer) {
  const auto reads = reads_cdi(answer, "/etc/cdi/vrdma.json");
  return reads ? "" : reads.error().message();
}

TEST(Runtimes, SayWhetherTheyReadSpecifications) {
  EXPECT_EQ(why_not({"cri-o", "1.30", ""}), "");
  EXPECT_EQ(why_not({"containerd", "v2.1.9", "{}"}), "");
  EXPECT_EQ(why_not({"containerd", "v1.7.24",
                     R"({"enableCDI":true,"cdiSpecDirs":["/etc/cdi","/var/run/cdi"]})"}),
            "");
  EXPECT_THAT(why_not({"containerd", "v1.7.24", R"({"enableCDI":false})"}),
              AllOf(HasSubstr("containerd v1.7.24 does not read CDI specifications"),
                    HasSubstr("[plugins.\"io.containerd.grpc.v1.cri\"]\n      enable_cdi = true")));
  EXPECT_THAT(why_not({"containerd", "v2.0.0", R"({"x":{"enableCDI":false}})"}),
              HasSubstr("[plugins.\"io.containerd.cri.v1.runtime\"]"));
  EXPECT_THAT(why_not({"containerd", "1.6.20", "{}"}), HasSubstr("use containerd 1.7 or later"));
  EXPECT_THAT(why_not({"containerd", "1.6.20", "no JSON"}), HasSubstr("use containerd 1.7"));
  EXPECT_THAT(why_not({"containerd", "v2.1.9", R"({"cdiSpecDirs":["/x"]})"}),
              HasSubstr("does not read CDI specifications in /etc/cdi"));
}

}  // namespace
}  // namespace vrdma::cli::node
