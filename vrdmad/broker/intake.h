// The daemon's side of its intake process (intake/process.h): orders, reports and accounts.
//
// Orders of one account are carried out four at a time; those that hang take nothing from other
// accounts. An account is crowded while many of its orders are unfinished. Its owner then accepts
// no connections, which bounds the descriptors that the orders hold.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "core/base/event_loop.h"
#include "core/base/fd.h"
#include "vrdmad/broker/intake_wire.h"

namespace vrdma::vrdmad {

class Intake {
 public:
  // Of a vdevice, or of a namespace for rdma_cm. Any thread.
  class Account {
   public:
    static constexpr unsigned kCrowded = 8;
    // `intake` outlives all use of it. nullptr: in a test, whose descriptors are its own.
    explicit Account(Intake* intake) : intake_(intake), number_(next_number()) {}
    [[nodiscard]] bool crowded() const { return unfinished_ >= kCrowded; }
    [[nodiscard]] unsigned unfinished() const { return unfinished_; }
    [[nodiscard]] Intake* intake() const { return intake_; }

   private:
    friend class Intake;
    static uint64_t next_number();
    Intake* const intake_;
    const uint64_t number_;
    std::atomic<unsigned> unfinished_ = 0;
  };
  using AccountRef = std::shared_ptr<Account>;

  // A message that the intake received. `passed`: the memory files among its descriptors that are
  // sealed as ours, in the order of the verdicts that say so; give back with close() what is not
  // known to be the daemon's own.
  struct Received {
    intake::Report report;
    std::vector<base::Fd> passed;
  };
  // While it exists, its order may be answered.
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

  // Makes the process. To be called before there are threads; `confine` runs in the process.
  [[nodiscard]] static base::Result<std::unique_ptr<Intake>> start(
      const std::function<void()>& confine);
  Intake(const Intake&) = delete;
  Intake& operator=(const Intake&) = delete;

  // Reads its reports on `loop` as long as the Watch exists. `died` is called once when the process
  // has ended, which it does not do by itself while the daemon lives.
  [[nodiscard]] base::Result<base::EventLoop::Watch> watch(base::EventLoop& loop,
                                                           std::function<void()> died);

  // Any thread; neither waits. close() takes what may take long to close. receive() takes one
  // message from `socket`, which stays the caller's and which it does not read meanwhile; `done`
  // runs on `loop`, but not after the ticket has been destroyed.
  void close(const AccountRef& account, base::Fd fd);
  [[nodiscard]] Ticket receive(const AccountRef& account, const base::Fd& socket,
                               base::EventLoop& loop, std::function<void(Received)> done);

 private:
  struct Pending {
    AccountRef account;
    base::EventLoop* loop = nullptr;  // nullptr: nobody wants to know any more
    std::function<void(Received)> done;
  };
  struct Unsent {
    intake::Order order;
    base::Fd subject;
  };

  explicit Intake(base::Fd socket) : socket_(std::move(socket)) {}
  void order(const intake::Order& order, base::Fd subject);
  [[nodiscard]] bool send(const intake::Order& order, const base::Fd& subject) const;
  void send_unsent();
  void on_socket();
  void on_report(Received received);

  base::Fd socket_;
  std::function<void()> died_;
  std::mutex mutex_;  // guards all below
  uint64_t next_id_ = 1;
  std::map<uint64_t, Pending> pending_;
  std::deque<Unsent> unsent_;
};

// What is next to be read. Only kMessage may be received by the daemon: a message that comes after
// kNothing was said may have descriptors beside it.
enum class Next : uint8_t {
  kNothing,      // yet
  kMessage,      // without descriptors; or the end of file
  kDescriptors,  // a message with some beside it
  kError,        // of the connection, behind which there may be anything
};
// Does not receive it. `socket` has SO_PASSCRED, and nobody else reads it.
[[nodiscard]] Next look_at_next(int socket);

// Ends a connection whose other end is a tenant's. If messages were not read, there may be
// descriptors beside them, and the intake closes it.
void close_connection(const Intake::AccountRef& account, base::Fd socket);

}  // namespace vrdma::vrdmad
