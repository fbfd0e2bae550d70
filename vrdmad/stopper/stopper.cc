#include "vrdmad/stopper/stopper.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "core/ipc/socket.h"
#include "vrdmad/broker/helper_client.h"

namespace vrdma::vrdmad {

using base::Fd;
using stopper::Order;
using stopper::Report;
using stopper::Stage;
using stopper::Task;

Stopper::Account::Account(Stopper* stopper)
    : stopper_(stopper), number_([] {
        static std::atomic<uint64_t> next = 1;
        return next++;
      }()) {
  time_.set(stopper::kNanosecondsASecond, stopper::kSavedUp);
}

Stopper::Ticket& Stopper::Ticket::operator=(Ticket&& other) noexcept {
  if (this != &other) {
    reset();
    stopper_ = std::exchange(other.stopper_, nullptr);
    id_ = other.id_;
  }
  return *this;
}

void Stopper::Ticket::reset() {
  Stopper* const from = std::exchange(stopper_, nullptr);
  if (from == nullptr) return;
  std::function<void(Answer)> dropped;
  const std::lock_guard lock(from->mutex_);
  const auto it = from->pending_.find(id_);
  if (it == from->pending_.end()) return;
  it->second.loop = nullptr;
  dropped.swap(it->second.done);
}

std::unique_ptr<Stopper> Stopper::attach(Fd socket) {
  ::fcntl(socket.get(), F_SETFL, O_NONBLOCK);
  return std::unique_ptr<Stopper>(new Stopper(std::move(socket)));
}

base::Result<base::EventLoop::Watch> Stopper::watch(base::EventLoop& loop,
                                                    std::function<void()> died) {
  died_ = std::move(died);
  return loop.watch(socket_.get(), EPOLLIN | EPOLLOUT | EPOLLET, [this](uint32_t) { on_socket(); });
}

Stopper::Ticket Stopper::hold(const AccountRef& account, const Wish& wish, base::EventLoop& loop,
                              std::function<void(Answer)> done) {
  Ticket ticket;
  Order order;
  order.account = account->number_;
  order.thread = wish.thread;
  order.peer = wish.peer;
  const std::lock_guard lock(mutex_);
  order.id = next_id_++;
  Pending& pending = pending_[order.id];
  pending = {account, &loop, std::move(done)};
  ++account->unfinished_;
  ticket.stopper_ = this;
  ticket.id_ = order.id;
  const auto refuse = [&] {
    answer(pending, {});
    finish(order.id);
  };
  if (!alive_ || account->unfinished_ > Account::kUnfinished || pending_.size() > kUnfinished ||
      account->time_.wait(base::Clock::steady().now()).count() > 0) {
    refuse();
    return ticket;
  }
  if (unsent_.empty() &&
      ipc::send_message(socket_.get(), &order, sizeof order, {wish.pidfd, wish.arena}))
    return ticket;
  // The socket's buffer is full, or the process has died, which on_socket() will notice.
  Fd pidfd(::fcntl(wish.pidfd, F_DUPFD_CLOEXEC, 0)), arena(::fcntl(wish.arena, F_DUPFD_CLOEXEC, 0));
  if (!pidfd.valid() || !arena.valid()) {
    refuse();
    return ticket;
  }
  Unsent& unsent = unsent_.emplace_back(Unsent{order, {}});
  unsent.fds.push_back(std::move(pidfd));
  unsent.fds.push_back(std::move(arena));
  return ticket;
}

base::Result<Fd> Stopper::add_client() {
  auto ends = ipc::make_socket_pair();
  if (!ends) return base::pass(std::move(ends).error(), "add a client of the stopper");
  Unsent add;
  add.order.task = Task::kAddClient;
  add.fds.push_back(std::move(ends->first));
  const std::lock_guard lock(mutex_);
  if (alive_ && !(unsent_.empty() && send(add))) unsent_.push_back(std::move(add));
  return std::move(ends->second);
}

// False: the socket's buffer is full, or the process has died.
bool Stopper::send(const Unsent& unsent) const {
  std::vector<int> numbers;
  for (const Fd& fd : unsent.fds) numbers.push_back(fd.get());
  return ipc::send_message(socket_.get(), &unsent.order, sizeof unsent.order, numbers).has_value();
}

void Stopper::send_unsent() {
  const std::lock_guard lock(mutex_);
  while (!unsent_.empty() && send(unsent_.front())) unsent_.pop_front();
}

void Stopper::on_socket() {
  for (;;) {
    send_unsent();
    Report report;
    const ssize_t length = ::recv(socket_.get(), &report, sizeof report, MSG_DONTWAIT);
    if (length < 0 && errno == EINTR) continue;
    if (length < 0 && errno == EAGAIN) return;
    if (length != sizeof report) return on_death();
    on_report(report);
  }
}

void Stopper::on_report(const Report& report) {
  const std::lock_guard lock(mutex_);
  const auto it = pending_.find(report.id);
  if (it == pending_.end()) return;
  if (report.stage == Stage::kAnswered) return answer(it->second, {report.reached, report.serial});
  it->second.account->time_.spend(base::Clock::steady().now(), report.processor_ns);
  finish(report.id);
}

// mutex_ is held.
void Stopper::finish(uint64_t id) {
  const auto it = pending_.find(id);
  --it->second.account->unfinished_;
  pending_.erase(it);
}

void Stopper::on_death() {
  {
    const std::lock_guard lock(mutex_);
    alive_ = false;
    for (auto& [id, pending] : pending_) answer(pending, {});
    pending_.clear();
    unsent_.clear();
  }
  if (const auto died = std::exchange(died_, nullptr)) died();
}

// Answers once. mutex_ is held.
void Stopper::answer(Pending& pending, Answer answer) {
  if (pending.loop == nullptr) return;
  std::exchange(pending.loop, nullptr)->post([done = std::move(pending.done), answer] {
    done(answer);
  });
}

}  // namespace vrdma::vrdmad
