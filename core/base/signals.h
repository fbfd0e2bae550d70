// Signals that come while a call waits.
#pragma once

namespace vrdma::base {

// Whether a call that waited in poll(2), which gave EINTR, is to wait again: where we wait for more
// than one thing, in the place of a read(2) or recv(2) that the kernel restarts under handlers with
// SA_RESTART (signal(7)). It never restarts poll(2), nor tells which signal it was. So: true if
// every handler that can have run in this thread has SA_RESTART. Those that are blocked here do not
// count, nor do those of what a thread does to itself, such as SIGSEGV. A handler that has taken
// itself away (SA_RESETHAND) is not seen. errno stays. Any thread.
[[nodiscard]] bool handlers_restart();

}  // namespace vrdma::base
