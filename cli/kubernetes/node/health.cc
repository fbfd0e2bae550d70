#include "cli/kubernetes/node/health.h"

namespace vrdma::cli::kubernetes {

std::optional<Unhealthy> judge(const ClassNews& news, const std::string& cdi) {
  const std::string name = "class '" + news.last.name() + "'";
  if (!news.unreachable.empty()) return Unhealthy{"vrdmad", news.unreachable};
  if (!news.file_error.empty()) return Unhealthy{"class", news.file_error};
  if (!news.in_file) return Unhealthy{"gone", name + " is no longer in the file of classes"};
  if (!news.last.error().empty()) return Unhealthy{"class", news.last.error()};
  if (news.last.parent_state() != "ACTIVE")
    return Unhealthy{"parent", "parent '" + news.last.parent() + "' of " + name + " is " +
                                   (news.last.parent_state().empty() ? "in no known state"
                                                                     : news.last.parent_state())};
  if (!cdi.empty()) return Unhealthy{"cdi", cdi};
  return {};
}

}  // namespace vrdma::cli::kubernetes
