// One end of the socket between control and a worker process: messages with descriptors, in order.
//
// Neither end blocks. What the socket does not take waits here; an end that does not read for so
// long that more than kMostQueued messages or kMostQueuedFds descriptors wait is given up. Each
// pass of the loop takes a bounded number of messages, so that a worker that sends without end does
// not stop control.
//
// Belongs to the thread of its loop.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/base/event_loop.h"
#include "vrdmad/broker/intake.h"
#include "vrdmad/worker/parcel.h"

namespace vrdma::vrdmad {

class Link {
 public:
  static constexpr size_t kMostQueued = 65'536;
  static constexpr size_t kMostQueuedFds = 8'192;
  static constexpr unsigned kMostAtOnce = 64;
  // False: the message is nonsense, and the link ends.
  using Came = std::function<bool(std::span<const uint8_t> bytes, Beside beside)>;

  // A SOCK_SEQPACKET socket. `ended` is called once, from the loop, with the reason; it may destroy
  // the link. ENOSPC: the loop cannot watch the socket. `closer`: of control, whose worker may send
  // descriptors that take long to close: they are not received, but end the link, and the account's
  // intake closes the socket. nullptr: descriptors are received.
  [[nodiscard]] static base::Result<std::unique_ptr<Link>> start(
      base::EventLoop& loop, base::Fd socket, Came came,
      std::function<void(const std::string& why)> ended, Intake::AccountRef closer = nullptr);
  ~Link();
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  // At most 253 descriptors (SCM_MAX_FD). After the end of the link it does nothing.
  void send(std::vector<uint8_t> bytes, Beside beside);
  // The other process has ended, but another may have a duplicate of its socket. Receives what was
  // sent before; then the link ends.
  void hang_up();

 private:
  struct Queued {
    std::vector<uint8_t> bytes;
    Beside beside;
  };
  Link(base::EventLoop& loop, base::Fd socket, Came came,
       std::function<void(const std::string& why)> ended, Intake::AccountRef closer);
  void on_socket();
  void flush();
  [[nodiscard]] bool receive();  // false: nothing is left
  void end(const std::string& why);

  base::EventLoop& loop_;
  base::Fd socket_;
  const Came came_;
  std::function<void(const std::string&)> ended_;
  base::EventLoop::Watch watch_;
  std::deque<Queued> queue_;
  size_t queued_fds_ = 0;
  const Intake::AccountRef closer_;
  base::EventLoop::Timer again_;
  const std::unique_ptr<uint8_t[]> buffer_;  // pages that no message needs are never touched
  std::shared_ptr<int> alive_ = std::make_shared<int>(0);
};

}  // namespace vrdma::vrdmad
