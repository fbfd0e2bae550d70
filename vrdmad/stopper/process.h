// The stopper process: stops the other threads of a tenant's process while one of them puts memory
// in place.
//
// It takes ptrace(2), which allows much more, so a process that can do little else has this task.
// It has CAP_SYS_PTRACE, the capability to read /proc/PID/task of other users, and no files. It
// stops only a process that a client identifies by pidfd and identity, which it compares before
// and after, never by pid alone. An identity contains addresses that only the process itself and
// privileged processes know, so a client cannot guess that of another's program. It writes only to
// the HoldWords, and to two registers of a thread whose system call must be restarted. When it
// ends, for whatever reason, all threads run again.
//
// One thread per hold: at most kHoldsPerAccount for each account (a vdevice), so that one tenant's
// holds do not wait for another's, and a share of kHolds for each client (broker/helper_client.h).
// Control is the first client, and the process ends with it. A hold lasts as long as it may even if
// its client ends. A client that sends what it may not is ended.
#pragma once

#include "core/base/fd.h"
#include "vrdmad/broker/child_process.h"

namespace vrdma::vrdmad::stopper {

constexpr unsigned kHoldsPerAccount = 4;
constexpr unsigned kHolds = 1024;  // a client alone has half of them

// Serves orders (wire.h) until the end of control's `socket`. Calls `confine` first, with only
// `socket` open.
[[noreturn]] void serve(base::Fd socket, const Confine& confine);

}  // namespace vrdma::vrdmad::stopper
