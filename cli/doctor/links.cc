#include "cli/doctor/links.h"

#include <map>

namespace vrdma::cli::doctor {

namespace {

// By v1::QueuePair::because. Not of a type that never is direct, nor of what isolates tenants.
const std::map<std::string, std::string>& remedies() {
  static const std::map<std::string, std::string> all{
      {"another user", "run both programs as the same user"},
      {"another user namespace", "run both programs in the same user namespace"},
      {"not dumpable",
       "a program that gained privileges by execve(2), or called prctl(2) with PR_SET_DUMPABLE, "
       "keeps others of its user out"},
      {"no direct links", "create both vdevices without --no-direct"},
      {"rate limit",
       "without limits of bandwidth and msg_rate, of the vdevices, their tenant and their parent, "
       "the programs need no worker"},
      {"port down", "set both interfaces up"},
      {"connect again", "its reason has ended since: start the programs again"}};
  return all;
}

}  // namespace

std::vector<Finding> judge_links(const std::string& vdevice,
                                 const std::vector<v1::QueuePair>& queue_pairs) {
  std::map<std::string, unsigned> by_reason;
  for (const auto& row : queue_pairs)
    if (remedies().contains(row.because())) ++by_reason[row.because()];
  std::vector<Finding> findings;
  for (const auto& [reason, count] : by_reason)
    findings.push_back({"links", State::kOk,
                        "a worker serves " + std::to_string(count) + " of the queue pairs of " +
                            vdevice + " to peers of its tenant, which is slower: " + reason,
                        remedies().at(reason)});
  return findings;
}

}  // namespace vrdma::cli::doctor
