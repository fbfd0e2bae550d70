#include "client/device/session.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <exception>
#include <utility>

namespace vrdma::client {

void Session::resumable(const ipc::HelloReply& hello, std::function<void(base::Fd socket)> replace,
                        std::function<std::string()> find) {
  session_ = hello.session;
  epoch_ = hello.epoch;
  replace_ = std::move(replace);
  find_ = std::move(find);
  known(std::chrono::milliseconds(hello.grace_ms));
  if (session_ == 0) lose();
}

void Session::ask_to_resume(ipc::Request* request) {
  request->call = ipc::Call::kResume;
  request->sequence = sequence_;
  request->resume.session = session_;
}

Session::Taken Session::on_taken(const ipc::Reply& reply, base::Fd socket) {
  epoch_.store(reply.resume.epoch, std::memory_order_release);
  replace_(std::move(socket));
  return {std::chrono::milliseconds(reply.resume.grace_ms), 0};
}

std::string Session::path_now(const std::string& path) {
  if (is_where_it_was(path)) return path;
  const std::string found = find_();
  return found.empty() ? path : found;
}

Session::Resumed Session::resume() {
  if (!is_own()) return Resumed::kNever;
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock()) return Resumed::kNotYet;  // another thread's call is in progress
  return hung_up() ? try_daemon() : Resumed::kYes;
}

int Session::call(ipc::Request& request, ipc::Reply* reply, const std::vector<int>& sent,
                  std::vector<base::Fd>* received) {
  if (!is_own()) return EPERM;
  const std::lock_guard lock(mutex_);
  return converse(request, reply, sent, received, true);
}

int Session::call(ipc::Call call, uint32_t handle) {
  ipc::Request request;
  ipc::Reply reply;
  request.call = call;
  request.handle.handle = handle;
  return this->call(request, &reply);
}

void Session::goodbye(ipc::Word& serving) {
  const Uncancelled whole;
  const std::lock_guard lock(mutex_);
  say_goodbye(serving);
  ::shutdown(fd(), SHUT_RDWR);
  lose();
}

void Session::say_goodbye(ipc::Word& serving) {
  ipc::Request request;
  ipc::Reply reply;
  request.call = ipc::Call::kGoodbye;
  request.sequence = next_sequence();
  uint32_t known = epoch();
  while (!exchange(request, &reply, {}, nullptr)) {
    // If the daemon died, there is nothing to say goodbye to, unless another one has the session
    // already.
    if (serving.compare_exchange_strong(known, 0) || known == 0 ||
        find_daemon(true) != Resumed::kYes)
      return;
    known = epoch();
  }
}

int Session::tell(ipc::Request& request) {
  if (!is_own()) return EPERM;
  std::unique_lock lock(mutex_);
  if (const int error = tell_now(request, false); error != EAGAIN) return error;
  lock.unlock();
  ipc::Reply reply;
  return call(request, &reply);
}

bool Session::is_own() const { return ::getpid() == owner_; }

bool Session::hung_up() const {
  pollfd state{fd(), POLLRDHUP, 0};
  return ::poll(&state, 1, 0) > 0 && (state.revents & (POLLHUP | POLLRDHUP | POLLERR)) != 0;
}

Made::~Made() {
  if (session_ == nullptr) return;
  const int reason = errno;
  try {
    (void)session_->call(undo_, handle_);
  } catch (const std::exception&) {  // the daemon keeps the object until the session ends
  }
  errno = reason;
}

}  // namespace vrdma::client
