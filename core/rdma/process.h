// A client process as the daemon serves it: its identity, its memory and its death.
//
// The identity is the Peer taken when the connection was accepted (core/rdma/peer.h). Its memory is
// known by descriptors, which stay bound to that address space also across execve(2). The
// process proves that it wants this session by storing a challenge of the daemon's in its memory.
// The page of that address may never answer, so it is read as all memory is that must be reached.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>

#include "core/base/fd.h"
#include "core/rdma/address_space.h"
#include "core/rdma/executor.h"
#include "core/rdma/link.h"
#include "core/rdma/peer.h"
#include "core/rdma/reach.h"

namespace vrdma::rdma {

class Process {
 public:
  // `memory`: of open_memory().
  [[nodiscard]] static std::shared_ptr<Process> make(const Peer& peer, base::Fd pidfd,
                                                     MemoryFiles memory);

  [[nodiscard]] const Peer& peer() const { return peer_; }
  [[nodiscard]] pid_t pid() const { return peer_.pid; }
  [[nodiscard]] uint64_t start_time() const { return peer_.start_time; }
  // Whether `other` may map this process's registered memory: the same user, in the same user
  // namespace, and neither keeps others of that user out (ptrace(2), "access mode checking").
  [[nodiscard]] bool may_share_with(const Process& other) const {
    return why_not_shared_with(other) == NotDirect::kNone;
  }
  [[nodiscard]] NotDirect why_not_shared_with(const Process& other) const;
  // Readable once the process has died.
  [[nodiscard]] int pidfd() const { return pidfd_.get(); }
  [[nodiscard]] base::Result<base::Fd> duplicate_pidfd() const { return pidfd_.duplicate(); }
  [[nodiscard]] bool has_died() const { return !is_alive(pidfd_); }

  void set_space(std::unique_ptr<AddressSpace> space) { space_ = std::move(space); }
  [[nodiscard]] AddressSpace* space() const { return space_.get(); }
  // Makes reach() ready, once; its answers come on `loop`, its work is done by `threads`.
  void start_reach(base::EventLoop& loop, std::shared_ptr<ReachThreads> threads);
  [[nodiscard]] Reach* reach() const { return reach_.get(); }
  // After start_reach(): tells `done`, on the loop, whether `challenge` stands at `addr`.
  void confirm(uint64_t addr, uint64_t challenge, std::function<void(bool)> done);

 private:
  Process() = default;
  Peer peer_;
  base::Fd pidfd_;
  MemoryFiles memory_;  // until start_reach()
  std::unique_ptr<AddressSpace> space_;
  std::unique_ptr<Reach> reach_;
};

// `piece`, which must be reached, as a part of a job of `worker`'s reach.
[[nodiscard]] Reach::Part part_of(const Piece& piece, uint64_t offset, const Process& worker);

}  // namespace vrdma::rdma
