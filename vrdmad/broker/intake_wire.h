// The protocol of the intake process and its clients: fixed structs over a SOCK_SEQPACKET pair for
// each client. Both ends are built together; no other program speaks it.
#pragma once

#include <sys/socket.h>

#include <array>
#include <cstddef>
#include <cstdint>

namespace vrdma::vrdmad::intake {

// As many as a hook's request has, more than any session or rdma_cm message; and as many
// descriptors as one may carry.
constexpr size_t kMostBytes = 1504;
constexpr size_t kMostVerdicts = 8;

enum class Task : uint32_t {
  kReceive,  // receive one message from the socket beside the order
  kClose,    // close the descriptor beside the order
  // From control only: the socket beside the order is that of a new client. There is no report.
  kAddClient,
  // From control only: as kReceive, but passes on network namespaces and pidfds, and no memory.
  kReceiveProcess,
};

// Sent with one descriptor, of a socket or a file whose last close may take long.
struct Order {
  uint64_t id = 0;       // chosen by the client, like
  uint64_t account = 0;  // this
  Task task = Task::kClose;
  uint32_t reserved = 0;
};

enum class Kind : uint32_t { kOther, kMemory, kPacketSocket, kNetns, kPidfd };

// What the kernel knows about a descriptor without a request to its file's server.
struct Verdict {
  Kind kind = Kind::kOther;
  uint32_t error = 0;  // errno of statx(2); then device and inode are 0
  uint64_t device = 0, inode = 0;
  uint64_t netns_cookie = 0;  // of a packet socket
  uint64_t size = 0;          // of kMemory that is passed, whose seals let it have no other
  // 1: kMemory with the seals of base::make_memfd(), or what kReceiveProcess passes on; the report
  // carries the descriptor.
  uint32_t passed = 0;
  uint32_t reserved = 0;
};

enum class Stage : uint32_t {
  kReceived,  // the message of kReceive or kReceiveProcess; kFinished follows when its descriptors
              // are closed
  kFinished,
};

struct Report {
  uint64_t id = 0;
  Stage stage = Stage::kFinished;
  uint32_t error = 0;      // errno of recvmsg(2)
  uint32_t length = 0;     // of the message; may exceed kMostBytes
  uint32_t truncated = 0;  // 1: descriptors were lost
  ucred sender{};          // pid 0: unknown
  uint32_t count = 0;      // number of descriptors; verdicts cover the first kMostVerdicts
  std::array<Verdict, kMostVerdicts> verdicts{};
  std::array<uint8_t, kMostBytes> bytes{};
};

}  // namespace vrdma::vrdmad::intake
