// The daemon's end of a connection on which a program asks and is answered, strictly in turn: of
// the session protocol (ipc::Request, ipc::Reply) and of that of connections (ipc::CmRequest,
// ipc::CmReply), whose messages begin alike.
//
// Takes whole messages with what came beside them, knows who sent them and whether that is the
// process that connected, and answers. A session outlives its connection when the program comes
// back on another one (kResume): its conversation then goes on there.
//
// Owned by a session; on its thread's loop.
#pragma once

#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/base/event_loop.h"
#include "core/ipc/socket.h"
#include "vrdmad/broker/identity.h"
#include "vrdmad/broker/intake.h"
#include "vrdmad/broker/shown.h"

namespace vrdma::vrdmad {

struct Protocol {
  const char* name;
  uint32_t magic;
  size_t unsized_reply;  // what clients of versions before the oldest take
};
[[nodiscard]] constexpr Protocol protocol_of(const ipc::Request*) {
  return {"session", ipc::kMagic, ipc::kUnsizedReplyLength};
}
[[nodiscard]] constexpr Protocol protocol_of(const ipc::CmRequest*) {
  return {"connection", ipc::kCmMagic, ipc::kCmUnsizedReplyLength};
}
[[nodiscard]] constexpr bool wants_reply(const ipc::Request& request) {
  return request.sequence != 0;
}
[[nodiscard]] constexpr bool wants_reply(const ipc::CmRequest& request) {
  return request.quiet == 0;
}

// Logged at powers of two: a program may try again and again. The errno for the program.
[[nodiscard]] int refuse_program(const base::Error& why, const std::string& whose,
                                 uint64_t* so_far);
void warn_of_version(uint32_t version, const Protocol& protocol, ipc::Sized served,
                     const std::string& whose);

template <class Request, class Reply>
class Conversation {
 public:
  static constexpr unsigned kMostFailures = 3;  // of the process to prove that it connected

  // `readable` is called while it listens and there is something to hear; with `mode` EPOLLET,
  // once for what comes. `account` pays for closing. Of a session of a dead daemon there is no
  // connection yet.
  Conversation(base::EventLoop& loop, Intake::AccountRef account, base::Fd socket,
               std::shared_ptr<Caller> caller, uint32_t mode, std::function<void()> readable)
      : loop_(loop),
        account_(std::move(account)),
        socket_(std::move(socket)),
        caller_(std::move(caller)),
        mode_(mode),
        readable_(std::move(readable)) {}
  ~Conversation() { close(); }
  Conversation(const Conversation&) = delete;
  Conversation& operator=(const Conversation&) = delete;

  [[nodiscard]] bool listen() {
    auto watch =
        loop_.watch(socket_.get(), EPOLLIN | EPOLLRDHUP | mode_, [this](uint32_t) { readable_(); });
    if (watch) watch_ = std::move(*watch);
    return watch.has_value();
  }
  void stop() {
    watch_.reset();
    at_intake_.reset();
    at_intake_since_.reset();
  }
  void close() {
    stop();
    close_connection(account_, std::move(socket_));
  }

  enum class Heard : uint8_t {
    kNothing,      // yet
    kRequest,      // without descriptors
    kDescriptors,  // a message with some beside it, which was not received
    kEnd,          // of the connection
    kNonsense,     // what no client says
  };
  // An answer is due, or the intake has the next message: nothing is read.
  [[nodiscard]] bool is_busy() const { return due_ || at_intake_since_ != nullptr; }
  [[nodiscard]] Heard hear_while_busy() const {
    if (at_intake_since_ != nullptr) {
      pollfd ended{socket_.get(), POLLRDHUP, 0};
      return ::poll(&ended, 1, 0) > 0 ? Heard::kEnd : Heard::kNothing;
    }
    char first = 0;  // a client waits for the answer
    const ssize_t waits = ::recv(socket_.get(), &first, sizeof first, MSG_PEEK | MSG_DONTWAIT);
    return waits > 0 ? Heard::kNonsense : waits == 0 ? Heard::kEnd : Heard::kNothing;
  }
  [[nodiscard]] Heard hear(Request* request) {
    switch (look_at_next(socket_.get())) {
      case Next::kNothing:
        return Heard::kNothing;
      case Next::kDescriptors:
        return Heard::kDescriptors;
      case Next::kError:
        return Heard::kEnd;
      case Next::kMessage:
        break;
    }
    std::vector<base::Fd> none;
    const auto received = ipc::receive(socket_.get(), request, &none, &sender_);
    if (!received) return received.error().code() == EBADMSG ? Heard::kNonsense : Heard::kEnd;
    return begin(*request);
  }
  // What came beside the next message may hang whoever closes it, so the intake receives it. False:
  // there is none.
  [[nodiscard]] bool hear_by_intake(std::function<void(Heard, const Request&, Shown)> heard) {
    Intake* const intake = account_->intake();
    if (intake == nullptr) return false;
    at_intake_since_ = std::make_shared<int>(0);
    at_intake_ = intake->receive(
        account_, socket_, loop_,
        [this, since = std::weak_ptr(at_intake_since_),
         heard = std::move(heard)](Intake::Received received) {
          if (since.expired()) return;  // it was on its way when this one stopped, or ended
          at_intake_.reset();
          at_intake_since_.reset();
          const intake::Report report = received.report;
          Shown shown(account_, std::move(received));
          sender_ = {report.sender.pid, report.sender.uid, report.sender.gid};
          Request request;
          const bool whole =
              report.error == 0 && report.truncated == 0 && report.count <= ipc::kMaxFds &&
              ipc::decode_sized(report.bytes.data(), report.bytes.size(), report.length, &request,
                                sizeof request, ipc::versions_of(&request));
          heard(whole ? begin(request) : Heard::kNonsense, request, std::move(shown));
        });
    return true;
  }

