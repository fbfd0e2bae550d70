// The device's end of a vfio-user connection: messages of a VMM become calls of a Function.
//
// A SOCK_STREAM socket. Messages are answered in their order, each before the next is looked at.
// What the VMM sends is hostile, as a guest may have taken it over: sizes, ranges and counts are
// checked before the function is called. A request that cannot be granted is answered with an
// errno; one that is no message of the protocol ends the connection.
//
// One thread, that of the loop.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/base/event_loop.h"
#include "pvrdma/vfio_user/function.h"
#include "pvrdma/vfio_user/messages.h"

namespace vrdma::pvrdma {

class VfioServer {
 public:
  // `ended` is called once, when the VMM has closed the connection (empty) or broken the protocol
  // (a sentence); it must not destroy the server. `loop` and `function` must outlive it.
  [[nodiscard]] static base::Result<std::unique_ptr<VfioServer>> serve(
      base::EventLoop& loop, base::Fd connection, Function& function,
      std::function<void(const std::string&)> ended);
  VfioServer(const VfioServer&) = delete;
  VfioServer& operator=(const VfioServer&) = delete;

 private:
  VfioServer(Function& function, base::Fd connection,
             std::function<void(const std::string&)> ended);

  // ---- receiving
  enum class Progress : uint8_t { kMessage, kWaits, kEnded };
  void on_ready(uint32_t events);
  [[nodiscard]] Progress receive();
  void take_descriptors(const msghdr& message);
  void end(const std::string& why);

  // ---- answering: each returns 0 or the errno of the answer
  void dispatch();
  [[nodiscard]] int execute(vfio::Message message);
  [[nodiscard]] int version();
  [[nodiscard]] int map();
  [[nodiscard]] int unmap();
  [[nodiscard]] int region_info();
  [[nodiscard]] int irq_info();
  [[nodiscard]] int set_irqs();
  [[nodiscard]] int read_region();
  [[nodiscard]] int write_region();
  [[nodiscard]] int write_regions();
  // The region exists, and the access lies within it.
  [[nodiscard]] bool permits(uint32_t region, uint64_t offset, uint64_t count) const;
  template <class Struct>
  [[nodiscard]] bool read(Struct* to, size_t at = 0) const;
  template <class Struct>
  void append(const Struct& one);
  [[nodiscard]] bool send_answer(int error);

  Function& function_;
  base::Fd connection_;
  std::function<void(const std::string&)> ended_;
  base::EventLoop::Watch watch_;
  base::EventLoop* loop_ = nullptr;

  bool negotiated_ = false;
  vfio::Header header_{};
  size_t received_ = 0;           // bytes of the message
  std::vector<uint8_t> payload_;  // behind the header
  std::vector<base::Fd> descriptors_;
  std::vector<uint8_t> answer_;  // behind its header
  const base::Fd* answer_file_ = nullptr;
};

}  // namespace vrdma::pvrdma
