// The run directory R of one vrdmad: its lock and the sockets below it.
//
//   R/               0755  made with its parents if missing
//   R/vrdmad.lock    0600  flock(2)ed while the daemon lives; holds its pid as text
//   R/admin.sock     0600  made by AdminServer
//   R/checkpoint.sock 0600 made by CheckpointServer
//   R/hook.sock      0666  made by HookServer
//   R/restored       0600  which images of programs were restored: used_tokens.h
//   R/arenas         0600  which process has which memory arenas and sessions: owners.h
//   R/broker/        0700  of root; made by the broker: known_peers.h
//   R/state/         0700  a file for each open session, for the next daemon: session_file.h
//   R/netns/         0711  mounted by containers; remains without a daemon, so that they see the
//                          sockets of the next one
//   R/netns/<cookie>/ 0755  made by make_netns_dir(); the session sockets of that netns' vdevices,
//                           <number>.sock, and rdma_cm, the socket for connections
//   R/sysfs/         0711
//   R/sysfs/<cookie>/ 0700  for `vrdmactl exec` and hooks: in <name>/ the sysfs tree of a vdevice.
//   An
//                           ACL lets the user that owns the namespace read it: let_read()
//
// A container may have only its own R/netns/<cookie>/ and R/sysfs/<cookie>/<name>/ mounted. So the
// directories of a namespace that has vdevices remain over a restart; only their content changes.
//
// Tenants see R/netns, some of them as root, so nothing in it contains a name, address or GUID. A
// tenant that lists it, or guesses cookies learns how many namespaces have vdevices, and how many
// each has.
//
// The holder of the lock owns R: it may remove every socket and tree found there, because their
// daemon has ended. Used by the control thread only.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/base/fd.h"

namespace vrdma::vrdmad {

class RunDir {
 public:
  // The names in R that the daemon's user owns: all but R/broker.
  [[nodiscard]] static std::vector<std::string> own_names() {
    return {"vrdmad.lock", "admin.sock", "checkpoint.sock", "hook.sock", "metrics.sock", "state",
            "arenas",      "arenas.new", "restored",        "netns",     "sysfs"};
  }
  // The path without links to itself, `..` and a slash at its end. One that is relative begins in
  // the working directory.
  [[nodiscard]] static base::Result<std::string> absolute(const std::string& path);
  // EBUSY: another vrdmad runs there. Makes nothing; open() decides.
  [[nodiscard]] static base::Result<void> check_free(const std::string& path);
  // Makes the directories, takes the lock and removes the stale sockets of a daemon that has ended.
  // EBUSY: another vrdmad runs there. An existing R keeps its mode, but must belong to this user
  // and be writable by no other, because a user that can write there can impersonate the daemon.
  [[nodiscard]] static base::Result<RunDir> open(const std::string& path);
  RunDir(RunDir&&) noexcept = default;
  RunDir& operator=(RunDir&&) = delete;
  // Removes the sockets, the lock, and R/sysfs and R/state if they are empty.
  ~RunDir();

  [[nodiscard]] const std::string& path() const { return path_; }  // absolute
  [[nodiscard]] std::string state_dir() const { return path_ + "/state"; }
  [[nodiscard]] std::string arenas() const { return path_ + "/arenas"; }
  [[nodiscard]] std::string restored() const { return path_ + "/restored"; }
  [[nodiscard]] std::string admin_socket() const { return path_ + "/admin.sock"; }
  [[nodiscard]] std::string checkpoint_socket() const { return path_ + "/checkpoint.sock"; }
  [[nodiscard]] std::string hook_socket() const { return path_ + "/hook.sock"; }

  // Makes the directories of a netns for session sockets and sysfs trees, if missing. Returns the
  // path of the first.
  [[nodiscard]] base::Result<std::string> make_netns_dir(uint64_t cookie) const;
  [[nodiscard]] std::string session_socket(uint64_t cookie, uint64_t number) const;
  [[nodiscard]] std::string netns_dir(uint64_t cookie) const;
  [[nodiscard]] std::string sysfs_dir(uint64_t cookie) const;
  // Lets a user read the sysfs trees of a netns, so that a hook without root can mount them.
  [[nodiscard]] base::Result<void> let_read(uint64_t cookie, uid_t user) const;
  // Removes those that are empty, after the last vdevice of that netns.
  void remove_netns_dir(uint64_t cookie) const;
  // Removes from R/netns and R/sysfs what the previous daemon left, except the directories of these
  // namespaces, by cookie, with these sysfs trees, by name.
  void keep(const std::map<uint64_t, std::set<std::string>>& trees) const;

 private:
  RunDir(std::string path, base::Fd lock) : path_(std::move(path)), lock_(std::move(lock)) {}
  void remove_sockets() const;

  std::string path_;
  base::Fd lock_;  // invalid: moved from
};

}  // namespace vrdma::vrdmad
