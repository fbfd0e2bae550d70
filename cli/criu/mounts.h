// The mounts by which a container has its vdevices, when CRIU dumps its mount namespace and
// restores it.
//
// The container's hook (cli/hook) has bound files of the host into it: libraries, session sockets
// and sysfs trees. No configuration of the runtime names them, so CRIU asks its plugins for each.
// All else that the hook made (file systems in memory, links, what it has covered) CRIU writes to
// disk and makes again. vrdma-mounts.img, beside CRIU's images, tells which mounts are the hook's.
//
// A restored container is in another network namespace. The runtime calls the hook again before
// CRIU makes any mount, so vrdmad has made vdevices for that namespace, and what belongs to them
// takes the place of what the dumped container had. Programs look for sockets by the cookie of
// their namespace: restore_sockets() shows them under the new name too.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/base/error.h"

namespace vrdma::cli::criu {

// Where the hook shows the directory of session sockets in a container.
constexpr char kSocketPlace[] = "/run/vrdma/netns/";

struct HostMount {
  enum class Kind : uint8_t {
    kLibrary,  // of the directory of the drop-in libraries, or of its stubs/
    kSockets,  // the directory with the session sockets of a network namespace
    kDevice,   // the directories of a vdevice's sysfs tree
    kVerbs,
  };
  int id = 0;  // of mountinfo (proc(5)), when the container was dumped
  Kind kind = Kind::kLibrary;
  std::string name;  // of the library or the vdevice; of kSockets: empty
  bool operator==(const HostMount&) const = default;
};

// The hook's mount that a line of mountinfo describes; none: another program made it, or it is not
// of the host.
[[nodiscard]] std::optional<HostMount> host_mount(const std::string& line);

// What is in vrdma-mounts.img, which may have been changed on its way: it can only name what the
// hook mounts.
[[nodiscard]] std::string encode(const std::vector<HostMount>& mounts);
[[nodiscard]] base::Result<std::vector<HostMount>> decode_mounts(const std::string& bytes);

struct Host {
  std::string libraries;  // directory of the drop-in libraries
  std::string run_dir;    // of vrdmad
};
// `cookie`: of the network namespace that the container is in now.
[[nodiscard]] std::string source_of(const HostMount& mount, const Host& host, uint64_t cookie);

// In the functions below, `images` is the directory of CRIU's images.
//
// Notes the mount `id` of one of these processes. False: it is not the hook's.
[[nodiscard]] base::Result<bool> dump_host_mount(const std::set<pid_t>& processes, int id,
                                                 int images);
// In the first process of a container that is being restored, in its network namespace: mounts
// there what was noted as `id`. False: nothing was. ENOENT: vrdmad has no such vdevice there.
[[nodiscard]] base::Result<bool> restore_host_mount(int id, const std::string& place, int images);
// Shows the session sockets of the network namespace of a restored process in its mount namespace,
// unless that was done for another process of it.
[[nodiscard]] base::Result<void> restore_sockets(pid_t pid, int images);

}  // namespace vrdma::cli::criu
