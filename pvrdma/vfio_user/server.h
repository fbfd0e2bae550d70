// The device's end of a vfio-user connection: messages of a VMM become calls of a Function.
//
// Messages are answered in their order, each before the next is looked at. What the VMM sends is
// hostile, as a guest may have taken it over: sizes, ranges and counts are checked before the
// function is called. A request that cannot be granted is answered with an errno: EINVAL if its
// fields are wrong, ENOTSUP if the server does not know the message or what it asks for. What is no
// message of the protocol ends the connection, and so does a VMM that does not read its answers.
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

namespace vrdma::pvrdma {

class VfioServer {
 public:
  // `connection`: a SOCK_STREAM socket. `ended` is called once, when the VMM has closed the
  // connection (empty) or broken the protocol (a sentence); it must not destroy the server. `loop`
  // and `function` must outlive the server.
  [[nodiscard]] static base::Result<std::unique_ptr<VfioServer>> serve(
      base::EventLoop& loop, base::Fd connection, Function& function,
      std::function<void(const std::string&)> ended);
  VfioServer(const VfioServer&) = delete;
  VfioServer& operator=(const VfioServer&) = delete;

 private:
  VfioServer(base::EventLoop& loop, Function& function, base::Fd connection,
             std::function<void(const std::string&)> ended);

  [[nodiscard]] base::Result<void> watch();
  void on_ready(uint32_t events);
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
  vfio::Connection connection_;
  std::function<void(const std::string&)> ended_;
  base::EventLoop::Watch watch_;
  bool watches_room_ = false;  // for answers

  bool negotiated_ = false;
  std::vector<uint8_t> answer_;  // room for its header, and its payload
  const base::Fd* answer_file_ = nullptr;
};

}  // namespace vrdma::pvrdma
