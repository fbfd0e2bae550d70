// One side of the demonstration: an RC queue pair on the first vdevice, its memory, and a TCP
// connection by which the two sides tell each other where they are.
//
// An error ends the program with a line on standard error and the status 1.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/base/fd.h"

namespace vrdma::cli::pingpong {

// What each side tells the other.
struct Place {
  uint32_t qpn = 0, rkey = 0;
  uint64_t address = 0;  // of its memory
  ibv_gid gid{};
};

class Endpoint {
 public:
  static constexpr size_t kMessage = 8;      // bytes of a message
  static constexpr size_t kBlock = 1 << 20;  // bytes of a WRITE
  static constexpr size_t kBlocks = 4;       // of memory; as many WRITEs are under way at once

  // Connects the queue pair with that of the peer at the other end of `connection`.
  explicit Endpoint(base::Fd connection);

  // Waits until the peer calls it, too. Call it at the end: a network may have lost the
  // acknowledgement of the peer's last message, which a queue pair that is gone does not repeat.
  void meet();

  [[nodiscard]] uint8_t* memory() { return memory_.data(); }
  void send(uint64_t message);
  // Waits for a message.
  [[nodiscard]] uint64_t receive();
  // Writes a block from this memory to the same place in the peer's.
  void write(size_t block);
  // Waits for the completion of a WRITE.
  void await_write() { (void)await(IBV_WC_RDMA_WRITE); }

 private:
  template <class T>
  struct Release {
    int (*function)(T*);
    void operator()(T* object) const { (void)function(object); }
  };
  template <class T>
  using Owned = std::unique_ptr<T, Release<T>>;

  void connect(const Place& peer);
  void post_receive();
  void post(ibv_send_wr* request);
  // Polls for a moment and then sleeps, until a request with that opcode is complete.
  ibv_wc await(ibv_wc_opcode opcode);
  ibv_wc await_any();

  base::Fd connection_;
  std::vector<uint8_t> memory_;
  // Not in the object, which may be on the stack: that is not put in place (docs/programs.md).
  std::vector<uint64_t> incoming_;
  Owned<ibv_context> context_;
  Owned<ibv_pd> pd_;
  Owned<ibv_comp_channel> channel_;
  Owned<ibv_cq> cq_;
  Owned<ibv_mr> mr_, incoming_mr_;
  Owned<ibv_qp> qp_;
  Place peer_;
  size_t receives_ = 0;        // that were posted
  std::vector<ibv_wc> early_;  // completions of other requests than the one that was awaited
};

// Ends the program unless `done`. `what` is what could not be done; errno says why.
void require(bool done, const char* what);

}  // namespace vrdma::cli::pingpong
