// The device's end of a vfio-user connection: messages of a VMM become calls of a Function.
//
// Messages are answered in their order, each before the next is looked at. What the VMM sends is
// hostile, as a guest may have taken it over: sizes, ranges and counts are checked before the
// function is called. A request that cannot be granted is answered with an errno: EINVAL if its
// fields are wrong, ENOTSUP if the server does not know the message or what it asks for. What is no
// message of the protocol ends the connection. A VMM that does not read its answers is not read.
//
// The process may end at any instruction, and another one go on with the same connection and the
// same `progress` (progress.h): each message is carried out once.
//
// One thread, that of the loop.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/base/event_loop.h"
#include "pvrdma/vfio_user/connection.h"
#include "pvrdma/vfio_user/function.h"
#include "pvrdma/vfio_user/progress.h"

namespace vrdma::pvrdma {

class VfioServer {
 public:
  // `connection`: a SOCK_STREAM socket. `progress`: clear, or as the process left it that served
  // the connection before. `ended` is called once, when the VMM has closed the connection (empty)
  // or broken the protocol (a sentence); it must not destroy the server. `loop`, `function` and
  // `progress` must outlive the server.
  [[nodiscard]] static base::Result<std::unique_ptr<VfioServer>> serve(
      base::EventLoop& loop, base::Fd connection, Function& function, vfio::Progress& progress,
      std::function<void(const std::string&)> ended);
  VfioServer(const VfioServer&) = delete;
  VfioServer& operator=(const VfioServer&) = delete;

 private:
  VfioServer(base::EventLoop& loop, Function& function, vfio::Progress& progress,
             base::Fd connection, std::function<void(const std::string&)> ended);

  // Ends the message that the process before had noted.
  [[nodiscard]] base::Result<void> resume();
  [[nodiscard]] base::Result<void> watch();
  void on_ready();
  // The answer has left, if nothing is unsent.
  void settle();
  // Whether there may be more messages in this pass.
  [[nodiscard]] base::Result<bool> serve_one(int& reads);
  void end(const std::string& why);

  // Each returns 0, with the answer's payload in answer_, or the errno of an answer without
  // payload.
  [[nodiscard]] int execute(vfio::Message message);
  [[nodiscard]] int version();
  [[nodiscard]] int map();
  [[nodiscard]] int unmap();
  [[nodiscard]] int device_info();
  [[nodiscard]] int region_info();
  [[nodiscard]] int irq_info();
  [[nodiscard]] int set_irqs();
  [[nodiscard]] int read_region();
  [[nodiscard]] int write_region();
  [[nodiscard]] int write_regions();
  [[nodiscard]] int refuse(const vfio::Header& header) const;
  // The region exists, and the access lies within it.
  [[nodiscard]] bool permits(uint32_t region, uint64_t offset, uint64_t count) const;

  // The payload from `at` on. False: it is shorter.
  template <class Struct>
  [[nodiscard]] bool read(Struct* to, size_t at = 0) const;
  // The same for a struct with argsz. False: it is shorter, or argsz is too small for the struct.
  template <class Struct>
  [[nodiscard]] bool read_sized(Struct* to) const;
  template <class Struct>
  void append(const Struct& part);

  base::EventLoop& loop_;
  Function& function_;
  vfio::Progress& progress_;
  vfio::Connection connection_;
  std::function<void(const std::string&)> ended_;
  base::EventLoop::Watch watch_;
  base::EventLoop::Timer again_;
  bool watches_room_ = false;  // for an answer

  bool negotiated_ = false;
  bool refuses_ = false;         // the next message
  std::vector<uint8_t> answer_;  // room for its header, and its payload
  uint32_t answer_file_ = 0;     // the region whose file goes with it, from 1 on
};

}  // namespace vrdma::pvrdma
