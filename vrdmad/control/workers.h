// The workers of this daemon: one for each domain, as long as programs use it.
//
// A domain is what a taken-over worker can reach: a tenant with the fabrics that belong to it
// alone, or a fabric that the operator named, which several tenants may share. The first program
// that connects to a vdevice of the domain starts its worker; when no program has been connected
// for kIdle, the worker ends. So an idle vdevice costs no process.
//
// A worker is trusted in nothing but its own domain: each connection and each ticket belongs to one
// domain, and messages about another's are ignored.
//
// Belongs to the control thread.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "core/base/event_loop.h"
#include "core/base/fd.h"
#include "core/base/shared_page.h"
#include "core/base/token_bucket.h"
#include "provisioning/budget_page.h"
#include "vrdmad/worker/worker_end.h"

namespace vrdma::vrdmad {

enum class Isolation : uint8_t { kTenant, kFabric, kNone };

class Workers {
 public:
  static constexpr auto kIdle = std::chrono::seconds(10);
  static constexpr size_t kMost = provisioning::kBudgetSlots - 1;  // at a time
  // A domain whose worker is lost kDeaths times within kWithin gets no other for kPause.
  static constexpr size_t kDeaths = 10;
  static constexpr auto kWithin = std::chrono::seconds(10);
  static constexpr auto kPause = std::chrono::seconds(2);
  // Processes of a domain that were ended and have not: a thread that hangs in a program's memory
  // keeps each, with its place at the broker. With so many, the domain gets no other.
  static constexpr size_t kMostEnding = 8;
  // A failure of need() counts as another one's continuation if it comes within this time.
  static constexpr auto kLackLasts = std::chrono::seconds(10);
  using Tell = std::function<void(const ToControl&)>;
  using Ended = std::function<void(const std::string& why)>;
  enum class End : uint8_t { kIdle, kLost };
  struct Running {
    std::unique_ptr<WorkerEnd> end;
    base::SharedPage<base::EventLoop::Passes> passes;
    // Duplicates of its sockets to the intake and the stopper. They are shut down with the worker,
    // which may have sent others to its programs.
    std::vector<base::Fd> helpers = {};
  };
  // Starts a worker that has this slot in the pages of budgets. The callbacks run on the control
  // thread; `ended` at most once, and only if control did not end the worker.
  using Start = std::function<base::Result<Running>(unsigned slot, Tell tell, Ended ended)>;
  struct Events {
    // A worker runs for the domain, and knows nothing yet.
    std::function<void(const std::string& domain)> started;
    std::function<void(const std::string& domain, const ToControl& message)> came;
    // No worker runs for the domain any more: control ended it because no program used it, or it
    // was lost.
    std::function<void(const std::string& domain, unsigned slot, End how)> ended;
    // After `ended`, if the worker was lost. `connections`: those that it had.
    std::function<void(const std::string& domain, const std::set<uint64_t>& connections)> died;
    // Later, if the kernel had killed it because it exceeded its memory.
    std::function<void(const std::string& domain)> exceeded;
  };

  Workers(base::EventLoop& loop, Start start, Events events)
      : loop_(loop), start_(std::move(start)), events_(std::move(events)) {}

  // nullptr: none runs for the domain.
  [[nodiscard]] WorkerEnd* find(const std::string& domain) const;
  // Starts one if none runs. The worker has kIdle from now on to get a connection. EUSERS: there
  // are kMost. EAGAIN: the last ones ended too soon. EBUSY: kMostEnding have not ended.
  [[nodiscard]] base::Result<WorkerEnd*> need(const std::string& domain);
  // Why need() gives the domain no worker, since `since`; nullptr: it does, or did not fail lately.
  struct Lack {
    base::TimePoint since, last;
    std::string why;
  };
  [[nodiscard]] const Lack* lack(const std::string& domain) const;
  // The slot of its worker in the pages of budgets; never 0, which is control's.
  [[nodiscard]] unsigned slot_of(const std::string& domain) const;

  // Whether a sentence of the domain's worker may go to the log: a few each second.
  [[nodiscard]] bool may_say(const std::string& domain);

  // Whether this is the first report that the domain's worker crashes: it ends then, so it has only
  // one to make.
  [[nodiscard]] bool crashes(const std::string& domain);

  // The connection belongs to the domain until it has ended.
  void add(const std::string& domain, uint64_t connection);
  [[nodiscard]] bool has(const std::string& domain, uint64_t connection) const;
  void ended(const std::string& domain, uint64_t connection);
  // To which the connection belongs; nullptr: it has ended.
  [[nodiscard]] const std::string* domain_of(uint64_t connection) const;

  // Before the destructor: sessions are left for the next daemon.
  void leave();
  // For the metrics.
  [[nodiscard]] std::map<std::string, base::Duration> longest_passes() const;

 private:
  struct Place {
    std::unique_ptr<WorkerEnd> end;
    uint64_t number = 0;  // of all that were started
    unsigned slot = 1;
    base::SharedPage<base::EventLoop::Passes> passes;
    std::vector<base::Fd> helpers;
    std::set<uint64_t> connections;
    base::EventLoop::Timer idle;
    base::TokenBucket sentences;
    bool crashes = false;
  };
  [[nodiscard]] base::Result<WorkerEnd*> start(const std::string& domain);
  void note_lack(const std::string& domain, const std::string& why);
  [[nodiscard]] bool has_too_many_ending(const std::string& domain) const;
  void wait_for_end(const std::string& domain, const Place& place);
  void reaped(uint64_t number);
  void end_if_idle(const std::string& domain);
  [[nodiscard]] std::set<uint64_t> take_out(const std::string& domain, End how);
  void died(const std::string& domain, const std::string& why);

  base::EventLoop& loop_;
  const Start start_;
  const Events events_;
  uint64_t last_number_ = 0;
  std::set<unsigned> slots_;
  std::map<std::string, std::deque<base::TimePoint>> deaths_;  // the latest, by domain
  std::map<std::string, Lack> lacks_;
  struct Ending {
    std::string domain;
    base::Fd report;
    base::EventLoop::Watch watch;
  };
  std::map<uint64_t, Ending> ending_;  // by Place::number
  std::map<std::string, Place> places_;
};

}  // namespace vrdma::vrdmad
