// A network namespace: found by what an operator calls it, known by the inode of its nsfs file.
//
// An open descriptor keeps a namespace alive. So vrdmad holds one only while it makes a vdevice,
// and remembers the inode, which is unique among the namespaces there are and may be used again
// once this one is gone.
#pragma once

#include <cstdint>
#include <string>

#include "core/base/error.h"
#include "core/base/fd.h"

namespace vrdma::netns {

struct Netns {
  base::Fd fd;         // of the nsfs file; fit for setns(2)
  uint64_t inode = 0;  // of that file
};

// spec := name | absolute path | "pid:" digits
//
// A name is that of a file in /run/netns (or /var/run/netns), as `ip netns add` makes it. EINVAL
// for what is no spec or no network namespace, ENOENT for a name or path that does not exist,
// ESRCH for a process that does not exist; each with a sentence of one line. No file is opened
// before it is known to be a namespace, so that a FIFO or a device does no harm.
[[nodiscard]] base::Result<Netns> resolve(const std::string& spec);

// One known by its inode: among those in /run/netns and those of processes. ENOENT if it is in
// neither place.
[[nodiscard]] base::Result<Netns> find(uint64_t inode);

// The calling thread's.
[[nodiscard]] base::Result<Netns> current();

// Moves the calling thread into the namespace. Threads begin where their maker is. CAP_SYS_ADMIN.
[[nodiscard]] base::Result<void> enter(const Netns& netns);

// The namespace in which a socket was made (SIOCGSKNS). `socket` must be one: of another file's
// descriptor, its owner is asked. CAP_NET_ADMIN.
[[nodiscard]] base::Result<Netns> of_socket(const base::Fd& socket);

// The inode of the namespace in which the other end of a connected, accepted unix socket was made
// (SIOCGSKNS; /proc/PID/ns/net lies after setns(2), this does not). CAP_NET_ADMIN.
[[nodiscard]] base::Result<uint64_t> peer_inode(const base::Fd& accepted);

}  // namespace vrdma::netns
