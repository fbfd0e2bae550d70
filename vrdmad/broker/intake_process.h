// The intake process: receives and closes what tenants made, in place of the daemon.
//
// close(2) and exit(2) of a FUSE file ask its server, and the last close of a socket may linger for
// as long as its maker likes. So the daemon's own table never holds such a descriptor. This process
// may hang instead, in threads: at most four for each account (a vdevice, or a namespace for
// rdma_cm), and a bounded number in total. It has no capabilities, no files and no other way to
// affect anything, and it ends when its socket does.
#pragma once

#include <functional>

#include "core/base/fd.h"

namespace vrdma::vrdmad::intake {

constexpr unsigned kThreadsPerAccount = 4;
constexpr unsigned kThreads = 1024;

// Serves orders (wire.h) until the end of file. `confine` is called first, with nothing but
// `socket` open.
[[noreturn]] void serve(base::Fd socket, const std::function<void()>& confine);

}  // namespace vrdma::vrdmad::intake
