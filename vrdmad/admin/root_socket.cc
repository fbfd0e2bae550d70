#include "vrdmad/admin/root_socket.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <fstream>

namespace vrdma::vrdmad {

namespace {
constexpr int kBacklog = 64;
}  // namespace

base::Result<base::Fd> listen_for_root(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path)
    return base::fail(ENAMETOOLONG, path + ": too long for a socket path");
  path.copy(address.sun_path, path.size());
  base::Fd listener(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!listener.valid()) return base::fail_errno("create a socket");
  // Set the mode before bind(2) creates the path, so that the path never has another mode.
  if (::fchmod(listener.get(), 0600) != 0) return base::fail_errno("set the mode of a socket");
  if (::bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    return base::fail_errno("bind " + path);
  if (::listen(listener.get(), kBacklog) != 0) {
    auto error = base::fail_errno("listen on " + path);
    ::unlink(path.c_str());
    return error;
  }
  return listener;
}

std::optional<AdminPeer> allowed_peer(const base::Fd& client) {
  ucred peer{};
  socklen_t size = sizeof peer;
  if (::getsockopt(client.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return {};
  if (peer.uid != 0 && peer.uid != ::geteuid()) return {};
  AdminPeer who{peer.uid, peer.pid, "?"};
  std::ifstream comm("/proc/" + std::to_string(peer.pid) + "/comm");
  std::getline(comm, who.program);
  return who;
}

}  // namespace vrdma::vrdmad
