// The number by which control knows a connection. The destructor tells control that the worker has
// ended the connection.
#pragma once

#include <cstdint>
#include <functional>

#include "vrdmad/worker/messages.h"

namespace vrdma::vrdmad {

class Connection {
 public:
  // `tell` must outlive it.
  Connection(uint64_t number, const std::function<void(ToControl)>& tell)
      : number_(number), tell_(tell) {}
  ~Connection() { tell_(Ended{number_}); }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  [[nodiscard]] uint64_t number() const { return number_; }

 private:
  const uint64_t number_;
  const std::function<void(ToControl)>& tell_;
};

}  // namespace vrdma::vrdmad
