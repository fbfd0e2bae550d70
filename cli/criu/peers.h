// Direct links: what a process and its peers map and hold of one another, while one of them is
// written to disk and comes back.
//
//   a process has of a peer         meanwhile              afterwards
//   queue arena, bells, mapped      CRIU writes a copy     the peer's
//   memory arena, mapped            nothing is there       the peer's, if it still has that one
//   memory arena, its descriptor    an eventfd             the peer's
//   write ends of channels          eventfds               the peer's
//
// Its peers get its new files in the same way. Nobody executes on the links meanwhile, so neither
// program notices. If the peer has ended, the copies stay, with what it had said last.
//
// vrdmad's control says which processes are peers and which files they share. It has no rights of
// root, so what it says is checked: only processes of one user give one another files, or a worker
// does, and only files of the kinds that programs share.
//
// One that comes back while its peer is away gets that one's files as they were, from the worker;
// they are exchanged when the peer comes back. Only one process comes back at a time (Meeting).
#pragma once

#include <vector>

#include "cli/criu/held.h"
#include "cli/criu/program.h"

namespace vrdma::cli::criu {

// Takes out what `held` has of peers, and notes it in `had`. An error leaves a part of it done;
// meet_peers() undoes that.
[[nodiscard]] base::Result<void> take_out_peers(Held& held, const ParkedProgram& program,
                                                std::vector<OfPeer>* had);

// Excludes other processes that come back on this host, until it is destroyed.
class Meeting {
 public:
  [[nodiscard]] static base::Result<Meeting> begin();

 private:
  explicit Meeting(base::Fd lock) : lock_(std::move(lock)) {}
  base::Fd lock_;
};

// Before the sessions of `held` are attached: it gets what it had of its peers, as they are now,
// and they what they had of it. `now`: the parked program; `made`: what its sessions share from now
// on.
[[nodiscard]] base::Result<void> meet_peers(Held& held, const std::vector<OfPeer>& had,
                                            const ParkedProgram& now,
                                            const std::vector<Shared>& made);

// After that, if the sessions are not attached: peers get what they had before, from the worker, so
// that another attempt finds it.
void part_from_peers(const Held& held, const ParkedProgram& now, const std::vector<Shared>& made);

}  // namespace vrdma::cli::criu
