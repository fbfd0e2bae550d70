#include "vrdmad/worker/link.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <cerrno>
#include <utility>

#include "core/ipc/socket.h"
#include "vrdmad/worker/messages_codec.h"

namespace vrdma::vrdmad {

using base::Fd;
using base::pass;
using base::Result;

namespace {

[[nodiscard]] Result<void> send_now(const Fd& socket, const std::vector<uint8_t>& bytes,
                                    const Beside& beside) {
  std::vector<int> numbers;
  for (const Fd& fd : beside) numbers.push_back(fd.get());
  return ipc::send_message(socket.get(), bytes.data(), bytes.size(), numbers);
}

// ETOOMANYREFS: too many descriptors are under way (unix(7)); no event tells when there are fewer.
bool is_full(const base::Error& error) {
  return error.code() == EAGAIN || error.code() == ETOOMANYREFS;
}

}  // namespace

Link::Link(base::EventLoop& loop, Fd socket, Came came,
           std::function<void(const std::string&)> ended, Intake::AccountRef closer)
    : loop_(loop),
      socket_(std::move(socket)),
      came_(std::move(came)),
      ended_(std::move(ended)),
      closer_(std::move(closer)),
      buffer_(std::make_unique_for_overwrite<uint8_t[]>(kMostMessage)) {}

Link::~Link() {
  watch_.reset();
  if (closer_ != nullptr) close_connection(closer_, std::move(socket_));
}

Result<std::unique_ptr<Link>> Link::start(base::EventLoop& loop, Fd socket, Came came,
                                          std::function<void(const std::string&)> ended,
                                          Intake::AccountRef closer) {
  const int flags = ::fcntl(socket.get(), F_GETFL);
  if (flags < 0 || ::fcntl(socket.get(), F_SETFL, flags | O_NONBLOCK) != 0)
    return base::fail_errno("prepare the socket of a worker");
  constexpr int kOn = 1;
  if (closer != nullptr &&  // as look_at_next() needs it
      ::setsockopt(socket.get(), SOL_SOCKET, SO_PASSCRED, &kOn, sizeof kOn) != 0)
    return base::fail_errno("prepare the socket of a worker");
  std::unique_ptr<Link> link(
      new Link(loop, std::move(socket), std::move(came), std::move(ended), std::move(closer)));
  auto watch = loop.watch(link->socket_.get(), EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET,
                          [raw = link.get()](uint32_t) { raw->on_socket(); });
  if (!watch) return pass(std::move(watch).error());
  link->watch_ = std::move(*watch);
  return link;
}

void Link::send(std::vector<uint8_t> bytes, Beside beside) {
  if (ended_ == nullptr) return;
  if (queue_.empty()) {
    const auto sent = send_now(socket_, bytes, beside);
    if (sent) return;
    if (!is_full(sent.error())) return;  // the end comes by the socket
  }
  queued_fds_ += beside.size();
  queue_.push_back({std::move(bytes), std::move(beside)});
  if (queue_.size() == 1) flush();
  if (queue_.size() > kMostQueued || queued_fds_ > kMostQueuedFds)
    loop_.post([this, alive = std::weak_ptr(alive_)] {
      if (!alive.expired()) end("it does not read");
    });
}

void Link::hang_up() { ::shutdown(socket_.get(), SHUT_RDWR); }

void Link::flush() {
  while (!queue_.empty()) {
    const auto sent = send_now(socket_, queue_.front().bytes, queue_.front().beside);
    if (!sent && sent.error().code() == ETOOMANYREFS && !again_.active())
      again_ = loop_.after(std::chrono::milliseconds(1), [this] {
        again_.reset();
        flush();
      });
    if (!sent && is_full(sent.error())) return;
    queued_fds_ -= queue_.front().beside.size();
    queue_.pop_front();
  }
}

bool Link::receive() {
  if (closer_ != nullptr && look_at_next(socket_.get()) == Next::kDescriptors) {
    end("it sends descriptors");
    return true;
  }
  auto received = ipc::receive_any(socket_.get(), buffer_.get(), kMostMessage, MSG_DONTWAIT);
  if (received.error == EAGAIN) return false;
  const auto length = static_cast<size_t>(received.length);
  if (received.length <= 0) {
    end("it has ended");
  } else if (received.truncated || length > kMostMessage) {
    end("a message is too large");
  } else if (const std::weak_ptr<int> alive = alive_;
             !came_({buffer_.get(), length}, std::move(received.fds)) && !alive.expired()) {
    end("it sends nonsense");
  }
  return true;
}

void Link::on_socket() {
  flush();
  const std::weak_ptr<int> alive = alive_;
  for (unsigned i = 0; i < kMostAtOnce; ++i)
    if (!receive() || alive.expired() || ended_ == nullptr) return;
  loop_.post([this, alive] {
    if (!alive.expired() && ended_ != nullptr) on_socket();
  });
}

void Link::end(const std::string& why) {
  watch_.reset();
  again_.reset();
  if (const auto ended = std::exchange(ended_, nullptr)) ended(why);
}

}  // namespace vrdma::vrdmad
