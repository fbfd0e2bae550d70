// A client's side of the stopper process (process.h): requests, accounts and results. The daemon is
// the first client, and adds others.
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
#include "core/base/token_bucket.h"
#include "vrdmad/stopper/wire.h"

namespace vrdma::vrdmad {

class Stopper {
 public:
  // Belongs to a vdevice. Limits the processor time of its holds, and how many may be active or
  // queued. Any thread.
  class Account {
   public:
    static constexpr unsigned kUnfinished = 256;
    // `stopper` must outlive the account. nullptr: there is no stopper, and all holds are refused.
    explicit Account(Stopper* stopper);
    [[nodiscard]] Stopper* stopper() const { return stopper_; }

   private:
    friend class Stopper;
    Stopper* const stopper_;
    const uint64_t number_;
    // Guarded by the stopper's mutex.
    base::TokenBucket time_;
    unsigned unfinished_ = 0;
  };
  using AccountRef = std::shared_ptr<Account>;

  struct Answer {
    ipc::Reached reached = ipc::Reached::kRefused;  // kNot: the threads are held
    uint32_t serial = 0;
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
    friend class Stopper;
    Stopper* stopper_ = nullptr;
    uint64_t id_ = 0;
  };
  // The process to hold. The caller keeps its pidfd and the queue arena that contains the
  // HoldWords.
  struct Wish {
    rdma::Peer peer;
    uint32_t thread = 0;  // keeps running; its number in the process's own pid namespace
    int pidfd = -1, arena = -1;
  };

  // For all accounts together; each holds two descriptors of the daemon.
  static constexpr size_t kUnfinished = 16'384;

  // `socket`: to stopper::serve() (process.h).
  [[nodiscard]] static std::unique_ptr<Stopper> attach(base::Fd socket);
  // Any thread; does not block. A socket for attach() in another process, which becomes a client
  // that is bounded by itself (broker/helper_client.h). Only for control: the stopper ends
  // any other client that orders this.
  [[nodiscard]] base::Result<base::Fd> add_client();
  Stopper(const Stopper&) = delete;
  Stopper& operator=(const Stopper&) = delete;

  // Reads reports on `loop` while the Watch exists. Calls `died` once when the process has ended,
  // which it does not do by itself while the daemon lives, or has ended this client. All later
  // holds are refused.
  [[nodiscard]] base::Result<base::EventLoop::Watch> watch(base::EventLoop& loop,
                                                           std::function<void()> died);
  // Any thread; does not block. A hold whose ticket was destroyed still takes its turn, and ends
  // after its time. `done` runs on `loop`, but not after the ticket has been destroyed.
  [[nodiscard]] Ticket hold(const AccountRef& account, const Wish& wish, base::EventLoop& loop,
                            std::function<void(Answer)> done);

 private:
  struct Pending {
    AccountRef account;
    base::EventLoop* loop = nullptr;  // nullptr: the result is not wanted any more
    std::function<void(Answer)> done;
  };
  struct Unsent {
    stopper::Order order;
    std::vector<base::Fd> fds;
  };

  explicit Stopper(base::Fd socket) : socket_(std::move(socket)) {}
  [[nodiscard]] bool send(const Unsent& unsent) const;
  void send_unsent();
  void on_socket();
  void on_report(const stopper::Report& report);
  void finish(uint64_t id);
  void on_death();
  static void answer(Pending& pending, Answer answer);

  base::Fd socket_;
  std::function<void()> died_;
  std::mutex mutex_;  // guards all members below
  bool alive_ = true;
  uint64_t next_id_ = 1;
  std::map<uint64_t, Pending> pending_;
  std::deque<Unsent> unsent_;
};

}  // namespace vrdma::vrdmad
