// A network namespace: found by the name that an operator gives, identified by its cookie.
//
// An open descriptor keeps a namespace alive. So vrdmad holds one only while it makes a vdevice,
// and remembers the cookie (core/base/netns_cookie.h), which no other namespace gets until the next
// boot. The inode number of the nsfs file is no identity: the kernel assigns it
// again as soon as the namespace has ended.
#pragma once

#include <cstdint>
#include <string>

#include "core/base/error.h"
#include "core/base/fd.h"

namespace vrdma::netns {

struct Netns {
  base::Fd fd;          // of the nsfs file; fit for setns(2)
  uint64_t cookie = 0;  // unique until the next boot
};

// spec := name | absolute path | "pid:" digits
//
// A name is that of a file in /run/netns (or /var/run/netns), as `ip netns add` makes it. EINVAL
// for what is no spec or no network namespace, ENOENT for a name or path that does not exist,
// ESRCH for a process that does not exist; each with a sentence of one line. No file is opened
// before it is known to be a namespace, so that a FIFO or a device does no harm. The cookie of
// another namespace than the caller's is read by a thread that enters it. CAP_SYS_ADMIN for that.
[[nodiscard]] base::Result<Netns> resolve(const std::string& spec);

// The calling thread's.
[[nodiscard]] base::Result<Netns> current();

// Moves the calling thread into the namespace. Threads begin where their maker is. CAP_SYS_ADMIN.
[[nodiscard]] base::Result<void> enter(const Netns& netns);

// The namespace in which a socket was made (SIOCGSKNS). `socket` must be one: of another file's
// descriptor, its owner is asked. CAP_NET_ADMIN.
[[nodiscard]] base::Result<Netns> of_socket(const base::Fd& socket);

}  // namespace vrdma::netns
