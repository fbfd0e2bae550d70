// The tokens of parked processes that went on: the image of a process is restored once, also after
// a restart of vrdmad.
//
//   R/restored   0600  a line for each token, the latest last; "-" and the token: taken back
//
// Owned by one thread.
#pragma once

#include <set>
#include <string>
#include <utility>

namespace vrdma::vrdmad {

class UsedTokens {
 public:
  static constexpr size_t kMost = 65'536;  // in the file; older ones are forgotten

  // Reads the file at the first call of the others.
  explicit UsedTokens(std::string path) : path_(std::move(path)) {}
  [[nodiscard]] bool has(const std::string& token);
  void add(const std::string& token);
  // The process did not go on after all, and nothing is left of it.
  void take_back(const std::string& token);

 private:
  void read();

  const std::string path_;
  bool is_read_ = false;
  std::set<std::string> all_;
};

}  // namespace vrdma::vrdmad
