#include "core/rdma/reach.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/rdma/mappings.h"

namespace vrdma::rdma {

namespace {

const Reach::Memory& memory_of(const Reach::Part& part, const Reach::Memory& own) {
  return part.memory != nullptr ? *part.memory : own;
}

bool transfer(int file, bool write, uint8_t* bytes, uint64_t addr, uint64_t length) {
  for (uint64_t done = 0; done < length;) {
    const size_t left = length - done;
    const auto at = static_cast<off_t>(addr + done);
    const ssize_t moved =
        write ? ::pwrite(file, bytes + done, left, at) : ::pread(file, bytes + done, left, at);
    if (moved <= 0) return false;
    done += static_cast<uint64_t>(moved);
  }
  return true;
}

bool store(int file, const Reach::Job& job, bool last, uint8_t* bytes, uint64_t addr,
           uint64_t length) {
  const bool marks = last && job.mark;
  if (marks) job.mark(ipc::Mark::kBegun);
  const bool ok = transfer(file, true, bytes, addr, length);
  if (marks && ok) job.mark(ipc::Mark::kDone);
  return ok;
}

// A thread that waits for the mutex waits for a page of the same process, as it would for its own.
bool change(int file, const Reach::Memory& memory, const Reach::Job& job) {
  const Reach::Part& word = job.parts.front();
  const std::lock_guard lock(*memory.changes);
  uint64_t old = 0;
  if (!transfer(file, false, reinterpret_cast<uint8_t*>(&old), word.addr, sizeof old)) return false;
  std::memcpy(job.buffer->data() + word.offset, &old, sizeof old);
  uint64_t fresh = job.change(old);
  if (fresh == old && !job.mark) return true;
  return store(file, job, true, reinterpret_cast<uint8_t*>(&fresh), word.addr, sizeof fresh);
}

// Invalid once the memory's reach has gone.
base::Fd open(const Reach::Memory& memory, base::Fd MemoryFiles::*which,
              const ReachThreads::Descriptors& descriptors) {
  const std::lock_guard lock(*memory.guard);
  const base::Fd& file = memory.files.*which;
  return file.valid() ? descriptors.take(file.get()) : base::Fd();
}

bool perform(const Reach::Memory& memory, const Reach::Job& job, const Reach::Part& part,
             const ReachThreads::Descriptors& descriptors) {
  if (job.only_asked) {
    const base::Fd maps = open(memory, &MemoryFiles::maps, descriptors);
    return mappings_permit(maps, part.addr, part.length, job.write);
  }
  const base::Fd file = open(memory, &MemoryFiles::memory, descriptors);
  if (job.change) return change(file.get(), memory, job);
  uint8_t* const bytes = job.buffer->data() + part.offset;
  return job.write
             ? store(file.get(), job, &part == &job.parts.back(), bytes, part.addr, part.length)
             : transfer(file.get(), false, bytes, part.addr, part.length);
}

bool touches(const Reach::Job& job, const Reach::Memory* memory) {
  return std::any_of(job.parts.begin(), job.parts.end(),
                     [&](const Reach::Part& part) { return part.memory.get() == memory; });
}

// Moves the jobs of `from` that touch `memory` to `to`.
void take_touching(std::deque<Reach::Job>& from, const Reach::Memory* memory,
                   std::vector<Reach::Job>* to) {
  for (auto it = from.begin(); it != from.end();) {
    if (!touches(*it, memory)) {
      ++it;
      continue;
    }
    to->push_back(std::move(*it));
    it = from.erase(it);
  }
}

}  // namespace

Reach::Reach(base::EventLoop& loop, Memory memory, std::shared_ptr<ReachThreads> threads)
    : loop_(loop), threads_(std::move(threads)) {
  shared_->loop = &loop;
  shared_->memory = std::move(memory);
}

Reach::~Reach() {
  auto releases = std::exchange(releases_, {});
  std::vector<Job> ignored;
  for (auto& [id, release] : releases) revoke(*shared_, std::move(release), &ignored);
  std::deque<Job> dropped;  // not under the lock: they own others' objects
  {
    const std::lock_guard lock(shared_->mutex);
    shared_->stopped = true;
    dropped.swap(shared_->jobs);
  }
  // Here, and not by whoever drops `shared_` last: that may be a thread with another table.
  const std::lock_guard lock(*shared_->memory.guard);
  shared_->memory.files = {};
}

void Reach::replace(MemoryFiles files) {
  const std::lock_guard lock(*shared_->memory.guard);
  shared_->memory.files = std::move(files);
}

bool Reach::may_write() const {
  const std::lock_guard lock(*shared_->memory.guard);
  return shared_->memory.files.writable;
}

void Reach::submit(Job job) {
  if (pauses_ > 0)
    waiting_.push_back(std::move(job));
  else
    enqueue(std::move(job));
}

void Reach::enqueue(Job job) {
  ++pending_;
  job.done = [this, then = std::move(job.done)](bool ok) {
    --pending_;
    then(ok);
  };
  {
    const std::lock_guard lock(shared_->mutex);
    shared_->jobs.push_back(std::move(job));
    if (std::exchange(shared_->scheduled, true)) return;
  }
  if (threads_->run([shared = shared_, threads = std::weak_ptr(threads_),
                     alive = std::weak_ptr(alive_)](ReachThreads::Here& here) {
        take_turn(shared, threads, alive, here);
      }))
    return;
  // There is no thread: the job, which is the only one, fails.
  const std::lock_guard lock(shared_->mutex);
  shared_->scheduled = false;
  loop_.post([alive = std::weak_ptr(alive_), done = std::move(shared_->jobs.back().done)] {
    if (!alive.expired()) done(false);
  });
  shared_->jobs.pop_back();
}

void Reach::barrier(std::function<void()> done) {
  if (pending_ == 0 && waiting_.empty()) return done();
  Job job;
  job.done = [then = std::move(done)](bool) { then(); };
  submit(std::move(job));
}

std::shared_ptr<void> Reach::pause(std::function<void()> ready) {
  ++pauses_;
  if (pending_ == 0) {
    ready();
  } else {
    Job last;
    last.done = [then = std::move(ready)](bool) { then(); };
    enqueue(std::move(last));
  }
  return {nullptr, [this, alive = std::weak_ptr(alive_)](std::nullptr_t) {
            if (!alive.expired()) end_pause();
          }};
}

void Reach::end_pause() {
  if (--pauses_ > 0) return;
  for (Job& job : std::exchange(waiting_, {})) enqueue(std::move(job));
}

void Reach::release(const Reach& owner, std::function<void()> done) {
  if (pending_ == 0 && waiting_.empty()) return done();
  const uint64_t id = next_release_++;
  Release& release = releases_[id];
  release.owner = owner.shared_;
  release.done = std::move(done);
  release.patience = loop_.after(kPatience, [this, id] {
    auto node = releases_.extract(id);
    if (node.empty()) return;
    std::vector<Job> failed;
    take_touching(waiting_, &node.mapped().owner->memory, &failed);
    revoke(*shared_, std::move(node.mapped()), &failed);
    for (Job& job : failed) job.done(false);
  });
  barrier([this, id] {
    auto node = releases_.extract(id);
    if (!node.empty()) node.mapped().done();
  });
}

// Takes the owner's memory away from the jobs of `shared`: from the queue into `failed`, and from
// the one that runs. A part of that which is at it ends first; the owner's page is what it waits
// for.
void Reach::revoke(Shared& shared, Release release, std::vector<Job>* failed) {
  const Memory* memory = &release.owner->memory;
  {
    const std::lock_guard lock(shared.mutex);
    take_touching(shared.jobs, memory, failed);
    shared.revoked.push_back(memory);
    if (shared.touched == memory) {
      shared.waits.push_back({std::move(release.owner), std::move(release.done)});
      return;
    }
  }
  const std::lock_guard lock(release.owner->mutex);
  if (!release.owner->stopped) release.owner->loop->post(std::move(release.done));
}

bool Reach::begin_to_touch(Shared& shared, const Memory& memory) {
  const std::lock_guard lock(shared.mutex);
  if (shared.stopped ||
      std::find(shared.revoked.begin(), shared.revoked.end(), &memory) != shared.revoked.end())
    return false;
  shared.touched = &memory;
  return true;
}

void Reach::end_to_touch(Shared& shared, const ReachThreads::Descriptors& descriptors) {
  std::vector<Shared::Wait> waits;
  {
    const std::lock_guard lock(shared.mutex);
    shared.touched = nullptr;
    waits.swap(shared.waits);
  }
  for (auto& wait : waits) {
    const std::lock_guard lock(wait.owner->mutex);
    if (wait.owner->stopped) continue;
    const base::Fd waker = descriptors.take(wait.owner->loop->waker());
    wait.owner->loop->post(std::move(wait.done), waker.get());
  }
}

bool Reach::run(Shared& shared, const Job& job, const ReachThreads::Descriptors& descriptors) {
  for (const Part& part : job.parts) {
    const Memory& memory = memory_of(part, shared.memory);
    if (!begin_to_touch(shared, memory)) return false;
    const bool ok = perform(memory, job, part, descriptors);
    end_to_touch(shared, descriptors);
    if (!ok) return false;
  }
  return true;
}

// One job; the next one is another turn, behind those of other processes.
void Reach::take_turn(const std::shared_ptr<Shared>& shared,
                      const std::weak_ptr<ReachThreads>& threads, const std::weak_ptr<int>& alive,
                      ReachThreads::Here& here) {
  const ReachThreads::Descriptors& descriptors = here.descriptors;
  Job job;
  {
    const std::lock_guard lock(shared->mutex);
    if (shared->jobs.empty()) {
      shared->scheduled = false;
      return;
    }
    job = std::move(shared->jobs.front());
    shared->jobs.pop_front();
    shared->revoked.clear();
  }
  if (job.payer != nullptr) here.payer = std::move(job.payer);
  const bool ok = run(*shared, job, descriptors);
  const std::lock_guard lock(shared->mutex);
  if (shared->stopped) return;  // nobody waits, and the loop may have gone
  const base::Fd waker = descriptors.take(shared->loop->waker());
  shared->loop->post(
      [alive, done = std::move(job.done), ok] {
        if (!alive.expired()) done(ok);
      },
      waker.get());
  // This thread is there to take it.
  const auto more = threads.lock();
  shared->scheduled = !shared->jobs.empty() && more != nullptr &&
                      more->run([shared, threads, alive](ReachThreads::Here& again) {
                        take_turn(shared, threads, alive, again);
                      });
}

}  // namespace vrdma::rdma
