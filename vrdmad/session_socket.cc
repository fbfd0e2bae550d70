#include "vrdmad/session_socket.h"

#include <sys/socket.h>
#include <unistd.h>

namespace vrdma::vrdmad {

using base::Fd;

base::Result<std::unique_ptr<SessionSocket>> SessionSocket::listen(
    Identity& identity, Intake::AccountRef account, base::EventLoop& loop, const std::string& path,
    uint64_t netns_cookie, std::function<void(Arrival)> accepted, std::function<void()> refused) {
  std::unique_ptr<SessionSocket> socket(new SessionSocket);
  socket->account_ = account;
  socket->netns_cookie_ = netns_cookie;
  socket->accepted_ = std::move(accepted);
  socket->refused_ = std::move(refused);
  auto acceptor = identity.listen(
      loop, path, [raw = socket.get()](Arrival arrival) { raw->admit(std::move(arrival)); },
      [account](Fd client) { close_connection(account, std::move(client)); },
      [account] { return account->crowded(); });
  if (!acceptor) return base::pass(std::move(acceptor.error()));
  socket->path_ = path;
  socket->acceptor_ = std::move(*acceptor);
  return socket;
}

SessionSocket::~SessionSocket() {
  if (acceptor_ != nullptr) {
    // Nobody comes any more. Who waits has perhaps sent something.
    const Fd listener = acceptor_->stop();
    ::shutdown(listener.get(), SHUT_RDWR);
    for (;;) {
      Fd client(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (!client.valid()) break;
      close_connection(account_, std::move(client));
    }
  }
  if (!path_.empty()) ::unlink(path_.c_str());
}

void SessionSocket::admit(Arrival arrival) {
  arrival.account = account_;
  if (arrival.caller->peer().netns_cookie == netns_cookie_) {
    accepted_(std::move(arrival));
  } else {
    close_connection(account_, std::move(arrival.socket));
    refused_();
  }
}

}  // namespace vrdma::vrdmad
