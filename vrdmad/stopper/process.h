// The stopper process: keeps the other threads of a tenant's process from running while one of them
// puts memory in place.
//
// ptrace(2) can do this, and much more: so it is left to a process that can do little else. It has
// CAP_SYS_PTRACE, what it takes to read /proc/PID/task of other users, and no files. It stops only
// a process that the daemon names by pidfd and identity, which it compares before and after, and
// never the bare number. It writes to no memory but the HoldWords, and to two registers of a thread
// whose system call is to be begun again. What it holds is let go when it ends, however it does.
//
// A thread for each hold: at most four for each account (a vdevice), and a bounded number in total,
// so that one tenant's holds do not wait for another's.
#pragma once

#include <functional>

#include "core/base/fd.h"

namespace vrdma::vrdmad::stopper {

constexpr unsigned kHoldsPerAccount = 4;
constexpr unsigned kHolds = 512;

// Serves orders (wire.h) until the end of file. `confine` is called first, with nothing but
// `socket` open.
[[noreturn]] void serve(base::Fd socket, const std::function<void()>& confine);

}  // namespace vrdma::vrdmad::stopper
