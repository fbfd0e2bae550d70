// The daemon's end of a client connection: strictly alternating requests and replies of the session
// protocol (ipc::Request, ipc::Reply) or of the rdma_cm protocol (ipc::CmRequest, ipc::CmReply),
// whose messages share a header.
//
// Receives whole messages with their descriptors, checks that the process that connected sent them,
// and answers. A session survives its connection if the client reconnects (kResume): its
// conversation then continues on the new connection.
//
// Owned by a session; runs on its thread's loop.
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
#include "vrdmad/broker/broker.h"
#include "vrdmad/broker/intake.h"
#include "vrdmad/broker/shown.h"

namespace vrdma::vrdmad {

struct Protocol {
  const char* name;
  uint32_t magic;
  size_t unsized_reply;  // reply length that clients of versions before the oldest expect
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

// Logs at powers of two, because a client may retry without bound. Returns the errno for the
// client.
[[nodiscard]] int refuse_program(const base::Error& why, const std::string& whose, uint64_t so_far);
void warn_of_version(uint32_t version, const Protocol& protocol, ipc::Sized served,
                     const std::string& whose);

template <class Request, class Reply>
class Conversation {
 public:
  static constexpr unsigned kMostFailures = 3;  // failed identity checks before the session ends

  // `readable` is called while the conversation listens and the socket is readable; with `mode`
  // EPOLLET, once for each arrival. `account` pays for closing. A session of a previous daemon has
  // no connection yet.
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
    kNothing,      // no message yet
    kRequest,      // without descriptors
    kDescriptors,  // a message with descriptors, which was not received
    kEnd,          // of the connection
    kNonsense,     // violates the protocol
  };
  // A reply is due, or the intake receives the next message: do not read.
  [[nodiscard]] bool is_busy() const { return due_ || at_intake_since_ != nullptr; }
  [[nodiscard]] Heard hear_while_busy() const {
    if (at_intake_since_ != nullptr) {
      pollfd ended{socket_.get(), POLLRDHUP, 0};
      return ::poll(&ended, 1, 0) > 0 ? Heard::kEnd : Heard::kNothing;
    }
    char first = 0;  // a client that wants a reply sends nothing before it has it
    const ssize_t waits = ::recv(socket_.get(), &first, sizeof first, MSG_PEEK | MSG_DONTWAIT);
    if (waits > 0) return awaited_ ? Heard::kNonsense : Heard::kNothing;
    return waits == 0 ? Heard::kEnd : Heard::kNothing;
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
  // Closing the descriptors beside the next message may hang, so the intake receives it. False:
  // there is no intake.
  [[nodiscard]] bool hear_by_intake(std::function<void(Heard, const Request&, Shown)> heard) {
    Intake* const intake = account_->intake();
    if (intake == nullptr) return false;
    at_intake_since_ = std::make_shared<int>(0);
    at_intake_ = intake->receive(
        account_, socket_, loop_,
        [this, since = std::weak_ptr(at_intake_since_),
         heard = std::move(heard)](Intake::Received received) {
          if (since.expired()) return;  // the report was queued before stop() or the destructor
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
          const Heard otherwise = report.error != 0 ? Heard::kEnd : Heard::kNonsense;
          heard(whole ? begin(request) : otherwise, request, std::move(shown));
        });
    return true;
  }

  // Whether the last request wants a reply.
  [[nodiscard]] bool is_awaited() const { return awaited_; }
  [[nodiscard]] static bool is_served(const Request& request) {
    const ipc::Sized served = ipc::versions_of(&request);
    return request.version >= served.oldest && request.version <= served.newest;
  }
  // A client of an unknown version gets only this error, in a reply of the length that it expects.
  [[nodiscard]] int refuse_version(const Request& request, const std::string& whose) {
    constexpr Protocol kProtocol = protocol_of(static_cast<const Request*>(nullptr));
    const ipc::Sized served = ipc::versions_of(&request);
    static std::atomic<bool> said = false;  // log once: a client may retry without bound
    if (!said.exchange(true)) warn_of_version(request.version, kProtocol, served, whose);
    Reply reply;
    reply.error = EPROTONOSUPPORT;
    const bool unsized = request.version < served.oldest;
    if (unsized) reply.version = request.version;
    return send(&reply, unsized ? kProtocol.unsized_reply : sizeof reply, {});
  }
  // The reply follows later, or the end of a request that wants none; no request is read before it.
  void defer() { due_ = true; }
  // Replies to the last request, if it wants a reply. A client reads each reply before its next
  // request, so the socket has room; EAGAIN: the client violates this.
  [[nodiscard]] int answer(Reply* reply, const std::vector<int>& fds = {}) {
    due_ = false;
    return send(reply, sizeof *reply, fds);
  }

  // The process that connected; null in a session of a previous daemon, and after forget_caller().
  [[nodiscard]] const std::shared_ptr<Caller>& caller() const { return caller_; }
  void forget_caller() { caller_.reset(); }
  // The process that will connect again, which may be another one.
  void await(std::shared_ptr<Caller> caller) { caller_ = std::move(caller); }
  // Whether that process sent the last request and is unchanged since it connected.
  [[nodiscard]] base::Result<void> check() const { return caller_->check(sender_); }
  // check(), and opens the memory of the process for reading.
  [[nodiscard]] base::Result<Caller::Opened> open() const { return caller_->open(false, &sender_); }
  // Either failed. `so_far` counts such requests.
  template <class Count>
  [[nodiscard]] int refuse(const base::Error& why, const std::string& whose, Count& so_far) {
    if (why.code() == EAGAIN)
      return EAGAIN;  // no fault of this process, or shared by its namespace
    ++failures_;
    return refuse_program(why, whose, ++so_far);
  }
  [[nodiscard]] bool has_failed() const { return failures_ >= kMostFailures; }

  // The client has reconnected on `fresh`; this conversation answers the last request there. False:
  // the loop cannot watch it.
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
  std::shared_ptr<int> at_intake_since_;  // set while the intake receives the next request
  bool due_ = false;                      // a deferred reply
  bool awaited_ = false;                  // the last request wants a reply
  uint32_t sequence_ = 0;                 // of the last request
  ipc::Sender sender_;                    // of the last request
  unsigned failures_ = 0;
};

}  // namespace vrdma::vrdmad
