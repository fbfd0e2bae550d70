// What a sender notes of a queue pair's progress, so that the sender of another process can go on
// should this one die. The notes of a queue pair have numbers, and each is some bytes, whose
// meaning is the sender's.
//
// They are for what shared rings do not tell, and where a program must not be able to change it.
// They end when the queue pair's peer is no longer remote.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace vrdma::rdma {

struct Qp;

class Notes {
 public:
  static constexpr uint32_t kMost = 256;  // of a queue pair

  virtual ~Notes() = default;
  // Replaces the note of that number, below kMost, by at most 256 bytes.
  virtual void put(const Qp& qp, uint32_t number, std::span<const uint8_t> bytes) = 0;
  // What was put since the last time holds from now on, all of it or, if the process dies before,
  // nothing.
  virtual void commit() = 0;
  // Empty: there is none. Not to be trusted: the dead process may have been deceived.
  [[nodiscard]] virtual std::vector<uint8_t> find(const Qp& qp, uint32_t number) const = 0;
};

}  // namespace vrdma::rdma
