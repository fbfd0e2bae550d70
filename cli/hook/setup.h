// The hook createRuntime: gives a container its vdevices.
//
//   1. connects to vrdmad, and opens the container's init (a pidfd) and its namespaces
//   2. asks vrdmad for the vdevices of a class, or by a share of a claim: kSetUp
//   3. clones what the container needs of the host: sockets, sysfs trees, libraries
//   4. in a process of its own (cli/hook/apart.h): enters the container's user namespace, if that
//   is
//      another one, and its mount namespace, whose root the runtime has not changed yet
//   5. /run/vrdma, a tmpfs of the container's:
//        lib/             the libraries of this installation
//        stubs/           what these need of glibc and the image lacks (cli/hook/copies.h)
//        netns/<cookie>/  the session sockets (R/netns/<cookie> on the host)
//        real/            the image's libraries, if the container has adapters of the host
//        ld.so.cache      the image's, with the libraries of lib/ and stubs/
//        notes            what was left out, a sentence each
//   6. binds libraries over the image's copies, and the cache over /etc/ld.so.cache
//   7. sysfs and /dev (cli/mounts/plan.h)
//   8. makes /run/vrdma read-only: kDone
//
// The mounts end with the container. If a step fails, the hook tells vrdmad why, which undoes the
// kSetUp, and the runtime removes the container. In a container that comes back from disk the hook
// makes no mount, because CRIU makes them all (cli/criu/mounts.h): only 1, 2 and kDone. A second
// run in the same container, for example because two hooks name a class, adds only the vdevices
// that are not shown yet.
#pragma once

#include <string>

#include "cli/hook/call.h"
#include "cli/hook/state.h"
#include "core/base/error.h"

namespace vrdma::cli::hook {

struct Installation {
  std::string libraries;  // directory of the drop-in libraries
  std::string run_dir;    // of vrdmad
};

// Needs a single-threaded process.
[[nodiscard]] base::Result<void> set_up(const Container& container, const Wish& wish,
                                        const Installation& installation);

// The hook poststop: tells vrdmad earlier what it learns from the pidfd anyway.
[[nodiscard]] base::Result<void> end(const Container& container, const std::string& run_dir);

}  // namespace vrdma::cli::hook
