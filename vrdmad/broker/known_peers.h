// The processes that a broker has checked, for the next broker.
//
//   R/broker/       0700, of root
//   R/broker/peers  0600  rdma::Peer, one after the other
//
// A broker finds a process for a takeover only if an earlier one has checked it at the accept of
// its connection. Nothing else tells that the process gave the daemon access to its memory. Control
// can write to R, but not to a directory of root in it.
//
// A process stays known until it ends. Thread-safe.
#pragma once

#include <mutex>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/base/fd.h"
#include "core/rdma/peer.h"

namespace vrdma::vrdmad {

class KnownPeers {
 public:
  // `run_dir`: R, which must exist when one of the others is called. Empty: all are known.
  explicit KnownPeers(std::string run_dir) : run_dir_(std::move(run_dir)) {}
  ~KnownPeers() = default;
  KnownPeers(const KnownPeers&) = delete;
  KnownPeers& operator=(const KnownPeers&) = delete;

  void add(const rdma::Peer& peer);
  // EPERM: it is not known.
  [[nodiscard]] base::Result<void> find(const rdma::Peer& peer);
  // Removes the file if no process in it is alive.
  void end();

 private:
  [[nodiscard]] base::Result<void> open();
  void read();
  [[nodiscard]] base::Result<void> write_all();
  void leave_out_the_dead();

  const std::string run_dir_;
  std::mutex mutex_;
  bool opened_ = false;
  base::Fd directory_, file_;  // none: it could not be opened
  std::string trouble_;        // why
  std::vector<rdma::Peer> peers_;
  size_t sweep_at_ = 64;
};

}  // namespace vrdma::vrdmad
