#include "vrdmad/control/used_tokens.h"

#include <sys/stat.h>

#include <fstream>
#include <string>

#include "tests/unit/vrdmad/admin/fixture.h"

namespace vrdma::vrdmad {
namespace {

size_t lines_of(const std::string& path) {
  std::ifstream file(path);
  size_t count = 0;
  for (std::string line; std::getline(file, line);) ++count;
  return count;
}

TEST(UsedTokens, AreKnownToTheNextDaemon) {
  const TempDir temp;
  const std::string path = temp.path() + "/restored";
  {
    UsedTokens tokens(path);
    EXPECT_FALSE(tokens.has("6f1a"));
    tokens.add("6f1a");
    tokens.add("6f1a");
    EXPECT_TRUE(tokens.has("6f1a"));
  }
  UsedTokens next(path);
  EXPECT_TRUE(next.has("6f1a"));
  EXPECT_FALSE(next.has("6f1"));
  EXPECT_EQ(lines_of(path), 1U);
  struct stat status {};
  ASSERT_EQ(::stat(path.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600U);
}

TEST(UsedTokens, CanBeTakenBack) {
  const TempDir temp;
  const std::string path = temp.path() + "/restored";
  UsedTokens tokens(path);
  for (const char* const token : {"6f1a", "77e0"}) tokens.add(token);
  tokens.take_back("6f1a");
  tokens.take_back("none");
  EXPECT_FALSE(tokens.has("6f1a"));
  EXPECT_FALSE(UsedTokens(path).has("6f1a"));
  EXPECT_TRUE(UsedTokens(path).has("77e0"));
  tokens.add("6f1a");
  EXPECT_TRUE(UsedTokens(path).has("6f1a"));
}

TEST(UsedTokens, ForgetTheOldestOfTooMany) {
  const TempDir temp;
  const std::string path = temp.path() + "/restored";
  std::ofstream file(path);
  for (size_t i = 0; i <= UsedTokens::kMost; ++i) file << i << '\n';
  file.close();
  UsedTokens tokens(path);
  EXPECT_FALSE(tokens.has("0"));
  EXPECT_TRUE(tokens.has(std::to_string(UsedTokens::kMost)));
  EXPECT_EQ(lines_of(path), UsedTokens::kMost / 2);
}

// It is known as long as this daemon lives.
TEST(UsedTokens, SurviveADirectoryThatHasGone) {
  const TempDir temp;
  UsedTokens tokens(temp.path() + "/none/restored");
  tokens.add("6f1a");
  EXPECT_TRUE(tokens.has("6f1a"));
}

}  // namespace
}  // namespace vrdma::vrdmad
