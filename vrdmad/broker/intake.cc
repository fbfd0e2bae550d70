#include "vrdmad/broker/intake.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "core/ipc/socket.h"
#include "vrdmad/broker/helper_client.h"

namespace vrdma::vrdmad {

using base::Fd;
using intake::Order;
using intake::Report;
using intake::Stage;
using intake::Task;

uint64_t Intake::Account::next_number() {
  static std::atomic<uint64_t> next = 1;
  return next++;
}

// Another process may write to the word at any time.
void Intake::Account::count_down() {
  uint32_t count = *unfinished_;
  while (count > 0 && !unfinished_->compare_exchange_weak(count, count - 1)) {
  }
}

Intake::Ticket& Intake::Ticket::operator=(Ticket&& other) noexcept {
  if (this != &other) {
    reset();
    intake_ = std::exchange(other.intake_, nullptr);
    id_ = other.id_;
  }
  return *this;
}

void Intake::Ticket::reset() {
  Intake* const from = std::exchange(intake_, nullptr);
  if (from == nullptr) return;
  std::function<void(Received)> dropped;
  const std::lock_guard lock(from->mutex_);
  const auto it = from->pending_.find(id_);
  if (it == from->pending_.end()) return;
  it->second.loop = nullptr;
  dropped.swap(it->second.done);
}

std::unique_ptr<Intake> Intake::attach(Fd socket) {
  ::fcntl(socket.get(), F_SETFL, O_NONBLOCK);
  return std::unique_ptr<Intake>(new Intake(std::move(socket)));
}

base::Result<Fd> Intake::add_client() {
  auto ends = ipc::make_socket_pair();
  if (!ends) return base::pass(std::move(ends).error(), "add a client of the intake");
  Order add;
  add.task = Task::kAddClient;
  const std::lock_guard lock(mutex_);
  order(add, std::move(ends->first));
  return std::move(ends->second);
}

base::Result<base::EventLoop::Watch> Intake::watch(base::EventLoop& loop,
                                                   std::function<void()> died) {
  died_ = std::move(died);
  return loop.watch(socket_.get(), EPOLLIN | EPOLLOUT | EPOLLET, [this](uint32_t) { on_socket(); });
}

void Intake::close(const AccountRef& account, Fd fd) {
  if (!fd.valid()) return;
  Order close;
  close.task = Task::kClose;
  close.account = account->number_;
  ++*account->unfinished_;
  const std::lock_guard lock(mutex_);
  close.id = next_id_++;
  pending_[close.id].account = account;
  order(close, std::move(fd));
}

Intake::Ticket Intake::receive(const AccountRef& account, const Fd& socket, base::EventLoop& loop,
                               std::function<void(Received)> done) {
  return receive(Task::kReceive, account, socket, loop, std::move(done));
}

Intake::Ticket Intake::receive_process(const AccountRef& account, const Fd& socket,
                                       base::EventLoop& loop, std::function<void(Received)> done) {
  return receive(Task::kReceiveProcess, account, socket, loop, std::move(done));
}

Intake::Ticket Intake::receive(Task task, const AccountRef& account, const Fd& socket,
                               base::EventLoop& loop, std::function<void(Received)> done) {
  Ticket ticket;
  auto duplicate = socket.duplicate();
  if (!duplicate) {
    loop.post([done = std::move(done), code = duplicate.error().code()] {
      Received none;
      none.report.error = static_cast<uint32_t>(code);
      done(std::move(none));
    });
    return ticket;
  }
  Order receive;
  receive.task = task;
  receive.account = account->number_;
  ++*account->unfinished_;
  const std::lock_guard lock(mutex_);
  receive.id = next_id_++;
  pending_[receive.id] = {account, &loop, std::move(done)};
  ticket.intake_ = this;
  ticket.id_ = receive.id;
  order(receive, std::move(*duplicate));
  return ticket;
}

// mutex_ is held. Closing our descriptor costs nothing, because the intake has a copy. After the
// death of the intake nothing is sent, and the daemon ends.
void Intake::order(const Order& order, Fd subject) {
  if (unsent_.empty() && send(order, subject)) return;
  unsent_.push_back({order, std::move(subject)});
}

// False: the socket's buffer is full.
bool Intake::send(const Order& order, const Fd& subject) const {
  return ipc::send_message(socket_.get(), &order, sizeof order, {subject.get()}).has_value();
}

void Intake::send_unsent() {
  const std::lock_guard lock(mutex_);
  while (!unsent_.empty() && send(unsent_.front().order, unsent_.front().subject))
    unsent_.pop_front();
}

void Intake::on_socket() {
  for (;;) {
    send_unsent();
    Received received;
    auto message =
        ipc::receive_any(socket_.get(), &received.report, sizeof received.report, MSG_DONTWAIT);
    if (message.error == EAGAIN) return;
    if (message.length != sizeof received.report) {
      if (const auto died = std::exchange(died_, nullptr)) died();
      return;
    }
    received.passed = std::move(message.fds);
    received.lost = message.truncated;
    on_report(std::move(received));
  }
}

void Intake::on_report(Received received) {
  std::vector<Fd> unwanted;
  AccountRef account;
  {
    const std::lock_guard lock(mutex_);
    const auto it = pending_.find(received.report.id);
    if (it == pending_.end()) return;
    Pending& pending = it->second;
    account = pending.account;
    if (received.report.stage == Stage::kFinished) {
      account->count_down();
      pending_.erase(it);
      return;
    }
    if (pending.loop != nullptr) {
      pending.loop->post(
          [done = std::move(pending.done),
           shared = std::make_shared<Received>(std::move(received))] { done(std::move(*shared)); });
      return;
    }
    unwanted = std::move(received.passed);
  }
  for (Fd& fd : unwanted) close(account, std::move(fd));
}

Next look_at_next(int socket) {
  char byte = 0;
  iovec piece{&byte, 1};
  union {
    char buffer[CMSG_SPACE(sizeof(ucred))];
    cmsghdr align;
  } control{};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = control.buffer;
  message.msg_controllen = sizeof control.buffer;
  ssize_t length;
  do {
    length = ::recvmsg(socket, &message, MSG_PEEK | MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  } while (length < 0 && errno == EINTR);
  if (length < 0) return errno == EAGAIN ? Next::kNothing : Next::kError;
  // The credentials fill the control buffer, so descriptors truncate it.
  return (message.msg_flags & MSG_CTRUNC) != 0 ? Next::kDescriptors : Next::kMessage;
}

namespace {

// The socket is shut down: no more messages arrive. With SO_PASSCRED, every message, even an empty
// one, has credentials, which truncate the absent control buffer; the end of file has none.
bool has_unread(int socket) {
  const int on = 1;
  ::setsockopt(socket, SOL_SOCKET, SO_PASSCRED, &on, sizeof on);
  for (int tries = 0; tries < 4; ++tries) {
    iovec none{};
    msghdr message{};
    message.msg_iov = &none;
    const ssize_t length = ::recvmsg(socket, &message, MSG_PEEK | MSG_DONTWAIT);
    if (length >= 0) return (message.msg_flags & MSG_CTRUNC) != 0;
    if (errno == EAGAIN) return false;  // it was never connected
    // The kernel reports a reset once, before the unread messages.
  }
  return true;
}

}  // namespace

void close_connection(const Intake::AccountRef& account, Fd socket) {
  if (!socket.valid()) return;
  ::shutdown(socket.get(), SHUT_RDWR);
  if (account->intake() != nullptr && has_unread(socket.get()))
    account->intake()->close(account, std::move(socket));
}

}  // namespace vrdma::vrdmad
