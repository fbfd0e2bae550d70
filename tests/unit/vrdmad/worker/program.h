// A session of this process at the other end of `socket`: the client of a test.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "core/base/fd.h"
#include "core/ipc/messages.h"
#include "core/ipc/socket.h"

namespace vrdma::vrdmad {

class Program {
 public:
  explicit Program(base::Fd socket) : socket_(std::move(socket)) {
    ipc::Request request;
    request.call = ipc::Call::kHello;
    request.hello.challenge_addr = reinterpret_cast<uint64_t>(&challenge_);
    ipc::Reply reply = call(request);
    EXPECT_EQ(reply.error, 0);
    challenge_ = reply.challenge.challenge;
    ipc::Request proof;
    proof.call = ipc::Call::kProve;
    reply = call(proof);
    EXPECT_EQ(reply.error, 0);
    hello = reply.hello;
  }

  ipc::Reply call(ipc::Request& request) {
    request.sequence = ++sequence_;
    EXPECT_TRUE(ipc::send_message(socket_.get(), &request, sizeof request));
    ipc::Reply reply;
    reply.error = ECONNRESET;
    std::vector<base::Fd> fds;
    EXPECT_TRUE(ipc::receive_reply(socket_.get(), &reply, &fds));
    return reply;
  }
  ipc::Reply call(ipc::Call which) {
    ipc::Request request;
    request.call = which;
    return call(request);
  }

  // A queue pair of `wanted`, with completion queue and protection domain of its own.
  ipc::Reply create_qp(ipc::CreateQpRequest wanted) {
    ipc::Request cq;
    cq.call = ipc::Call::kCreateCq;
    cq.create_cq = {ipc::kNoObject, 16};
    wanted.pd = call(ipc::Call::kAllocPd).handle.handle;
    wanted.send_cq = wanted.recv_cq = call(cq).create_cq.handle;
    ipc::Request request;
    request.call = ipc::Call::kCreateQp;
    request.create_qp = wanted;
    return call(request);
  }

  void to_init(uint32_t qp) {
    ipc::Request init;
    init.call = ipc::Call::kModifyQp;
    init.modify_qp.handle = qp;
    init.modify_qp.attributes.state = static_cast<uint32_t>(verbs::QpState::kInit);
    init.modify_qp.attributes.port_num = 1;
    init.modify_qp.mask =
        verbs::kQpState | verbs::kQpPort | verbs::kQpPkeyIndex | verbs::kQpAccessFlags;
    EXPECT_EQ(call(init).error, 0);
  }

  ipc::HelloReply hello{};

 private:
  base::Fd socket_;
  volatile uint64_t challenge_ = 0;
  uint32_t sequence_ = 0;
};

}  // namespace vrdma::vrdmad
