// A program's connection to vrdmad: requests, their replies, and the switch to the daemon's
// successor.
//
// Until the daemon has registered the program (known()), a connection that ends is replaced by a
// new one, and the pending request is repeated on it. From then on another daemon may take the
// session over: the link sends kResume until a daemon accepts it, or until the grace period ends.
// Then the link repeats the one-way requests (told_) and the request that is still unanswered.
//
// A thread is not cancelled meanwhile.
#pragma once

#include <poll.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "client/dial/dial.h"
#include "client/dial/uncancelled.h"
#include "core/base/fd.h"
#include "core/ipc/socket.h"

namespace vrdma::client {

template <class Request, class Reply>
class DaemonLink {
 public:
  DaemonLink() = default;
  DaemonLink(const DaemonLink&) = delete;
  DaemonLink& operator=(const DaemonLink&) = delete;

  // Connects to the socket at `path`. 0, or the errno of connect(2). `waits`: for a daemon that is
  // being started again.
  int open(std::string path, bool waits = false) {
    const Uncancelled whole;
    path_ = std::move(path);
    auto socket = newcomer_.begin(path_, waits);
    if (!socket) return socket.error().code();
    socket_ = std::move(*socket);
    return 0;
  }

  // The number of takeovers that this link has noticed. Any thread.
  [[nodiscard]] uint32_t successions() const { return successions_; }
  // No daemon serves the program, and none will.
  [[nodiscard]] bool is_lost() const { return state_ == State::kLost; }
  [[nodiscard]] int fd() const { return socket_.get(); }

 protected:
  enum class Resumed { kYes, kNotYet, kNever };
  // What the successor reports when it takes over.
  struct Taken {
    std::chrono::milliseconds grace;
    uint32_t last_done;  // of the last one-way request that is done; 0: unknown
  };

  ~DaemonLink() = default;

  // Fills the request that asks the next daemon to take over.
  virtual void ask_to_resume(Request* request) = 0;
  // A daemon took over on connection `socket`, which must become socket_. Under mutex_.
  virtual Taken on_taken(const Reply& reply, base::Fd socket) = 0;

  // The path of the socket now: it has another one if the program was written to disk, and came
  // back in another network namespace. Under mutex_.
  [[nodiscard]] virtual std::string path_now(const std::string& path) = 0;

  // From now on another daemon may take over; the link waits `grace` for it.
  void known(std::chrono::milliseconds grace) {
    newcomer_ = {};
    grace_ = grace;
    state_ = State::kKnown;
  }
  // No daemon can take over any more.
  void lose() {
    redial_ = Redial();
    state_ = State::kLost;
  }

  // Sends one request and receives its reply. 0; the errno that the daemon answered; EIO if the
  // daemon ended and none takes over; EAGAIN if `wait` is false and the next daemon is not ready.
  // Descriptors sent with the reply go to `received`. Under mutex_.
  //
  // Before it registers the program, the daemon answers EAGAIN while it cannot look at a process of
  // this network namespace: for some milliseconds on a busy host, for some seconds while one of
  // them is in a long execve(2). Such a request is repeated.
  int converse(Request& request, Reply* reply, const std::vector<int>& sent,
               std::vector<base::Fd>* received, bool wait) {
    const Uncancelled whole;
    constexpr int kMostRepetitions = 50;
    constexpr std::chrono::milliseconds kPause(100);
    for (int repetitions = 0;; ++repetitions) {
      request.sequence = next_sequence();
      while (!exchange(request, reply, sent, received)) {
        const Resumed resumed = find_daemon(wait);
        if (resumed != Resumed::kYes) return resumed == Resumed::kNotYet ? EAGAIN : EIO;
      }
      const bool may_pass = reply->error == EAGAIN && state_ == State::kNew && wait;
      if (!may_pass || repetitions == kMostRepetitions) return reply->error;
      std::this_thread::sleep_for(kPause);
    }
  }

  // Sends a one-way request, without waiting for a daemon. The link repeats it to the next daemon
  // unless a later reply, or `last_done` for numbered requests, shows that it is done. 0; EIO;
  // EAGAIN: too many since the last reply. Under mutex_.
  int tell_now(Request& request, bool numbered) {
    const Uncancelled whole;
    constexpr size_t kMost = 64;
    if (told_.size() == kMost) return EAGAIN;
    request.sequence = numbered ? next_sequence() : 0;
    const bool repeatable = state_ == State::kKnown;
    if (repeatable) told_.push_back(request);
    const bool is_sent = ipc::send_message(socket_.get(), &request, sizeof request).has_value();
    return is_sent || repeatable ? 0 : EIO;
  }

