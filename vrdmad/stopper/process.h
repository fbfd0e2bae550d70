// The stopper process: stops the other threads of a tenant's process while one of them puts memory
// in place.
//
// It takes ptrace(2), which allows much more, so a process that can do little else has this task.
// It has CAP_SYS_PTRACE, the capability to read /proc/PID/task of other users, and no files. It
// stops only a process that the daemon identifies by pidfd and identity, which it compares before
// and after, never by pid alone. It writes only to the HoldWords, and to two registers of a thread
// whose system call must be restarted. When it ends, for whatever reason, all threads run again.
//
// One thread per hold: at most kHoldsPerAccount for each account (a vdevice), so that one tenant's
// holds do not wait for another's, and kHolds in total.
#pragma once

#include <functional>

#include "core/base/fd.h"

namespace vrdma::vrdmad::stopper {

constexpr unsigned kHoldsPerAccount = 4;
constexpr unsigned kHolds = 512;

// Serves orders (wire.h) until the end of file. Calls `confine` first, with only `socket` open.
[[noreturn]] void serve(base::Fd socket, const std::function<void()>& confine);

}  // namespace vrdma::vrdmad::stopper
