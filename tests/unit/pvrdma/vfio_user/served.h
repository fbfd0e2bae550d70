// A VMM and the server of a Model, in one thread.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "pvrdma/vfio_user/server.h"
#include "tests/unit/pvrdma/vfio_user/model.h"
#include "tests/unit/pvrdma/vmm.h"

namespace vrdma::pvrdma {

struct Served {
  Served() : vmm(connect(), [this] { go_on(); }) {}

  // The server gets another connection; the VMM's end of it. `room`: for answers, as SO_SNDBUF has
  // it; 0: as usual.
  base::Fd connect(int room = 0) {
    int ends[2];
    EXPECT_EQ(0, ::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends));
    if (room != 0) {
      EXPECT_EQ(0, ::setsockopt(ends[0], SOL_SOCKET, SO_SNDBUF, &room, sizeof room));
    }
    ended = false;
    progress.clear();
    server = VfioServer::serve(*loop, base::Fd(ends[0]), function, progress,
                               [this](const std::string& why) {
                                 EXPECT_FALSE(ended);
                                 ended = true;
                                 reason = why;
                               })
                 .value();
    return base::Fd(ends[1]);
  }
  void go_on() {
    while (loop->step()) {
    }
  }
  void negotiate() { ASSERT_EQ(0u, vmm.negotiate()); }
  template <class... Bodies>
  Vmm::Answer ask(vfio::Message message, const Bodies&... bodies) {
    return vmm.ask(message, Vmm::bytes_of(bodies...));
  }
  template <class... Bodies>
  uint32_t error_of(vfio::Message message, const Bodies&... bodies) {
    const Vmm::Answer answer = ask(message, bodies...);
    if (answer.error() != 0) {  // an error has no payload and no file
      EXPECT_EQ(vfio::kReplyType | vfio::kError, answer.header.flags);
      EXPECT_TRUE(answer.body.empty() && !answer.file.valid());
    } else {
      EXPECT_EQ(vfio::kReplyType, answer.header.flags);
    }
    return answer.error();
  }
  [[nodiscard]] std::vector<std::string> take_calls() { return std::exchange(function.calls, {}); }

  std::unique_ptr<base::EventLoop> loop = base::EventLoop::create().value();
  Model function;
  vfio::Progress progress;
  std::unique_ptr<VfioServer> server;
  bool ended = false;
  std::string reason;
  Vmm vmm;
};

}  // namespace vrdma::pvrdma
