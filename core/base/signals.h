// Signals that interrupt a wait.
#pragma once

namespace vrdma::base {

// Whether to repeat a poll(2) that failed with EINTR. Where a read(2) or recv(2) would wait for one
// thing, the kernel restarts it after handlers with SA_RESTART (signal(7)). It never restarts
// poll(2), nor reports which signal interrupted it. So: true if every handler that may have run in
// this thread has SA_RESTART. Ignores signals that are blocked here and those that a thread raises
// itself, such as SIGSEGV. Misses a handler that was reset (SA_RESETHAND). Preserves errno. Any
// thread.
[[nodiscard]] bool handlers_restart();

}  // namespace vrdma::base
