#include "vrdmad/strange_fds.h"

#include <sys/socket.h>

#include "core/base/close_elsewhere.h"

namespace vrdma::vrdmad {

using base::Fd;

StrangeFds::~StrangeFds() {
  std::erase_if(*this, [](const Fd& fd) { return !fd.valid(); });  // those that were taken out
  base::close_elsewhere(std::move(static_cast<std::vector<Fd>&>(*this)));
}

void close_connection(Fd socket) {
  ::shutdown(socket.get(), SHUT_RDWR);
  // There is no way to ask whether something is unread: a reset hides it (ECONNRESET), and an empty
  // message looks like the end.
  StrangeFds unread;
  unread.push_back(std::move(socket));
}

}  // namespace vrdma::vrdmad
