#include "vrdmad/session_socket.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>

#include "netns/netns.h"
#include "vrdmad/strange_fds.h"

namespace vrdma::vrdmad {

using base::fail;
using base::fail_errno;
using base::Fd;

namespace {
constexpr int kAtOnce = 32;
constexpr std::chrono::seconds kRetry(1);
}  // namespace

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
  socket->listener_ = Fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket->listener_.valid()) return fail_errno("make a session socket");
  if (::bind(socket->listener_.get(), reinterpret_cast<const sockaddr*>(&address),
             sizeof address) != 0)
    return fail_errno("bind " + path);
  socket->path_ = path;
  if (::chmod(path.c_str(), 0666) != 0) return fail_errno("chmod " + path);
  if (::listen(socket->listener_.get(), SOMAXCONN) != 0) return fail_errno("listen on " + path);
  socket->netns_inode_ = netns_inode;
  socket->accepted_ = std::move(accepted);
  socket->refused_ = std::move(refused);
  socket->loop_ = &loop;
  if (auto watched = socket->watch(); !watched) return base::pass(std::move(watched.error()));
  return socket;
}

base::Result<void> SessionSocket::watch() {
  auto watch = loop_->watch(listener_.get(), EPOLLIN, [this](uint32_t) { accept_some(); });
  if (!watch) return base::pass(std::move(watch.error()));
  watch_ = std::move(*watch);
  return {};
}

SessionSocket::~SessionSocket() {
  watch_.reset();
  retry_.reset();
  // Nobody comes any more. Who waits has perhaps sent something.
  ::shutdown(listener_.get(), SHUT_RDWR);
  for (Fd client = next(); client.valid(); client = next()) close_connection(std::move(client));
  if (!path_.empty()) ::unlink(path_.c_str());
}

Fd SessionSocket::next() {
  return Fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
}

// A few at a time: whoever connects and connects is not to keep the loop from all others.
void SessionSocket::accept_some() {
  for (int i = 0; i < kAtOnce; ++i) {
    Fd client = next();
    if (!client.valid()) {
      if (errno == EINTR || errno == ECONNABORTED) continue;
      if (errno == EAGAIN) return;
      // No descriptors or no memory. The client stays in the queue and the socket readable: look
      // away, or the loop would spin.
      watch_.reset();
      retry_ = loop_->after(kRetry, [this] {
        if (!watch()) accept_some();  // which fails too, and the timer starts again
      });
      return;
    }
    const auto inode = netns::peer_inode(client);
    if (inode && *inode == netns_inode_) {
      accepted_(std::move(client));
    } else {
      close_connection(std::move(client));
      refused_();
    }
  }
}

}  // namespace vrdma::vrdmad
