// vrdma-runtime: a container runtime that calls the hooks, for engines that know neither CDI nor
// hooks (docker before 25, containerd before 1.7).
//
// It adds the hooks to the config.json of a bundle that it is told to create, and becomes the real
// runtime. The class of the vdevice is an option or in a file of the operator's; nothing of the
// container is asked, because the environment and annotations come from its image too.
//
//   # /etc/vrdma/runtime.conf
//   class = "small"            default: "default"
//   runtime = "/usr/bin/crun"  default: "runc", searched for in PATH
//   run-dir = "/run/vrdma"     of vrdmad
#pragma once

#include <string>
#include <vector>

#include "cli/hook/call.h"
#include "core/base/error.h"

namespace vrdma::cli::hook {

constexpr char kRuntimeFile[] = "/etc/vrdma/runtime.conf";

struct RuntimeSettings {
  std::string device_class = "default";
  std::string runtime = "runc";
  std::string run_dir = kDefaultRunDir;
};
// Errors name the line. `path` is for them.
[[nodiscard]] base::Result<RuntimeSettings> parse_runtime_settings(const std::string& text,
                                                                   const std::string& path);

// The command line of a runtime. Options for the wrapper come before the subcommand: what is behind
// it may be of the container, such as the command of `exec`.
struct RuntimeCall {
  std::string file = kRuntimeFile;  // --vrdma-config FILE
  std::string device_class;         // --vrdma-class CLASS; empty: that of the file
  std::vector<std::string> words;   // for the real runtime
  std::string bundle;               // empty: no container is created
};
[[nodiscard]] base::Result<RuntimeCall> parse_runtime_call(const std::vector<std::string>& words);

// Becomes the real runtime; returns only errors. `hook` is the path of this program.
[[nodiscard]] base::Error run_runtime(const std::vector<std::string>& words,
                                      const std::string& hook);

}  // namespace vrdma::cli::hook
