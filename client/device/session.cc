#include "client/device/session.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "core/ipc/socket.h"

namespace vrdma::client {

std::string Session::directory() {
  const char* run_dir = ::secure_getenv("VRDMA_RUN_DIR");
  struct stat status {};
  if (::stat("/proc/thread-self/ns/net", &status) != 0) return {};
  return std::string(run_dir != nullptr && *run_dir != '\0' ? run_dir : "/run/vrdma") + "/netns/" +
         std::to_string(status.st_ino);
}

base::Result<base::Fd> Session::dial(const std::string& path, int flags) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path)
    return base::fail(ENAMETOOLONG, "the path of the session socket is too long");
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  base::Fd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | flags, 0));
  if (!socket.valid()) return base::fail_errno("make a session socket");
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    return base::fail_errno("connect to " + path);
  return socket;
}

bool Session::exchange(const ipc::Request& request, ipc::Reply* reply, const std::vector<int>& sent,
                       std::vector<base::Fd>* received) {
  if (!ipc::send_message(socket_.get(), &request, sizeof request, sent)) return false;
  std::vector<base::Fd> fds;
  if (!ipc::receive_message(socket_.get(), reply, sizeof *reply, &fds)) return false;
  if (reply->magic != ipc::kMagic || reply->sequence != request.sequence) return false;
  if (received != nullptr) *received = std::move(fds);
  told_.clear();  // a daemon does one thing after the other
  return true;
}

int Session::call(ipc::Request& request, ipc::Reply* reply, const std::vector<int>& sent,
                  std::vector<base::Fd>* received) {
  const std::lock_guard lock(mutex_);
  if (++sequence_ == 0) ++sequence_;  // it would have no answer
  request.sequence = sequence_;
  while (!exchange(request, reply, sent, received))
    if (!wait_for_daemon()) return EIO;
  return reply->error;
}

void Session::goodbye(ipc::Word& serving) {
  const std::lock_guard lock(mutex_);
  ipc::Request request;
  ipc::Reply reply;
  request.call = ipc::Call::kGoodbye;
  if (++sequence_ == 0) ++sequence_;
  request.sequence = sequence_;
  uint32_t known = epoch();
  while (!exchange(request, &reply, {}, nullptr)) {
    // With the daemon died whom one would say it to, unless another has the session already.
    if (serving.compare_exchange_strong(known, 0) || known == 0 || !wait_for_daemon()) return;
    known = epoch();
  }
}

void Session::resumable(std::string path, const ipc::HelloReply& hello,
                        std::function<void(base::Fd socket)> replace) {
  path_ = std::move(path);
  session_ = hello.session;
  grace_ms_ = hello.grace_ms;
  epoch_ = hello.epoch;
  replace_ = std::move(replace);
}

Session::Resumed Session::resume() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock()) return Resumed::kNotYet;  // a call is about it
  return hung_up() ? resume_locked() : Resumed::kYes;
}

// Never waits: a daemon that is still starting has a socket, but does not answer there yet, and one
// that was asked is not asked again, for what it answers goes to the socket that asked.
Session::Resumed Session::resume_locked() {
  if (session_ == 0) return Resumed::kNever;
  if (!asked_.valid()) {
    auto socket = dial(path_, SOCK_NONBLOCK);
    if (!socket) return Resumed::kNotYet;
    ipc::Request request;
    request.call = ipc::Call::kResume;
    request.sequence = sequence_;
    request.resume.session = session_;
    if (!ipc::send_message(socket->get(), &request, sizeof request, {})) return Resumed::kNotYet;
    asked_ = std::move(*socket);
  }
  ipc::Reply reply;
  std::vector<base::Fd> none;
  if (auto answer = ipc::receive_message(asked_.get(), &reply, sizeof reply, &none); !answer) {
    if (answer.error().code() != EAGAIN) asked_.reset();
    return Resumed::kNotYet;
  }
  base::Fd socket = std::move(asked_);
  ::fcntl(socket.get(), F_SETFL, 0);
  if (reply.magic != ipc::kMagic || reply.error != 0) {
    session_ = 0;
    return Resumed::kNever;
  }
  grace_ms_ = reply.resume.grace_ms;
  epoch_.store(reply.resume.epoch, std::memory_order_release);
  replace_(std::move(socket));
  for (const ipc::Request& told : told_) (void)ipc::send_message(socket_.get(), &told, sizeof told);
  return Resumed::kYes;
}

bool Session::wait_for_daemon() {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(grace_ms_);
  auto pause = std::chrono::milliseconds(2);
  for (;;) {
    const Resumed resumed = resume_locked();
    if (resumed != Resumed::kNotYet) return resumed == Resumed::kYes;
    if (std::chrono::steady_clock::now() >= deadline) {
      session_ = 0;  // nobody waits again
      return false;
    }
    std::this_thread::sleep_for(pause);
    pause = std::min(2 * pause, std::chrono::milliseconds(100));
  }
}

int Session::call(ipc::Call call, uint32_t handle) {
  ipc::Request request;
  ipc::Reply reply;
  request.call = call;
  request.handle.handle = handle;
  return this->call(request, &reply);
}

int Session::tell(ipc::Request& request) {
  constexpr size_t kMost = 64;
  std::unique_lock lock(mutex_);
  if (told_.size() == kMost) {
    lock.unlock();
    ipc::Reply reply;
    return call(request, &reply);
  }
  request.sequence = 0;
  if (session_ != 0) told_.push_back(request);
  if (ipc::send_message(socket_.get(), &request, sizeof request)) return 0;
  return session_ != 0 ? 0 : EIO;
}

bool Session::hung_up() const {
  pollfd state{socket_.get(), POLLRDHUP, 0};
  return ::poll(&state, 1, 0) > 0 && (state.revents & (POLLHUP | POLLRDHUP | POLLERR)) != 0;
}

}  // namespace vrdma::client
