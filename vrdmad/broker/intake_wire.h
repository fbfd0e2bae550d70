// What the daemon and its intake process say to each other: fixed structs over one SOCK_SEQPACKET
// pair. Both are the same program; nothing here is a protocol that others speak.
#pragma once

#include <sys/socket.h>

#include <array>
#include <cstddef>
#include <cstdint>

namespace vrdma::vrdmad::intake {

// Longer than any message of a session or of rdma_cm, and as many descriptors as any may have.
constexpr size_t kMostBytes = 1024;
constexpr size_t kMostVerdicts = 8;

enum class Task : uint32_t {
  kReceive,  // one message from the socket that comes beside the order
  kClose,    // that descriptor
};

// Beside it: one descriptor, of a socket or a file whose last close may take long.
struct Order {
  uint64_t id = 0;
  uint64_t account = 0;
  Task task = Task::kClose;
  uint32_t reserved = 0;
};

enum class Kind : uint32_t { kOther, kMemory, kPacketSocket };

// What is known of a descriptor without asking a server of its file.
struct Verdict {
  Kind kind = Kind::kOther;
  uint32_t error = 0;  // of asking for its number; then device and inode are 0
  uint64_t device = 0, inode = 0;
  uint64_t netns_cookie = 0;  // of a packet socket
  // kMemory, sealed as base::make_memfd() seals: passed on beside the report.
  uint32_t passed = 0;
  uint32_t reserved = 0;
};

enum class Stage : uint32_t {
  kReceived,  // of kReceive, which is not finished until its descriptors are closed
  kFinished,
};

struct Report {
  uint64_t id = 0;
  Stage stage = Stage::kFinished;
  uint32_t error = 0;      // of recvmsg(2)
  uint32_t length = 0;     // of the message, which may be more than kMostBytes
  uint32_t truncated = 0;  // descriptors were lost
  ucred sender{};          // pid 0: unknown
  uint32_t count = 0;      // of descriptors; verdicts are of the first kMostVerdicts
  std::array<Verdict, kMostVerdicts> verdicts{};
  std::array<uint8_t, kMostBytes> bytes{};
};

}  // namespace vrdma::vrdmad::intake
