// The intake process: receives and closes descriptors of tenants in place of the daemon.
//
// close(2) and exit(2) of a FUSE file call its server, and the last close of a socket may linger
// for as long as its maker chose. So the daemon's own descriptor table never holds such a file. The
// threads of this process may hang instead: at most kThreadsPerAccount for each account (a vdevice,
// or a namespace for rdma_cm), and kThreads in total. The process has no capabilities, files or
// other means to affect anything, and ends at the end of file of its socket.
#pragma once

#include <functional>

#include "core/base/fd.h"

namespace vrdma::vrdmad::intake {

constexpr unsigned kThreadsPerAccount = 4;
constexpr unsigned kThreads = 1024;

// Serves orders (intake_wire.h) until the end of file. Calls `confine` first, with only `socket`
// open and the capabilities to become another user, which `confine` drops.
[[noreturn]] void serve(base::Fd socket, const std::function<void()>& confine);

}  // namespace vrdma::vrdmad::intake
