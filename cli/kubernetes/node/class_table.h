// The classes of vrdmad, now or before, and what was said of each last.
#pragma once

#include <map>
#include <string>

#include "cli/kubernetes/node/health.h"

namespace vrdma::cli::kubernetes {

class ClassTable {
 public:
  // What ClassWatch reports; logs that.
  void received(const v1::ListClassesResponse& classes);
  void lost(const std::string& why);

  [[nodiscard]] const std::map<std::string, ClassNews>& all() const { return all_; }
  // Why vrdmad cannot be asked; empty: it can.
  [[nodiscard]] const std::string& unreachable() const { return unreachable_; }

 private:
  std::string unreachable_ = "vrdmad has not described its classes yet";
  std::map<std::string, ClassNews> all_;
};

}  // namespace vrdma::cli::kubernetes
