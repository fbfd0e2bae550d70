#include "cli/kubernetes/plugin/socket_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "core/base/random.h"
#include "tests/unit/core/base/temp_dir.h"

namespace vrdma::cli::kubernetes {
namespace {

using test::TempDir;
using testing::HasSubstr;
using testing::MatchesRegex;

// Sets the time at which a socket seems to have been made.
void set_age(const std::string& path, time_t time) {
  const timespec times[] = {{time, 0}, {time, 0}};
  ASSERT_EQ(::utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
}

TEST(PluginSocketName, is_short_and_of_one_resource) {
  EXPECT_EQ(socket_file_name(socket_stem("vrdma.io", "small"), 0x2a), "vrdma-small@0000002a.sock");
  const std::string at_most(40, 'x'), longer(41, 'x');
  EXPECT_EQ(socket_stem("vrdma.io", at_most), "vrdma-" + at_most);
  EXPECT_THAT(socket_stem("vrdma.io", longer), MatchesRegex("vrdma-x{23}~[0-9a-f]{16}"));
  EXPECT_NE(socket_stem("vrdma.io", longer), socket_stem("vrdma.io", longer + "x"));
  EXPECT_NE(socket_stem("vrdma.io", "small"), socket_stem("example.org", "small"));
}

TEST(PluginSocketName, is_recognized) {
  EXPECT_TRUE(is_socket_of("vrdma-small", "vrdma-small@0123abcd.sock"));
  for (const char* name : {"vrdma-small", "vrdma-smaller@0123abcd.sock", "vrdma-small@0123abcd",
                           "vrdma-small@0123abc.sock", "vrdma-small@0123ABCD.sock",
                           "vrdma-small@0123abcd.sock.", "xvrdma-small@0123abc.sock", ""})
    EXPECT_FALSE(is_socket_of("vrdma-small", name)) << name;
}

TEST(PluginInstance, is_younger_by_time_and_then_by_name) {
  EXPECT_TRUE(is_younger({"a", 2}, {"b", 1}));
  EXPECT_FALSE(is_younger({"b", 1}, {"a", 2}));
  EXPECT_TRUE(is_younger({"b", 1}, {"a", 1}));
  EXPECT_FALSE(is_younger({"a", 1}, {"a", 1}));
}

TEST(PluginSocketFile, yields_to_a_younger_listener_only) {
  const TempDir dir;
  const auto listen = [&](const std::string& stem) {
    auto made = SocketFile::listen(dir.path(), stem, base::random32());
    EXPECT_TRUE(made) << made.error().message();
    return std::move(*made);
  };
  std::optional<SocketFile> older(listen("vrdma-small"));
  EXPECT_FALSE(older->younger().listens);
  const SocketFile other = listen("vrdma-big");
  EXPECT_FALSE(older->younger().listens) << "of another resource";
  set_age(dir / older->name(), 100);
  {
    const SocketFile first = listen("vrdma-small");
    EXPECT_TRUE(older->younger().listens);
    EXPECT_FALSE(first.younger().listens);
    // A file without a listener is no instance.
    std::filesystem::rename(dir / first.name(), dir / "kept");
  }
  std::filesystem::rename(dir / "kept", dir / "vrdma-small@ffffffff.sock");
  EXPECT_FALSE(older->younger().listens);
  remove_stale(dir.path(), "vrdma-small");
  EXPECT_FALSE(std::filesystem::exists(dir / "vrdma-small@ffffffff.sock"));
  EXPECT_TRUE(older->in_place());
  std::ofstream(dir / "vrdma-small@eeeeeeee.sock");  // no socket: not ours
  remove_stale(dir.path(), "vrdma-small");
  EXPECT_TRUE(std::filesystem::exists(dir / "vrdma-small@eeeeeeee.sock"));
  older.reset();
  EXPECT_EQ(dir.files(), 2u);
}

TEST(PluginSocketFile, notices_that_it_was_removed_or_replaced) {
  const TempDir dir;
  auto made = SocketFile::listen(dir.path(), "vrdma-small", 1);
  ASSERT_TRUE(made);
  EXPECT_TRUE(made->in_place());
  std::filesystem::remove(dir / made->name());
  EXPECT_FALSE(made->in_place());
  std::ofstream(dir / made->name()) << "another";
  {
    const SocketFile gone = std::move(*made);
    EXPECT_FALSE(gone.in_place());
  }
  EXPECT_EQ(dir.files(), 1u) << "the other file stays";
}

TEST(PluginSocketFile, says_that_a_path_is_too_long) {
  const auto made = SocketFile::listen("/tmp/" + std::string(90, 'x'), "vrdma-small", 1);
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().code(), ENAMETOOLONG);
  EXPECT_THAT(made.error().message(), HasSubstr("is too long for a socket"));
  EXPECT_FALSE(SocketFile::listen("/nonexistent", "vrdma-small", 1));
}

}  // namespace
}  // namespace vrdma::cli::kubernetes
