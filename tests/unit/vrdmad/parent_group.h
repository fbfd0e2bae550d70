// A control group for a test, with what is below it, in the real hierarchies.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <set>
#include <string>
#include <system_error>
#include <vector>

#include "tests/unit/vrdmad/admin/fixture.h"
#include "vrdmad/parent_groups.h"

namespace vrdma::vrdmad {

class TestParentGroup {
 public:
  TestParentGroup() {
    static unsigned made = 0;
    auto prepared = prepare_parent_groups(
        "/vrdma-test-" + std::to_string(::getpid()) + "-" + std::to_string(++made),
        own_hierarchies());
    if (prepared)
      directories_ = std::move(*prepared);
    else
      why_none_ = prepared.error().message();
  }
  TestParentGroup(const TestParentGroup&) = delete;
  TestParentGroup& operator=(const TestParentGroup&) = delete;
  ~TestParentGroup() {
    // A broker of the test may still be ending.
    const bool removed = eventually([this] { return remove(); });
    EXPECT_TRUE(removed) << "a process is left in a group of the test";
  }
  [[nodiscard]] const std::vector<std::string>& directories() const { return directories_; }
  [[nodiscard]] const std::string& why_none() const { return why_none_; }
  // The names of the groups below, in any hierarchy.
  [[nodiscard]] std::set<std::string> children() const {
    std::set<std::string> all;
    std::error_code ignored;
    for (const std::string& directory : directories_)
      for (const auto& entry : std::filesystem::directory_iterator(directory, ignored))
        if (entry.is_directory(ignored)) all.insert(entry.path().filename());
    return all;
  }

 private:
  [[nodiscard]] bool remove() const {
    for (const std::string& directory : directories_) {
      for (const std::string& child : children()) ::rmdir((directory + "/" + child).c_str());
      if (::rmdir(directory.c_str()) != 0 && errno != ENOENT) return false;
    }
    return true;
  }

  std::vector<std::string> directories_;
  std::string why_none_;
};

}  // namespace vrdma::vrdmad
