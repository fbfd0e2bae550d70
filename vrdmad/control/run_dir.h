// The run directory of one vrdmad: R, its lock, and the sockets below it.
//
//   R/               0755  made with its parents if it is not there
//   R/vrdmad.lock    0600  flock(2)ed as long as the daemon lives; holds its pid as text
//   R/admin.sock     0600  made by AdminServer
//   R/state/         0700  a file for each open session, for the next daemon: session_file.h
//   R/netns/          0711  what containers have mounted: it stays, also without a daemon, or they
//                           would not see the sockets of the next one
//   R/netns/<cookie>/ 0755  made by make_netns_dir(); of that netns' vdevices the session sockets,
//                           <number>.sock; and rdma_cm, the socket for connections
//   R/sysfs/          0700  for `vrdmactl exec`: in <cookie>/<name>/ the sysfs tree of a vdevice
//
// Tenants see R/netns, and some of them as root: what is in it has no name, address or GUID. It
// tells how many namespaces have vdevices, and how many each has, to who may list it or guesses
// cookies.
//
// The lock decides who owns R: whoever holds it may remove every socket and tree found there,
// because their daemon is dead. Used by the control thread only.
#pragma once

#include <cstdint>
#include <set>
#include <string>

#include "core/base/error.h"
#include "core/base/fd.h"

namespace vrdma::vrdmad {

class RunDir {
 public:
  // Makes the directories, takes the lock, removes the stale sockets of a dead daemon. EBUSY:
  // another vrdmad runs there. An existing R is left with the mode it has, but must belong to this
  // user and be writable by nobody else, since who can write there can stand in for the daemon.
  [[nodiscard]] static base::Result<RunDir> open(const std::string& path);
  RunDir(RunDir&&) noexcept = default;
  RunDir& operator=(RunDir&&) = delete;
  // Removes the sockets, what is in R/netns, the lock, and R/sysfs and R/state if they are empty.
  ~RunDir();

  [[nodiscard]] const std::string& path() const { return path_; }  // absolute
  [[nodiscard]] std::string state_dir() const { return path_ + "/state"; }
  [[nodiscard]] std::string admin_socket() const { return path_ + "/admin.sock"; }

  // The directories of a netns, for the session sockets and for the sysfs trees, made if they are
  // not there. The first one's path.
  [[nodiscard]] base::Result<std::string> make_netns_dir(uint64_t cookie) const;
  [[nodiscard]] std::string sysfs_dir(uint64_t cookie) const;
  // Removes those that are empty: the last vdevice of that netns has gone.
  void remove_netns_dir(uint64_t cookie) const;
  // Removes from R/sysfs what a dead daemon has left, but for these trees and directories of a
  // netns.
  void keep_sysfs(const std::set<std::string>& directories) const;

 private:
  RunDir(std::string path, base::Fd lock) : path_(std::move(path)), lock_(std::move(lock)) {}
  void remove_leftovers() const;

  std::string path_;
  base::Fd lock_;  // invalid: moved from
};

}  // namespace vrdma::vrdmad
