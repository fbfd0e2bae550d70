// Tells the daemon that a program opens one of its files, before the program can read it.
//
// The daemon holds a write lease (fcntl(2), F_SETLEASE) on the file, which no other process has
// open. open(2) of another process then sends the daemon a signal and waits until the daemon has
// given the lease up. The kernel does that by itself if the daemon ends, or does not answer within
// 45 s (/proc/sys/fs/lease-break-time). open(2) with O_NONBLOCK fails with EWOULDBLOCK instead. A
// lease costs nothing while nobody opens the file; no thread waits for it.
//
// The signal goes to the thread that started this, which blocks it and reads it from a signalfd.
// SIGIO comes instead if too many signals wait (RLIMIT_SIGPENDING), and does not name the file.
//
// Belongs to the control thread.
#pragma once

#include <functional>
#include <memory>
#include <unordered_map>

#include "core/base/error.h"
#include "core/base/event_loop.h"
#include "core/base/fd.h"

namespace vrdma::vrdmad {

class ReadLeases {
 public:
  [[nodiscard]] static base::Result<std::unique_ptr<ReadLeases>> start(base::EventLoop& loop);
  ReadLeases(const ReadLeases&) = delete;
  ReadLeases& operator=(const ReadLeases&) = delete;
  ~ReadLeases() = default;

  // `fd` must be the only descriptor of the file in this process. `opened` is called from the loop,
  // perhaps more than once, when a program wants to open the file, which it can after give_up().
  // EAGAIN: a program has the file open.
  [[nodiscard]] base::Result<void> take(int fd, std::function<void()> opened);
  // Also of a file without a lease.
  void give_up(int fd);

 private:
  ReadLeases() = default;
  void read_signals();

  base::Fd signals_;
  base::EventLoop::Watch watch_;
  std::unordered_map<int, std::function<void()>> held_;  // by descriptor
};

}  // namespace vrdma::vrdmad
