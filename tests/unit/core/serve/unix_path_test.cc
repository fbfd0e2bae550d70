// Sockets by their paths.
#include "core/serve/unix_path.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace vrdma::serve {
namespace {

class UnixPath : public ::testing::Test {
 protected:
  UnixPath() {
    directory = std::filesystem::temp_directory_path() / "vrdma-unix-path-XXXXXX";
    EXPECT_NE(nullptr, ::mkdtemp(directory.data()));
  }
  ~UnixPath() override { std::filesystem::remove_all(directory); }
  // To whom it belongs already: so that any user may run this.
  [[nodiscard]] static int give(const std::string& path) {
    const auto done = give_socket(path, ::geteuid(), ::getegid());
    return done ? 0 : done.error().code();
  }
  // Whether its owner was set: that changes st_ctim.
  template <class Action>
  [[nodiscard]] static bool changes(const std::string& path, Action action) {
    const auto before = file_at(path);
    // Until a change would be seen.
    const std::string clock = path + ".clock";
    do {
      std::ofstream(clock) << 'x';
    } while (file_at(clock)->changed <= before->changed);
    action();
    return file_at(path) != before;
  }
  std::string directory;
};

TEST_F(UnixPath, TheOwnerOfASocketIsSet) {
  const std::string path = directory + "/socket";
  const auto listener = listen_at(path);
  ASSERT_TRUE(listener);
  EXPECT_TRUE(changes(path, [&] { EXPECT_EQ(0, give(path)); }));
  if (::geteuid() != 0) return;
  ASSERT_TRUE(give_socket(path, 1, 2));
  struct stat status {};
  ASSERT_EQ(0, ::stat(path.c_str(), &status));
  EXPECT_EQ(1u, status.st_uid);
  EXPECT_EQ(2u, status.st_gid);
}

// A user that may write to the directory has put something else there.
TEST_F(UnixPath, NoOtherFileIsGivenAway) {
  const std::string path = directory + "/socket", victim = directory + "/victim";
  std::ofstream(victim) << "root's";
  const auto is_left = [&](int error) {
    return !changes(victim, [&] { EXPECT_EQ(error, give(path)); });
  };
  EXPECT_EQ(ENOENT, give(path));
  ASSERT_EQ(0, ::symlink(victim.c_str(), path.c_str()));
  EXPECT_TRUE(is_left(EEXIST));
  ASSERT_EQ(0, ::unlink(path.c_str()));
  ASSERT_EQ(0, ::link(victim.c_str(), path.c_str()));
  EXPECT_TRUE(is_left(EEXIST));
  ASSERT_EQ(0, ::unlink(path.c_str()));
  // Another socket, by a symbolic link, and by a second name.
  ASSERT_EQ(0, ::unlink(victim.c_str()));
  const auto listener = listen_at(victim);
  ASSERT_TRUE(listener);
  ASSERT_EQ(0, ::symlink(victim.c_str(), path.c_str()));
  EXPECT_TRUE(is_left(EEXIST));
  ASSERT_EQ(0, ::unlink(path.c_str()));
  ASSERT_EQ(0, ::link(victim.c_str(), path.c_str()));
  EXPECT_TRUE(is_left(EEXIST));
}

}  // namespace
}  // namespace vrdma::serve
