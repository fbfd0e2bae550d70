// The protocol of the daemon and its stopper process: fixed structs over one SOCK_SEQPACKET pair.
// Both ends are the same program; no other program speaks it.
#pragma once

#include <cstdint>

#include "core/ipc/messages.h"
#include "core/rdma/peer.h"

namespace vrdma::vrdmad::stopper {

// Sent with the pidfd of the process, and the queue arena of its session, which contains the
// HoldWords.
struct Order {
  uint64_t id = 0;
  uint64_t account = 0;
  uint32_t thread = 0;  // keeps running; its number in the process's own pid namespace
  uint32_t reserved = 0;
  rdma::Peer peer;  // its identity when it connected
};

enum class Stage : uint32_t {
  kAnswered,  // the threads are held or cannot be; kFinished follows
  kFinished,  // all threads run again
};

struct Report {
  uint64_t id = 0;
  Stage stage = Stage::kFinished;
  ipc::Reached reached = ipc::Reached::kNot;  // kAnswered: why not
  uint32_t serial = 0;                        // kAnswered: of the hold
  uint32_t reserved = 0;
  uint64_t processor_ns = 0;  // kFinished: the stopper's time
};

}  // namespace vrdma::vrdmad::stopper
