// A client's side of the intake process (intake_process.h): orders, reports and accounts. The
// daemon is the first client, and adds others.
//
// The intake carries out up to four orders of an account at a time, so hung orders do not delay
// other accounts. An account is crowded while many of its orders are unfinished; its owner then
// accepts no connections, which bounds the descriptors that the orders hold.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "core/base/event_loop.h"
#include "core/base/fd.h"
#include "vrdmad/broker/intake_wire.h"

namespace vrdma::vrdmad {

class Intake {
 public:
  // Belongs to a vdevice, or to a namespace for rdma_cm. Any thread.
  class Account {
   public:
    static constexpr unsigned kCrowded = 8;
    using Count = std::atomic<uint32_t>;
    // `intake` must outlive the account. nullptr: in tests, where the process closes descriptors
    // itself. `unfinished`: where the account counts; nullptr: in a word that only it uses. Several
    // accounts, also of different processes, may count in one word and are then crowded together.
    // If a process that counted there has ended, control may set the word to 0: no account counts
    // down from there.
    explicit Account(Intake* intake, std::shared_ptr<Count> unfinished = nullptr)
        : intake_(intake),
          number_(next_number()),
          unfinished_(unfinished != nullptr ? std::move(unfinished) : std::make_shared<Count>(0)) {}
    [[nodiscard]] bool crowded() const { return unfinished() >= kCrowded; }
    [[nodiscard]] unsigned unfinished() const { return *unfinished_; }
    [[nodiscard]] Intake* intake() const { return intake_; }

   private:
    friend class Intake;
    static uint64_t next_number();
    void count_down();
    Intake* const intake_;
    const uint64_t number_;
    const std::shared_ptr<Count> unfinished_;
  };
  using AccountRef = std::shared_ptr<Account>;

  // A message that the intake received. `passed`: the memfds among its descriptors with the seals
  // of base::make_memfd(), or the network namespaces and pidfds, as ordered, in the order of their
  // verdicts. Return memfds that the daemon did not make with close().
  struct Received {
    intake::Report report;
    std::vector<base::Fd> passed;
    bool lost = false;  // some of them: this process has too many open files
  };
  // `done` of the order may be called while its ticket exists.
  class Ticket {
   public:
    Ticket() = default;
    Ticket(Ticket&& other) noexcept { *this = std::move(other); }
    Ticket& operator=(Ticket&& other) noexcept;
    ~Ticket() { reset(); }
    void reset();

   private:
    friend class Intake;
    Intake* intake_ = nullptr;
    uint64_t id_ = 0;
  };

  // `socket`: to intake::serve() (intake_process.h).
  [[nodiscard]] static std::unique_ptr<Intake> attach(base::Fd socket);
  // Any thread; does not block. A socket for attach() in another process, which becomes a client
  // that is bounded by itself (helper_client.h). Only for control: the intake ends any other
  // client that orders this.
  [[nodiscard]] base::Result<base::Fd> add_client();
  Intake(const Intake&) = delete;
  Intake& operator=(const Intake&) = delete;

  // Reads reports on `loop` while the Watch exists. Calls `died` once when the process has ended,
  // which it does not do by itself while the daemon lives, or has ended this client.
  [[nodiscard]] base::Result<base::EventLoop::Watch> watch(base::EventLoop& loop,
                                                           std::function<void()> died);

  // Any thread; neither call blocks. close() closes a descriptor whose close may take long.
  // receive() takes one message from `socket`, which the caller keeps but must not read until then;
  // `done` runs on `loop`, but not after the ticket has been destroyed; with an error in the report
  // also if this process has too many open files.
  void close(const AccountRef& account, base::Fd fd);
  [[nodiscard]] Ticket receive(const AccountRef& account, const base::Fd& socket,
                               base::EventLoop& loop, std::function<void(Received)> done);
  // The same, but only for the owner of the socket of fork(): passes on network namespaces and
  // pidfds, whose close(2) never waits for another process.
  [[nodiscard]] Ticket receive_process(const AccountRef& account, const base::Fd& socket,
                                       base::EventLoop& loop, std::function<void(Received)> done);

 private:
  struct Pending {
    AccountRef account;
    base::EventLoop* loop = nullptr;  // nullptr: the result is not wanted
    std::function<void(Received)> done;
  };
  struct Unsent {
    intake::Order order;
    base::Fd subject;
  };

  explicit Intake(base::Fd socket) : socket_(std::move(socket)) {}
  [[nodiscard]] Ticket receive(intake::Task task, const AccountRef& account, const base::Fd& socket,
                               base::EventLoop& loop, std::function<void(Received)> done);
  void order(const intake::Order& order, base::Fd subject);
  [[nodiscard]] bool send(const intake::Order& order, const base::Fd& subject) const;
  void send_unsent();
  void on_socket();
  void on_report(Received received);

  base::Fd socket_;
  std::function<void()> died_;
  std::mutex mutex_;  // guards all members below
  uint64_t next_id_ = 1;
  std::map<uint64_t, Pending> pending_;
  std::deque<Unsent> unsent_;
};

// The kind of the next message. The daemon may receive only a kMessage. A message that arrives
// after kNothing was returned may carry descriptors.
enum class Next : uint8_t {
  kNothing,      // no message yet
  kMessage,      // without descriptors, or the end of file
  kDescriptors,  // a message with descriptors
  kError,        // a connection error; any message may follow it
};
// Peeks without receiving. `socket` has SO_PASSCRED and no other reader.
[[nodiscard]] Next look_at_next(int socket);

// Closes a connection to a tenant. If messages are unread, they may carry descriptors, so the
// intake closes it.
void close_connection(const Intake::AccountRef& account, base::Fd socket);

}  // namespace vrdma::vrdmad
