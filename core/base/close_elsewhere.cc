#include "core/base/close_elsewhere.h"

#include <memory>
#include <system_error>
#include <thread>

namespace vrdma::base {

void close_elsewhere(std::vector<Fd> fds) {
  if (fds.empty()) return;
  const auto shared = std::make_shared<std::vector<Fd>>(std::move(fds));
  try {
    std::thread([shared] { shared->clear(); }).detach();
  } catch (const std::system_error&) {
    shared->clear();
  }
}

}  // namespace vrdma::base