  // Of the last request.
  [[nodiscard]] bool is_awaited() const { return awaited_; }
  [[nodiscard]] static bool is_served(const Request& request) {
    const ipc::Sized served = ipc::versions_of(&request);
    return request.version >= served.oldest && request.version <= served.newest;
  }
  // A client of an unknown version learns no more than this, in a reply of the length that it
  // expects.
  [[nodiscard]] int refuse_version(const Request& request, const std::string& whose) {
    constexpr Protocol kProtocol = protocol_of(static_cast<const Request*>(nullptr));
    const ipc::Sized served = ipc::versions_of(&request);
    static std::atomic<bool> said = false;  // a program may try again and again
    if (!said.exchange(true)) warn_of_version(request.version, kProtocol, served, whose);
    Reply reply;
    reply.error = EPROTONOSUPPORT;
    const bool unsized = request.version < served.oldest;
    if (unsized) reply.version = request.version;
    return send(&reply, unsized ? kProtocol.unsized_reply : sizeof reply, {});
  }
  // The answer comes later: until then nothing is heard.
  void defer() { due_ = true; }
  // To the last request, if it wants one. A client reads each answer before it asks again, so there
  // is always room; EAGAIN: it did not.
  [[nodiscard]] int answer(Reply* reply, const std::vector<int>& fds = {}) {
    due_ = false;
    return send(reply, sizeof *reply, fds);
  }

  // The process that connected; null in a session of a dead daemon, and once it is forgotten.
  [[nodiscard]] const std::shared_ptr<Caller>& caller() const { return caller_; }
  void forget_caller() { caller_.reset(); }
  void set_caller(std::shared_ptr<Caller> caller) { caller_ = std::move(caller); }
  // Whether it sent the last request, and is what it was when it connected.
  [[nodiscard]] base::Result<void> check() const { return caller_->check(sender_); }
  // It is not. `so_far` counts such programs.
  [[nodiscard]] int refuse(const base::Error& why, const std::string& whose, uint64_t* so_far) {
    if (why.code() == EAGAIN) return EAGAIN;  // it is not its fault, or no more than others'
    ++failures_;
    return refuse_program(why, whose, so_far);
  }
  [[nodiscard]] bool has_failed() const { return failures_ >= kMostFailures; }

  // The program has come back on `fresh`, whose last request is answered here. False: it cannot be
  // heard.
  [[nodiscard]] bool go_on_at(Conversation* fresh) {
    fresh->stop();
    close();
    socket_ = std::move(fresh->socket_);
    sequence_ = fresh->sequence_;
    awaited_ = fresh->awaited_;
    return listen();
  }
  [[nodiscard]] const base::Fd& socket() const { return socket_; }

 private:
  [[nodiscard]] Heard begin(const Request& request) {
    sequence_ = request.sequence;
    awaited_ = wants_reply(request);
    return request.magic == protocol_of(&request).magic ? Heard::kRequest : Heard::kNonsense;
  }
  [[nodiscard]] int send(Reply* reply, size_t size, const std::vector<int>& fds) {
    if (!awaited_) return 0;
    reply->sequence = sequence_;
    const auto sent = ipc::send_message(socket_.get(), reply, size, fds);
    return sent ? 0 : sent.error().code();
  }

  base::EventLoop& loop_;
  const Intake::AccountRef account_;
  base::Fd socket_;
  std::shared_ptr<Caller> caller_;
  const uint32_t mode_;
  const std::function<void()> readable_;
  base::EventLoop::Watch watch_;
  Intake::Ticket at_intake_;
  std::shared_ptr<int> at_intake_since_;  // while the intake reads the next request
  bool due_ = false;                      // a deferred answer
  bool awaited_ = false;                  // an answer to the last request
  uint32_t sequence_ = 0;                 // its
  ipc::Sender sender_;                    // its
  unsigned failures_ = 0;
};

}  // namespace vrdma::vrdmad
