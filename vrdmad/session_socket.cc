#include "vrdmad/session_socket.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>

#include "netns/netns.h"
#include "vrdmad/strange_fds.h"

namespace vrdma::vrdmad {

using base::fail;
using base::fail_errno;
using base::Fd;

base::Result<std::unique_ptr<SessionSocket>> SessionSocket::listen(base::EventLoop& loop,
                                                                   const std::string& path,
                                                                   uint64_t netns_inode,
                                                                   std::function<void(Fd)> accepted,
                                                                   std::function<void()> refused) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path)
    return fail(ENAMETOOLONG, "the path of the session socket is longer than a socket's may be (" +
                                  path + "): use a shorter run directory or name");
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  std::unique_ptr<SessionSocket> socket(new SessionSocket);
  Fd listener(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!listener.valid()) return fail_errno("make a session socket");
  if (::bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    return fail_errno("bind " + path);
  socket->path_ = path;
  if (::chmod(path.c_str(), 0666) != 0) return fail_errno("chmod " + path);
  if (::listen(listener.get(), SOMAXCONN) != 0) return fail_errno("listen on " + path);
  socket->netns_inode_ = netns_inode;
  socket->accepted_ = std::move(accepted);
  socket->refused_ = std::move(refused);
  auto acceptor = Acceptor::start(loop, std::move(listener), [raw = socket.get()](Fd client) {
    raw->admit(std::move(client));
  });
  if (!acceptor) return base::pass(std::move(acceptor.error()));
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
      close_connection(std::move(client));
    }
  }
  if (!path_.empty()) ::unlink(path_.c_str());
}

void SessionSocket::admit(Fd client) {
  const auto inode = netns::peer_inode(client);
  if (inode && *inode == netns_inode_) {
    accepted_(std::move(client));
  } else {
    close_connection(std::move(client));
    refused_();
  }
}

}  // namespace vrdma::vrdmad
