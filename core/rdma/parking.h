// Parking a context: nobody executes requests of its program or of peers that name it, and nothing
// is told to the program, until the context is resumed. Its numbers, keys and links stay. Meanwhile
// the program may be written to disk and come back as another process.
//
// A direct link is mediated meanwhile. When it is resumed, programs execute on it again: whoever
// resumes it has shown each end the files that the other one has now.
//
// Peers on this host wait without counting retries. What the network brings for the context is
// dropped, as if it had been lost; the peer sends it again as often as its attributes say.
// Datagrams are lost.
//
// All calls are of the thread that owns the fabric.
#pragma once

#include <string>

#include "core/rdma/device.h"

namespace vrdma::rdma {

// Why the context must not be parked, as the end of a sentence about its program; empty: it may be.
[[nodiscard]] std::string parking_obstacle(const Context& context);

void park(Context& context);
// Whether nothing is on its way into memory by way of its queue pairs, and no program executes on
// its direct links. Jobs of reaches that read its memory may still run: see reaches_of().
[[nodiscard]] bool is_at_rest(const Context& context);
// Those whose jobs may use the context's memory: its own and those of its linked peers.
[[nodiscard]] std::vector<Reach*> reaches_of(const Context& context);
// What the rings say now is executed, and what was kept back is told.
void resume(Context& context);

// Files of the same content that take the place of those that the context shares with its program.
// Everything that points into its memory stays valid. Only while it is parked.
struct SharedFiles {
  base::Fd arena, arena_read_only, bells, events;
};
[[nodiscard]] base::Result<void> exchange_files(Context& context, SharedFiles files);

// Before it is resumed as another process. Its library finds the connection ended, as after the end
// of a daemon, and takes the queues of direct links back from whom it knows by the epoch (token of
// ipc::QpBlock). So this daemon serves it in another epoch from now on, and a compare-and-swap
// decides whose each queue is. What was in hand is fetched again. ESTALE: the program has given the
// session up.
[[nodiscard]] base::Result<void> begin_epoch(Context& context, uint32_t epoch);

}  // namespace vrdma::rdma
