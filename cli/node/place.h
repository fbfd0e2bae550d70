// What pods need on the node: the hook and the libraries, in a directory of their version.
//
//   /opt/vrdma/0.1.0/vrdma-oci-hook, libibverbs.so.1, ...
//   /opt/vrdma/current -> 0.1.0      what the CDI specification names
//
// A version appears as a whole, by rename(2), and `current` changes as a whole. The hook finds the
// libraries beside itself, so a pod that starts meanwhile gets both of one version. Running pods
// keep their files, because these are mounted. The version that was in use before stays until the
// next change, because its hook may be running.
#pragma once

#include <string>
#include <vector>

#include "core/base/error.h"

namespace vrdma::cli::node {

struct Place {
  std::string path;     // on the node: "/opt/vrdma"
  std::string root;     // where the node's file system is seen: "/host", or empty
  std::string version;  // a file name

  [[nodiscard]] std::string seen() const { return root + path; }
  // As the node sees it.
  [[nodiscard]] std::string hook() const { return path + "/current/vrdma-oci-hook"; }
};

// The hook, and what it shows in containers.
inline const std::vector<std::string> kFiles{"vrdma-oci-hook",   "libibverbs.so.1",
                                             "librdmacm.so.1",   "librspreload.so",
                                             "stubs/libdl.so.2", "stubs/libpthread.so.0"};

// Copies the files of `from`, a directory, and makes them the current version. EPERM: the place is
// not root's alone. After an error the version in use is the same as before. Nothing changes if it
// is the version in use with the same files.
[[nodiscard]] base::Result<void> install(const Place& place, const std::string& from,
                                         const std::vector<std::string>& files);
// Removes all versions, and the directory if nothing else is in it. It is no error if there is
// none.
[[nodiscard]] base::Result<void> uninstall(const Place& place);

}  // namespace vrdma::cli::node
