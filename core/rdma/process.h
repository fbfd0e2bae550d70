// A client process as the daemon knows it: who it is, and how to get at its memory.
//
// Identity is what the kernel says of the socket's peer at connect(2), made certain by reading a
// cookie from the process's memory through the descriptor that is kept: a pid that was reused, or
// a process that passed its socket on, does not match. /proc/PID/mem stays bound to that address
// space also across execve(2). Where the cookie stands, the page may never answer, so it is read
// as all memory is that must be reached.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>

#include "core/base/fd.h"
#include "core/rdma/address_space.h"
#include "core/rdma/executor.h"
#include "core/rdma/reach.h"

namespace vrdma::rdma {

class Process {
 public:
  // `socket` is the accepted session socket; the user namespace is read from /proc.
  [[nodiscard]] static base::Result<std::shared_ptr<Process>> identify(int socket);
  // The process that another daemon had identified: it must be the same, and the same program. What
  // it is asked for is told by the kernel alone, so that it cannot keep us waiting.
  struct Identity {
    pid_t pid;
    uid_t uid;
    uid_t owner;  // of /proc/PID: root if it may not be looked into
    uint64_t user_namespace;
    uint64_t start_time;
    uint64_t program;  // differs after execve(2)
  };
  [[nodiscard]] static base::Result<std::shared_ptr<Process>> find(const Identity& identity);
  [[nodiscard]] Identity identity() const {
    return {pid_, uid_, owner_, user_namespace_, start_time_, program_};
  }
  // When a process began, in ticks since boot; 0 if there is none. With its pid it is unique.
  [[nodiscard]] static uint64_t start_time_of(pid_t pid);

  [[nodiscard]] pid_t pid() const { return pid_; }
  [[nodiscard]] uid_t uid() const { return uid_; }
  [[nodiscard]] uint64_t user_namespace() const { return user_namespace_; }
  [[nodiscard]] uint64_t start_time() const { return start_time_; }
  // Readable once the process has died.
  [[nodiscard]] int pidfd() const { return pidfd_.get(); }

  void set_space(std::unique_ptr<AddressSpace> space) { space_ = std::move(space); }
  [[nodiscard]] AddressSpace* space() const { return space_.get(); }
  // Makes reach() ready; its answers come on `loop`.
  [[nodiscard]] base::Result<void> start_reach(base::EventLoop& loop);
  [[nodiscard]] Reach* reach() const { return reach_.get(); }
  // After start_reach(): tells `done`, on the loop, whether `cookie` stands at `addr`.
  void confirm(uint64_t addr, uint64_t cookie, std::function<void(bool)> done);

 private:
  Process() = default;
  [[nodiscard]] static base::Result<std::shared_ptr<Process>> open(pid_t pid, uid_t uid);
  pid_t pid_ = 0;
  uid_t uid_ = 0, owner_ = 0;
  uint64_t user_namespace_ = 0;
  uint64_t start_time_ = 0;
  uint64_t program_ = 0;
  base::Fd pidfd_;
  base::Fd memory_;  // /proc/PID/mem
  std::unique_ptr<AddressSpace> space_;
  std::unique_ptr<Reach> reach_;
};

// `piece`, which must be reached, as a part of a job of `worker`'s reach.
[[nodiscard]] Reach::Part part_of(const Piece& piece, uint64_t offset, const Process& worker);

}  // namespace vrdma::rdma
