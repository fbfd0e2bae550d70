// The intake process: receives and closes descriptors of tenants in place of the daemon.
//
// close(2) and exit(2) of a FUSE file call its server, and the last close of a socket may linger
// for as long as its maker chose. So the daemon's own descriptor table never holds such a file. The
// threads of this process may hang instead: at most kThreadsPerAccount for each account (a vdevice,
// or a namespace for rdma_cm), a share of kThreads for each client (helper_client.h), and a thread
// for the end of a client. The process has no capabilities, files or other means to affect
// anything.
//
// Control is the first client, and the process ends with it. Control adds others, whose accounts
// and orders have numbers of their own. If a client ends or sends what it may not, its queued
// connections are shut down, and the client is forgotten when its threads end.
#pragma once

#include "core/base/fd.h"
#include "vrdmad/broker/child_process.h"

namespace vrdma::vrdmad::intake {

constexpr unsigned kThreadsPerAccount = 4;
constexpr unsigned kThreads = 2048;  // a client alone has half of them

// Serves orders (intake_wire.h) until the end of control's `socket`. Calls `confine` first, with
// only `socket` open and the capabilities to become another user, which `confine` drops.
[[noreturn]] void serve(base::Fd socket, const Confine& confine);

}  // namespace vrdma::vrdmad::intake
