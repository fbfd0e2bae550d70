// What the daemon and its stopper process say to each other: fixed structs over one SOCK_SEQPACKET
// pair. Both are the same program; nothing here is a protocol that others speak.
#pragma once

#include <cstdint>

#include "core/ipc/messages.h"
#include "core/rdma/peer.h"

namespace vrdma::vrdmad::stopper {

// Beside it: the pidfd of the process, and the queue arena of its session, whose HoldWords are
// used.
struct Order {
  uint64_t id = 0;
  uint64_t account = 0;
  uint32_t thread = 0;  // runs on; its number as the process's own pid namespace has it
  uint32_t reserved = 0;
  rdma::Peer peer;  // as it was when it proved itself
};

enum class Stage : uint32_t {
  kAnswered,  // the threads are held, or cannot be; kFinished follows
  kFinished,  // all run again
};

struct Report {
  uint64_t id = 0;
  Stage stage = Stage::kFinished;
  ipc::Reached reached = ipc::Reached::kNot;  // of kAnswered: why not
  uint32_t serial = 0;                        // of kAnswered: of the hold
  uint32_t reserved = 0;
  uint64_t processor_ns = 0;  // of kFinished: what it took of the stopper
};

}  // namespace vrdma::vrdmad::stopper
