// A process whose threads are all stopped, and in which system calls are made. No code of its
// program runs meanwhile.
//
// CRIU holds the processes that it dumps or restores, by the thread that calls its plugins. Before
// the dump and for other processes this class holds them itself, and lets them go at the end.
//
// Belongs to the thread that made it: the kernel knows a tracer by its thread. x86-64.
#pragma once

#include <sys/types.h>
#include <sys/user.h>

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/base/fd.h"

namespace vrdma::cli::criu {

// Whether CRIU holds the process, or has asked it to stop.
[[nodiscard]] bool is_held(pid_t pid);

// Ends a process that CRIU holds, and its descendants. They have been reaped afterwards: the first
// process of a pid namespace ends after all others of it, and CRIU would wait for the first one
// only, although it must reap all that it traces.
void end_all(pid_t root);

class Held {
 public:
  // EPERM: another process traces it. ETIMEDOUT: a thread ends, or does not stop within 2 s.
  [[nodiscard]] static base::Result<Held> hold(pid_t pid);
  Held(Held&& other) noexcept { *this = std::move(other); }
  Held& operator=(Held&& other) noexcept;
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;
  ~Held();  // the threads have their registers again, and go on unless CRIU holds them

  [[nodiscard]] pid_t pid() const { return pid_; }
  // Makes a system call in the first thread. The error says which, by `what`.
  [[nodiscard]] base::Result<uint64_t> call(const char* what, long number, uint64_t a = 0,
                                            uint64_t b = 0, uint64_t c = 0, uint64_t d = 0,
                                            uint64_t e = 0, uint64_t f = 0);
  // The address of 4096 bytes of its memory that nobody else uses.
  [[nodiscard]] base::Result<uint64_t> scratch();
  [[nodiscard]] base::Result<void> write(uint64_t to, const void* from, size_t size) const;
  [[nodiscard]] base::Result<void> read(uint64_t from, void* to, size_t size) const;
  // Ends another thread of it, without another effect. The thread must rest in a system call.
  [[nodiscard]] base::Result<void> end_thread(pid_t thread);
  // Gives it a copy of a descriptor, and returns its number there.
  [[nodiscard]] base::Result<int> give(const base::Fd& file);
  // A copy of a descriptor of it.
  [[nodiscard]] base::Result<base::Fd> take(int number) const;

 private:
  Held() = default;
  [[nodiscard]] base::Result<void> stop_all();
  [[nodiscard]] base::Result<void> find_instruction();
  [[nodiscard]] bool step();

  pid_t pid_ = 0;
  std::vector<pid_t> seized_;  // by this object
  user_regs_struct saved_{};
  bool has_saved_ = false;
  uint64_t instruction_ = 0;  // of a system call, in its memory
  uint64_t scratch_ = 0;      // 0: none yet
  uint64_t mask_ = 0;         // of the first thread's signals
  base::Fd pidfd_;
};

}  // namespace vrdma::cli::criu
