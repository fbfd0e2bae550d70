// The daemon's side of its stopper process (stopper/process.h): who asks, who pays, what came of
// it.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>

#include "core/base/event_loop.h"
#include "core/base/fd.h"
#include "core/base/token_bucket.h"
#include "vrdmad/stopper/wire.h"

namespace vrdma::vrdmad {

class Stopper {
 public:
  // Of a vdevice: what its holds may take of a processor is bounded, and how many may be begun or
  // wait for their turn. Any thread.
  class Account {
   public:
    static constexpr uint64_t kNanosecondsASecond = 100'000'000;
    static constexpr uint64_t kSavedUp = 500'000'000;
    static constexpr unsigned kUnfinished = 256;
    // `stopper` outlives all use of it. nullptr: there is none, and all is refused.
    explicit Account(Stopper* stopper);
    [[nodiscard]] Stopper* stopper() const { return stopper_; }

   private:
    friend class Stopper;
    Stopper* const stopper_;
    const uint64_t number_;
    // Guarded by the stopper's mutex:
    base::TokenBucket time_;
    unsigned unfinished_ = 0;
  };
  using AccountRef = std::shared_ptr<Account>;

  struct Answer {
    ipc::Reached reached = ipc::Reached::kRefused;  // kNot: they are held
    uint32_t serial = 0;
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
    friend class Stopper;
    Stopper* stopper_ = nullptr;
    uint64_t id_ = 0;
  };
  // Whose threads are to be held. Its pidfd, and the queue arena that has the HoldWords, stay the
  // caller's.
  struct Wish {
    rdma::Peer peer;
    uint32_t thread = 0;  // that runs on, as the process's own pid namespace has it
    int pidfd = -1, arena = -1;
  };

  // Of all accounts together; each is two descriptors of the process.
  static constexpr size_t kUnfinished = 16'384;

  // Makes the process. To be called before there are threads; `confine` runs in the process.
  [[nodiscard]] static base::Result<std::unique_ptr<Stopper>> start(
      const std::function<void()>& confine);
  Stopper(const Stopper&) = delete;
  Stopper& operator=(const Stopper&) = delete;

  // Reads its reports on `loop` as long as the Watch exists. `died` is called once when the process
  // has ended, which it does not do by itself while the daemon lives. From then on all is refused.
  [[nodiscard]] base::Result<base::EventLoop::Watch> watch(base::EventLoop& loop,
                                                           std::function<void()> died);
  // Any thread; does not wait. A hold of which nobody waits for the answer any more still takes its
  // turn, and ends by its time. `done` runs on `loop`, but not after the ticket has been destroyed.
  [[nodiscard]] Ticket hold(const AccountRef& account, const Wish& wish, base::EventLoop& loop,
                            std::function<void(Answer)> done);

 private:
  struct Pending {
    AccountRef account;
    base::EventLoop* loop = nullptr;  // nullptr: nobody wants to know any more
    std::function<void(Answer)> done;
  };
  struct Unsent {
    stopper::Order order;
    base::Fd pidfd, arena;
  };

  explicit Stopper(base::Fd socket) : socket_(std::move(socket)) {}
  void send_unsent();
  void on_socket();
  void on_report(const stopper::Report& report);
  void finish(uint64_t id);
  void on_death();
  static void answer(Pending& pending, Answer answer);

  base::Fd socket_;
  std::function<void()> died_;
  std::mutex mutex_;  // guards all below
  bool alive_ = true;
  uint64_t next_id_ = 1;
  std::map<uint64_t, Pending> pending_;
  std::deque<Unsent> unsent_;
};

}  // namespace vrdma::vrdmad
