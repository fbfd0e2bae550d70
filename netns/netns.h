// A network namespace: resolved from what an operator writes, identified by its cookie.
//
// An open descriptor keeps a namespace alive, so vrdmad holds one only while it creates a vdevice.
// It stores the cookie (core/base/netns_cookie.h), which no other namespace gets until the next
// boot. The inode number of the nsfs file is no identity: the kernel reuses it as soon as the
// namespace has ended.
#pragma once

#include <cstdint>
#include <string>

#include "core/base/error.h"
#include "core/base/fd.h"

namespace vrdma::netns {

struct Netns {
  base::Fd fd;          // the nsfs file, for setns(2)
  uint64_t cookie = 0;  // unique until the next boot
};

// spec := name | absolute path | "pid:" digits
//
// A name is that of a file in /run/netns (or /var/run/netns), as `ip netns add` creates it. Errors,
// each with a one-line sentence: EINVAL for a malformed spec or a file that is not a network
// namespace, ENOENT for a name or path that does not exist, ESRCH for a process that does not
// exist. A file is opened only if it is a namespace, so that a FIFO or a device does no harm. A
// temporary thread enters a foreign namespace to read its cookie, which needs CAP_SYS_ADMIN.
[[nodiscard]] base::Result<Netns> resolve(const std::string& spec);

// The calling thread's namespace.
[[nodiscard]] base::Result<Netns> current();

// Moves the calling thread into the namespace. New threads inherit their creator's. CAP_SYS_ADMIN.
[[nodiscard]] base::Result<void> enter(const Netns& netns);

}  // namespace vrdma::netns
