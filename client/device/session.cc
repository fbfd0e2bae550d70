#include "client/device/session.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <cstdlib>
#include <cstring>

#include "core/ipc/socket.h"

namespace vrdma::client {

std::string Session::directory() {
  const char* run_dir = ::secure_getenv("VRDMA_RUN_DIR");
  struct stat status {};
  if (::stat("/proc/thread-self/ns/net", &status) != 0) return {};
  return std::string(run_dir != nullptr && *run_dir != '\0' ? run_dir : "/run/vrdma") + "/netns/" +
         std::to_string(status.st_ino);
}

base::Result<base::Fd> Session::dial(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path)
    return base::fail(ENAMETOOLONG, "the path of the session socket is too long");
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  base::Fd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (!socket.valid()) return base::fail_errno("make a session socket");
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    return base::fail_errno("connect to " + path);
  return socket;
}

int Session::call(ipc::Request& request, ipc::Reply* reply, const std::vector<int>& sent,
                  std::vector<base::Fd>* received) {
  const std::lock_guard lock(mutex_);
  if (++sequence_ == 0) ++sequence_;  // it would have no answer
  request.sequence = sequence_;
  if (!ipc::send_message(socket_.get(), &request, sizeof request, sent)) return EIO;
  std::vector<base::Fd> fds;
  if (!ipc::receive_message(socket_.get(), reply, sizeof *reply, &fds)) return EIO;
  if (reply->magic != ipc::kMagic || reply->sequence != request.sequence) return EIO;
  if (received != nullptr) *received = std::move(fds);
  return reply->error;
}

int Session::call(ipc::Call call, uint32_t handle) {
  ipc::Request request;
  ipc::Reply reply;
  request.call = call;
  request.handle.handle = handle;
  return this->call(request, &reply);
}

int Session::tell(ipc::Request& request) {
  const std::lock_guard lock(mutex_);
  request.sequence = 0;
  return ipc::send_message(socket_.get(), &request, sizeof request) ? 0 : EIO;
}

bool Session::hung_up() const {
  pollfd state{socket_.get(), POLLRDHUP, 0};
  return ::poll(&state, 1, 0) > 0 && (state.revents & (POLLHUP | POLLRDHUP | POLLERR)) != 0;
}

}  // namespace vrdma::client
