// The names of programs, also of those that end before something is said of them: a program that is
// refused often ends of it.
//
// Belongs to the control thread. Source: proc_pid_comm(5).
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>

namespace vrdma::vrdmad {

class ProgramNames {
 public:
  static constexpr size_t kMost = 1024;  // that are remembered

  // The process lives, and opens a vdevice.
  void remember(int32_t pid);
  // Its present name; if it has ended, the one that it had; empty: not known. Printable.
  [[nodiscard]] std::string of(int32_t pid) const;

 private:
  std::map<int32_t, std::string> names_;
  std::deque<int32_t> order_;  // the oldest first
};

}  // namespace vrdma::vrdmad
