// The command `vrdmactl doctor`.
#include <charconv>
#include <iostream>

#include "cli/commands.h"
#include "cli/doctor/doctor.h"
#include "cli/doctor/peer.h"

namespace vrdma::cli {

Outcome diagnose(const Options& options, Output&) {
  doctor::Question question;
  question.run_dir = options.run_dir;
  question.netns = options.netns;
  question.command = options.command;
  if (!options.name.empty()) {
    int pid = 0;
    const char* const end = options.name.data() + options.name.size();
    const auto [last, error] = std::from_chars(options.name.data(), end, pid);
    if (error != std::errc() || last != end || pid <= 0)
      return base::fail(EINVAL, "doctor: '" + options.name + "' is not a process id");
    question.pid = pid;
  }
  if (static_cast<int>(question.pid.has_value()) + static_cast<int>(!question.netns.empty()) +
          static_cast<int>(!question.command.empty()) >
      1)
    return base::fail(EINVAL,
                      "doctor: give only one of a process id, --netns and a program after --");
  if (!options.peer.empty()) {
    const auto peer = doctor::parse_peer(options.peer);
    if (!peer) return base::pass(peer.error(), "doctor");
    question.peer = *peer;
  }
  const auto findings = doctor::examine(question);
  if (!findings) return base::pass(findings.error(), "doctor");
  if (options.format == Format::kJson)
    doctor::print_json(*findings, std::cout);
  else
    doctor::print_table(*findings, std::cout);
  std::cout.flush();
  const size_t problems = doctor::problems_in(*findings);
  if (problems == 0 && nothing_known(*findings))
    return base::fail(EAGAIN, "nothing is known: run it as root, or as the program's user");
  if (problems == 0) return {};
  return base::fail(ENODEV, std::to_string(problems) + (problems == 1 ? " problem" : " problems"));
}

}  // namespace vrdma::cli
