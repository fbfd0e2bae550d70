// A broker that finds no process while `error` is not 0.
#pragma once

#include <cerrno>
#include <memory>
#include <utility>

#include "vrdmad/broker/broker.h"

namespace vrdma::vrdmad {

struct HungBroker : Broker {
  explicit HungBroker(std::shared_ptr<Broker> of) : broker(std::move(of)) {}
  Answer serve(const Request& request, Beside* beside) override {
    if (request.op != Request::Op::kFind || error == 0) return broker->serve(request, beside);
    Answer answer;
    answer.error = error;
    return answer;
  }
  const std::shared_ptr<Broker> broker;
  int error = EAGAIN;
};

}  // namespace vrdma::vrdmad
