#include "vrdmad/strange_fds.h"

#include <sys/socket.h>

#include <memory>
#include <system_error>
#include <thread>

namespace vrdma::vrdmad {

using base::Fd;

StrangeFds::~StrangeFds() {
  std::erase_if(*this, [](const Fd& fd) { return !fd.valid(); });  // those that were taken out
  if (empty()) return;
  const auto fds =
      std::make_shared<std::vector<Fd>>(std::move(static_cast<std::vector<Fd>&>(*this)));
  try {
    std::thread([fds] { fds->clear(); }).detach();
  } catch (const std::system_error&) {
    fds->clear();  // no more threads: then it is done here, and may take a moment
  }
}

void close_connection(Fd socket) {
  ::shutdown(socket.get(), SHUT_RDWR);
  // There is no way to ask whether something is unread: a reset hides it (ECONNRESET), and an empty
  // message looks like the end.
  StrangeFds unread;
  unread.push_back(std::move(socket));
}

}  // namespace vrdma::vrdmad