  // After tell_now(): if the connection has ended and another daemon is there already, that gets
  // the request now, not only with the next call, which the program may make much later. Under
  // mutex_.
  void pass_on_told() {
    const Uncancelled whole;
    constexpr std::chrono::milliseconds kMost(100);
    pollfd state{socket_.get(), 0, 0};
    if (state_ != State::kKnown || ::poll(&state, 1, 0) == 0) return;
    if (!died_) died_ = std::chrono::steady_clock::now();
    if (try_daemon() != Resumed::kNotYet || !redial_.is_asked()) return;
    redial_.wait(kMost);
    (void)try_daemon();
  }

  // False: the connection has ended.
  bool exchange(const Request& request, Reply* reply, const std::vector<int>& sent,
                std::vector<base::Fd>* received) {
    std::vector<base::Fd> fds;
    fds.reserve(ipc::kMaxFds);  // nothing may throw between a request and its reply
    if (!ipc::send_message(socket_.get(), &request, sizeof request, sent)) return false;
    *reply = {};
    if (!ipc::receive_reply(socket_.get(), reply, &fds)) return false;
    if (reply->magic != Reply().magic || reply->sequence != request.sequence) return false;
    if (received != nullptr) *received = std::move(fds);
    told_.clear();  // the daemon serves requests in order
    if (state_ == State::kNew) newcomer_.answered();
    return true;
  }

  // After the connection ended: waits until a daemon takes over or the grace period ends. With
  // `wait` false, tries once. Under mutex_.
  Resumed find_daemon(bool wait) {
    using std::chrono::milliseconds;
    if (!died_) died_ = std::chrono::steady_clock::now();
    for (milliseconds pause(2);; pause = std::min(2 * pause, milliseconds(100))) {
      const Resumed resumed = try_daemon();
      if (resumed != Resumed::kNotYet) return resumed;
      if (std::chrono::steady_clock::now() >= *died_ + grace_) {
        lose();
        return Resumed::kNever;
      }
      if (!wait) return Resumed::kNotYet;
      redial_.wait(pause);
    }
  }

  // Tries once. Blocks only in state kNew. Under mutex_.
  Resumed try_daemon() {
    const Uncancelled whole;
    if (is_lost()) return Resumed::kNever;
    if (state_ == State::kNew) {
      auto socket = newcomer_.again(path_);
      if (socket) {
        socket_ = std::move(*socket);
        return taken();
      }
      lose();
      return Resumed::kNever;
    }
    Request request;
    Reply reply;
    ask_to_resume(&request);
    path_ = path_now(path_);
    base::Fd socket = redial_.ask(path_, request, &reply);
    const bool is_reply = reply.magic == Reply().magic;
    if (!socket.valid() || (is_reply && reply.error == EAGAIN)) return Resumed::kNotYet;
    if (!is_reply || reply.error != 0) {
      lose();
      return Resumed::kNever;
    }
    const Taken how = on_taken(reply, std::move(socket));
    grace_ = how.grace;
    for (const Request& told : told_)
      if (told.sequence == 0 || static_cast<int32_t>(told.sequence - how.last_done) > 0)
        (void)ipc::send_message(socket_.get(), &told, sizeof told);
    return taken();
  }

  uint32_t next_sequence() {
    if (++sequence_ == 0) ++sequence_;  // requests with sequence 0 have no reply
    return sequence_;
  }

  std::recursive_mutex mutex_;  // one request at a time
  base::Fd socket_;
  uint32_t sequence_ = 0;      // of the last request
  std::vector<Request> told_;  // one-way requests since the last reply

 private:
  enum class State : uint8_t { kNew, kKnown, kLost };

  Resumed taken() {
    died_.reset();
    ++successions_;
    return Resumed::kYes;
  }

  std::string path_;
  Newcomer newcomer_;
  Redial redial_;
  std::atomic<State> state_ = State::kNew;
  std::atomic<uint32_t> successions_ = 0;
  std::chrono::milliseconds grace_{0};
  std::optional<std::chrono::steady_clock::time_point> died_;  // when the connection ended
};

}  // namespace vrdma::client
