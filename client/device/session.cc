#include "client/device/session.h"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <exception>

#include "core/ipc/socket.h"

namespace vrdma::client {

int Session::open(std::string path) {
  path_ = std::move(path);
  auto socket = newcomer_.begin(path_);
  if (!socket) return socket.error().code();
  socket_ = std::move(*socket);
  return 0;
}

bool Session::exchange(const ipc::Request& request, ipc::Reply* reply, const std::vector<int>& sent,
                       std::vector<base::Fd>* received) {
  std::vector<base::Fd> fds;
  fds.reserve(ipc::kMaxFds);  // nothing throws between a request and its answer
  if (!ipc::send_message(socket_.get(), &request, sizeof request, sent)) return false;
  *reply = {};
  if (!ipc::receive_reply(socket_.get(), reply, &fds)) return false;
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

void Session::resumable(const ipc::HelloReply& hello,
                        std::function<void(base::Fd socket)> replace) {
  newcomer_ = {};
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

// Never waits.
Session::Resumed Session::resume_locked() {
  if (session_ == 0) return Resumed::kNever;
  ipc::Request request;
  ipc::Reply reply;
  request.call = ipc::Call::kResume;
  request.sequence = sequence_;
  request.resume.session = session_;
  base::Fd socket = redial_.ask(path_, request, &reply);
  if (!socket.valid()) return Resumed::kNotYet;
  if (reply.magic == ipc::kMagic && reply.error == EAGAIN) return Resumed::kNotYet;
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
  if (session_ == 0) {
    auto socket = newcomer_.again(path_);
    if (socket) socket_ = std::move(*socket);
    return socket.has_value();
  }
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(grace_ms_);
  auto pause = std::chrono::milliseconds(2);
  for (;;) {
    const Resumed resumed = resume_locked();
    if (resumed != Resumed::kNotYet) return resumed == Resumed::kYes;
    if (std::chrono::steady_clock::now() >= deadline) {
      session_ = 0;  // nobody waits again
      return false;
    }
    redial_.wait(pause);
    pause = std::min(2 * pause, std::chrono::milliseconds(100));
  }
}

Made::~Made() {
  if (session_ == nullptr) return;
  const int reason = errno;
  try {
    (void)session_->call(undo_, handle_);
  } catch (const std::exception&) {  // the daemon keeps it until the session ends
  }
  errno = reason;
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
