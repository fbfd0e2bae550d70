// Relays of core/rdma/reach.h: which part is next, whose turn that is, and how they end.
//
// A relay is in the queue of one of its two reaches at a time, as one job, or its thread is at such
// a job. The thread that ends a job of a relay begins the next one at once, if no other access of
// that process waits or goes on. Else it leaves the job in the queue, where the next thread finds
// it.
#include <algorithm>
#include <atomic>
#include <utility>

#include "core/rdma/reach.h"

namespace vrdma::rdma {

class Reach::Relaying {
 public:
  Relaying(Reach& reads, Reach& writes, Relay what)
      : from(reads), to(writes), relay(std::move(what)) {}

  struct Side {
    explicit Side(Reach& its) : reach(&its), shared(its.shared_) {}
    Reach* reach;  // while shared->alive
    const std::shared_ptr<Shared> shared;
  };
  const Side from, to;
  Relay relay;  // `arrival` and `done` are the loop's
  // Set with the lock of either side held, and looked at before a job of that side is begun.
  std::atomic<bool> interrupted = false;
  bool at_target = false;  // a job that writes is begun; to.shared->mutex
  // Of whoever works on it, and the loop's when it has ended.
  uint64_t moved = 0;
  uint64_t length = next_length();  // of the part in hand

  // What is stored last is in one part, with as much before it as the buffer takes.
  [[nodiscard]] uint64_t next_length() const {
    const uint64_t left = relay.length - moved, room = relay.buffer->size();
    if (left <= room) return left;
    return std::min(room, left - (relay.mark ? relay.to.back().length : 0));
  }
  [[nodiscard]] bool ends() const { return moved + length == relay.length; }
  [[nodiscard]] const Side& side(bool write) const { return write ? to : from; }
};

namespace {

// The part of `all` in the `length` bytes of the message from `begin` on, which fill a buffer.
std::vector<Reach::Part> cut(const std::vector<Reach::Part>& all, uint64_t begin, uint64_t length) {
  std::vector<Reach::Part> parts;
  for (const Reach::Part& part : all) {
    const uint64_t first = std::max(begin, part.offset);
    const uint64_t last = std::min(begin + length, part.offset + part.length);
    if (first < last)
      parts.push_back(
          {part.addr + (first - part.offset), last - first, first - begin, part.memory});
  }
  return parts;
}

}  // namespace

Reach::Job Reach::job_of(const std::shared_ptr<Relaying>& relaying, bool write) {
  Job job;
  job.write = write;
  job.parts =
      cut(write ? relaying->relay.to : relaying->relay.from, relaying->moved, relaying->length);
  job.buffer = relaying->relay.buffer;
  if (write && relaying->ends()) job.mark = relaying->relay.mark;
  job.payer = relaying->relay.payer;
  job.relaying = relaying;
  // Of one that is taken out of its queue.
  job.done = [relaying, write](bool) {
    finish(relaying, write ? RelayEnd::kNotWritten : RelayEnd::kNotRead, nullptr);
  };
  return job;
}

std::shared_ptr<Reach::Relaying> Reach::relay(Reach& to, Relay relay) {
  if (pauses_ > 0 || to.pauses_ > 0) return nullptr;
  const auto relaying = std::make_shared<Relaying>(*this, to, std::move(relay));
  begins(relaying);
  if (&to != this) to.begins(relaying);
  schedule(job_of(relaying, false));
  return relaying;
}

void Reach::interrupt(Relaying& relaying) {
  std::shared_ptr<void> arrival;  // not dropped under a lock
  for (const bool write : {false, true}) {
    const std::lock_guard lock(relaying.side(write).shared->mutex);
    relaying.interrupted = true;
    if (write && !relaying.at_target) arrival = std::move(relaying.relay.arrival);
  }
}

void Reach::interrupt_relays() {
  for (const auto& relaying : std::vector(relays_)) interrupt(*relaying);
}

// Whoever waits for what arrives here has gone, and `arrival` is the loop's, which may never hear
// of the end.
void Reach::leave_relays() {
  interrupt_relays();
  for (const auto& relaying : relays_)
    if (relaying->to.shared == shared_) relaying->relay.arrival = nullptr;
}

void Reach::begins(const std::shared_ptr<Relaying>& relaying) {
  ++pending_;
  relays_.push_back(relaying);
}

void Reach::has_ended(const std::shared_ptr<Relaying>& relaying) {
  if (std::erase(relays_, relaying) > 0) --pending_;
}

// `from`: nullptr on the loop's thread.
void Reach::finish(const std::shared_ptr<Relaying>& relaying, RelayEnd how,
                   ReachThreads::Descriptors* from) {
  const auto end = [relaying, how] {
    for (const bool write : {false, true}) {
      const Relaying::Side& side = relaying->side(write);
      if (!side.shared->alive.expired()) side.reach->has_ended(relaying);
    }
    relaying->relay.arrival = nullptr;
    if (const auto done = std::exchange(relaying->relay.done, nullptr)) done(relaying->moved, how);
  };
  if (!post(*relaying->from.shared, end, from)) (void)post(*relaying->to.shared, end, from);
}

void Reach::go_on(Job job, bool ok, ReachThreads::Here& here) {
  for (;;) {
    const std::shared_ptr<Relaying> relaying = std::move(job.relaying);
    Relaying& it = *relaying;
    if (job.write) {
      const std::lock_guard lock(it.to.shared->mutex);
      it.at_target = false;
    }
    if (!ok)
      return finish(relaying, job.write ? RelayEnd::kNotWritten : RelayEnd::kNotRead,
                    &here.descriptors);
    if (job.write) {
      it.moved += it.length;
      if (it.moved == it.relay.length) return finish(relaying, RelayEnd::kDone, &here.descriptors);
      it.length = it.next_length();
    }
    job = job_of(relaying, !job.write);
    const std::shared_ptr<Shared>& shared = it.side(job.write).shared;
    bool interrupted = false;
    {
      const std::lock_guard lock(shared->mutex);
      interrupted = shared->stopped || it.interrupted;
      if (!interrupted) {
        if (job.write) it.at_target = true;
        if (shared->scheduled) return shared->jobs.push_back(std::move(job));
        shared->scheduled = true;
        shared->revoked.clear();
      }
    }
    if (interrupted) return finish(relaying, RelayEnd::kInterrupted, &here.descriptors);
    const auto threads = shared->threads.lock();
    if (threads == nullptr || !threads->lend(here)) {
      {
        const std::lock_guard lock(shared->mutex);
        shared->jobs.push_front(std::move(job));
      }
      return end_turn(shared, here.descriptors);
    }
    ok = run(*shared, job, here.descriptors);
    end_turn(shared, here.descriptors);
  }
}

}  // namespace vrdma::rdma
