#include "vrdmad/broker/helper_client.h"

#include <sys/socket.h>

#include <cerrno>
#include <iterator>

#include "core/ipc/socket.h"

namespace vrdma::vrdmad {

using base::Fd;

void take_unread(const Fd& socket, std::vector<Fd>* taken) {
  constexpr int kMost = 100'000;  // more than a receive buffer holds
  for (int i = 0; i < kMost; ++i) {
    auto message = ipc::receive_any(socket.get(), nullptr, 0, MSG_DONTWAIT);
    if (message.error == ECONNRESET) continue;
    if (message.error != 0 || (message.length == 0 && message.alone))
      return;  // nothing left, or the end of file
    std::move(message.fds.begin(), message.fds.end(), std::back_inserter(*taken));
  }
}

}  // namespace vrdma::vrdmad
