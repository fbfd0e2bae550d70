// A container whose first process is a child in the test's own namespaces.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <string>

#include "core/rdma/peer.h"
#include "vrdmad/admin/backend.h"

namespace vrdma::vrdmad {

class ChildContainer {
 public:
  explicit ChildContainer(std::string id) : id_(std::move(id)), init_(::fork()) {
    if (init_ == 0) {
      ::pause();
      ::_exit(0);
    }
  }
  ~ChildContainer() { end(); }
  ChildContainer(const ChildContainer&) = delete;
  ChildContainer& operator=(const ChildContainer&) = delete;

  void end() {
    if (init_ <= 0) return;
    ::kill(init_, SIGKILL);
    ::waitpid(init_, nullptr, 0);
    init_ = 0;
  }
  [[nodiscard]] Container container() const {
    return {id_, {static_cast<uint32_t>(init_), rdma::start_time_of(init_).value_or(0), ""}};
  }

 private:
  const std::string id_;
  pid_t init_;
};

}  // namespace vrdma::vrdmad
