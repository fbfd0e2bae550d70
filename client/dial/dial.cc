#include "client/dial/dial.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

#include "core/base/netns_cookie.h"

namespace vrdma::client {

const char* named_run_directory() {
  const char* const run_dir = ::secure_getenv("VRDMA_RUN_DIR");
  return run_dir != nullptr && *run_dir != '\0' ? run_dir : nullptr;
}

std::string run_directory() {
  const char* const run_dir = named_run_directory();
  return run_dir != nullptr ? run_dir : "/run/vrdma";
}

std::string socket_directory() {
  const auto cookie = base::own_netns_cookie();
  if (!cookie) return {};
  return run_directory() + "/netns/" + std::to_string(*cookie);
}

bool is_where_it_was(const std::string& path) {
  if (::access(path.c_str(), F_OK) == 0) return true;
  const std::string directory = socket_directory();
  return directory.empty() || path.starts_with(directory + "/");
}

base::Result<base::Fd> dial(const std::string& path, int flags) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path)
    return base::fail(ENAMETOOLONG, "the path of the session socket is too long");
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  base::Fd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | flags, 0));
  if (!socket.valid()) return base::fail_errno("make a session socket");
  // A signal ends the wait for room in the backlog.
  while (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    if (errno != EINTR) return base::fail_errno("connect to " + path);
  return socket;
}

namespace {
base::Result<base::Fd> dial_when_served(const std::string& path) {
  constexpr auto kPatience = std::chrono::seconds(3);
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  for (;;) {
    auto socket = dial(path);
    const int error = socket ? 0 : socket.error().code();
    const bool may_come = error == ECONNREFUSED || error == ENOENT;
    if (!may_come || std::chrono::steady_clock::now() >= deadline) return socket;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}
}  // namespace

base::Result<base::Fd> Newcomer::begin(const std::string& path, bool waits) {
  dials_ = 1;
  return waits ? dial_when_served(path) : dial(path);
}

base::Result<base::Fd> Newcomer::again(const std::string& path) {
  if (dials_ == 0 || dials_ == kMostDials) return base::fail(EIO, path + ": vrdmad hangs up");
  constexpr int kLongest = 64;  // ms
  if (dials_ > 1)
    std::this_thread::sleep_for(std::chrono::milliseconds(std::min(1 << (dials_ - 2), kLongest)));
  ++dials_;
  return dial_when_served(path);
}

base::Fd Redial::ask(const std::string& path, const void* question, size_t question_size,
                     void* answer, size_t answer_size, ipc::Sized versions) {
  if (!asked_.valid()) {
    auto socket = dial(path, SOCK_NONBLOCK);
    if (!socket || !ipc::send_message(socket->get(), question, question_size)) return {};
    asked_ = std::move(*socket);
  }
  std::vector<base::Fd> none;
  if (auto got = ipc::receive_sized(asked_.get(), answer, answer_size, versions, &none, nullptr);
      !got) {
    if (got.error().code() != EAGAIN) asked_.reset();
    return {};
  }
  ::fcntl(asked_.get(), F_SETFL, 0);
  return std::move(asked_);
}

void Redial::wait(std::chrono::milliseconds most) const {
  pollfd answer{asked_.get(), POLLIN, 0};  // without a connection, poll(2) only sleeps
  (void)::poll(&answer, asked_.valid() ? 1 : 0, static_cast<int>(most.count()));
}

}  // namespace vrdma::client
