// What a container runtime says about a container: the state on a hook's standard input, and the
// config.json of its bundle (OCI runtime specification 1.0).
//
// The runtime wrote both, but parts of them are hostile: annotations may come from the manifest of
// an image, and the environment from the image too. An annotation that claims a pod gains nothing,
// because vrdmad compares network namespaces; one that claims to be a sandbox gets no vdevice.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/hook/call.h"
#include "core/base/error.h"

namespace vrdma::cli::hook {

constexpr size_t kMostState = size_t{1} << 20;   // bytes
constexpr size_t kMostConfig = size_t{8} << 20;  // bytes

struct Container {
  std::string id;
  std::string bundle;    // path of a directory
  pid_t pid = 0;         // of its init; 0: none (it has ended)
  std::string pod;       // id of its pod or sandbox; empty: none
  bool sandbox = false;  // it only holds the namespaces of a pod
  // It was dumped by CRIU, and comes back: CRIU makes its mounts (cli/criu/mounts.h).
  bool restored = false;
  // The annotations vrdma.io/{netdev,name,quota}: what it wishes. Empty: none.
  std::string netdev, name, quota;
  std::vector<std::string> notes;  // a sentence for each other annotation vrdma.io/*, of a few
};
// EINVAL: an annotation vrdma.io/* is not one of these, but nearly is.
[[nodiscard]] base::Result<Container> parse_state(std::string_view json);

// The pod of Kubernetes that a container belongs to. All four names are empty if it belongs to
// none. They are empty, too, if Kubernetes could not have given one of them: another client of the
// runtime has chosen it.
struct Pod {
  std::string pod_namespace, pod_name, pod_uid, container_name;
};

struct Config {
  std::string root;                       // absolute path of its root file system
  std::vector<std::string> library_path;  // absolute directories of its LD_LIBRARY_PATH
  // Its programs may have CAP_NET_ADMIN, as far as the file says.
  bool network_admin = true;
  // As containerd and CRI-O say in annotations. An image may have the same, which podman passes on,
  // so they count only in a bundle of containerd's for Kubernetes, or with a control group of
  // CRI-O's: no image chooses these.
  Pod pod;
};
// `bundle` is the directory that holds the file.
[[nodiscard]] base::Result<Config> parse_config(std::string_view json, const std::string& bundle);

// The text of a config.json that calls the hooks too. None: leave it as it is, because it calls
// `program` already or is a sandbox's.
[[nodiscard]] base::Result<std::optional<std::string>> add_hooks(std::string_view json,
                                                                 const HookCommand& command);

}  // namespace vrdma::cli::hook
