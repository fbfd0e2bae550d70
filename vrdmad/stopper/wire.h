// The protocol of the stopper process and its clients: fixed structs over a SOCK_SEQPACKET pair for
// each client. Both ends are built together; no other program speaks it.
#pragma once

#include <cstdint>

#include "core/ipc/messages.h"
#include "core/rdma/peer.h"

namespace vrdma::vrdmad::stopper {

// Processor time of the stopper for an account, which the client limits, and for all accounts of a
// client but control, which the stopper limits. Beyond it orders are refused.
constexpr uint64_t kNanosecondsASecond = 100'000'000;
constexpr uint64_t kSavedUp = 500'000'000;

enum class Task : uint32_t {
  kHold,  // sent with the pidfd of the process, and the queue arena of its session (HoldWords)
  // From control only, sent with the socket of a new client. There is no report.
  kAddClient,
};

struct Order {
  uint64_t id = 0;       // chosen by the client, like
  uint64_t account = 0;  // this
  uint32_t thread = 0;   // keeps running; its number in the process's own pid namespace
  Task task = Task::kHold;
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
