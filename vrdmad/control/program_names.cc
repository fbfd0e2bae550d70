#include "vrdmad/control/program_names.h"

#include <fstream>

#include "core/base/printable.h"

namespace vrdma::vrdmad {

namespace {

// Empty: it has ended.
std::string present_name(int32_t pid) {
  std::string name;
  std::ifstream comm("/proc/" + std::to_string(pid) + "/comm");
  std::getline(comm, name);
  return base::printable(name);
}

}  // namespace

void ProgramNames::remember(int32_t pid) {
  const auto [known, is_new] = names_.insert_or_assign(pid, present_name(pid));
  if (!is_new) return;
  order_.push_back(pid);
  if (order_.size() <= kMost) return;
  names_.erase(order_.front());
  order_.pop_front();
}

std::string ProgramNames::of(int32_t pid) const {
  if (pid <= 0) return {};
  if (std::string now = present_name(pid); !now.empty()) return now;
  const auto known = names_.find(pid);
  return known != names_.end() ? known->second : "";
}

}  // namespace vrdma::vrdmad
