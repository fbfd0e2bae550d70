// How container runtimes are told to call vrdma-oci-hook: in config.json and in a CDI
// specification.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace vrdma::cli::hook {

// createRuntime, because the process is the runtime's there; createContainer would be in the
// container's namespaces, and some runtimes give it the container's environment.
inline constexpr const char* kStages[] = {"createRuntime", "poststop"};
// Never empty: without it, some runtimes pass another process's environment.
constexpr char kEnvironment[] = "PATH=/usr/bin";
// Seconds after which the runtime kills a hook. Long, because vrdmad serves one hook after another,
// and a hundred containers may start at once on a busy machine.
constexpr int kTimeout = 30;
constexpr char kDefaultRunDir[] = "/run/vrdma";

// What a container shall get: a vdevice of a class, or by a share of a claim (admin.proto).
struct Wish {
  std::string device_class;  // empty: by a claim and a share
  std::string claim, share;
};

struct HookCommand {
  std::string program;  // absolute path
  Wish wish;
  std::string run_dir = kDefaultRunDir;  // of vrdmad
};

[[nodiscard]] inline std::vector<std::string> arguments_of(const HookCommand& command,
                                                           std::string_view stage) {
  std::vector<std::string> arguments{"vrdma-oci-hook"};
  if (command.run_dir != kDefaultRunDir)
    arguments.insert(arguments.end(), {"--run-dir", command.run_dir});
  arguments.emplace_back(stage);
  if (stage != "createRuntime") return arguments;
  if (command.wish.claim.empty())
    arguments.push_back(command.wish.device_class);
  else
    arguments.insert(arguments.end(),
                     {"--claim", command.wish.claim, "--share", command.wish.share});
  return arguments;
}

}  // namespace vrdma::cli::hook
