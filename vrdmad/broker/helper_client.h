// The clients of a helper process that serves several: control, which adds the others, and workers.
//
// A client other than control is hostile: it may send anything, read nothing, and hang every thread
// that works for it. So the main thread of the process never blocks because of a client and never
// closes a descriptor that a client sent; threads that work for this client alone do that.
#pragma once

#include <chrono>
#include <utility>
#include <vector>

#include "core/base/fd.h"

namespace vrdma::vrdmad {

// Until the process tries again what it had no thread for, and looks again at clients whose queues
// were full.
constexpr std::chrono::milliseconds kHelperRetry(50);
// Orders of a client that wait in the process. The process does not read from a client that has as
// many; the others wait in its socket, whose size the kernel bounds. Control is exempt, because it
// orders for many tenants and bounds what each of them may have.
constexpr unsigned kMostQueued = 256;
// Of all clients but control together.
constexpr unsigned kMostQueuedOfAll = 16'384;

// Divides `most` threads or orders among clients, of which each has `own` and all together have
// `all`: a client may have one, and as many as are left for others. So n greedy clients have
// most / (n + 1) each, and as many are free for the next client.
[[nodiscard]] constexpr bool may_have_more(unsigned own, unsigned all, unsigned most) {
  return own == 0 || own + all < most;
}

// Each process adds what it needs.
struct HelperClient {
  HelperClient(base::Fd connection, bool is_control)
      : socket(std::move(connection)), control(is_control) {}

  const base::Fd socket;  // SOCK_SEQPACKET
  const bool control;     // the first client; the only one that may add others
  // Guarded by the mutex of the process.
  unsigned threads = 0;  // that carry out its orders
  unsigned queued = 0;   // orders
  // Descriptors to be closed at its end, by a thread. Only the main thread and then that thread.
  std::vector<base::Fd> doomed;
};

// Takes the descriptors of all unread messages out of a socket.
void take_unread(const base::Fd& socket, std::vector<base::Fd>* taken);

}  // namespace vrdma::vrdmad
