#include "core/rdma/reach.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <system_error>
#include <thread>

namespace vrdma::rdma {

namespace {

constexpr auto kIdle = std::chrono::seconds(1);

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

// Who waits for the mutex waits for a page of the same process, as it would for its own.
bool change(const Reach::Memory& memory, const Reach::Job& job) {
  const Reach::Part& word = job.parts.front();
  const int file = memory.file.get();
  const std::lock_guard lock(*memory.changes);
  uint64_t old = 0;
  if (!transfer(file, false, reinterpret_cast<uint8_t*>(&old), word.addr, sizeof old)) return false;
  std::memcpy(job.buffer->data() + word.offset, &old, sizeof old);
  uint64_t fresh = job.change(old);
  if (fresh == old) return true;
  return transfer(file, true, reinterpret_cast<uint8_t*>(&fresh), word.addr, sizeof fresh);
}

bool run(const Reach::Memory& own, const Reach::Job& job) {
  if (job.change) return change(memory_of(job.parts.front(), own), job);
  return std::all_of(job.parts.begin(), job.parts.end(), [&](const Reach::Part& part) {
    return transfer(memory_of(part, own).file.get(), job.write, job.buffer->data() + part.offset,
                    part.addr, part.length);
  });
}

}  // namespace

Reach::Reach(base::EventLoop& loop, Memory memory) : loop_(loop) {
  shared_->memory = std::move(memory);
}

Reach::~Reach() {
  const std::lock_guard lock(shared_->mutex);
  shared_->stopped = true;
  shared_->jobs.clear();
  shared_->changed.notify_all();
}

void Reach::submit(Job job) {
  ++pending_;
  job.done = [this, then = std::move(job.done)](bool ok) {
    --pending_;
    then(ok);
  };
  const std::lock_guard lock(shared_->mutex);
  shared_->jobs.push_back(std::move(job));
  shared_->changed.notify_one();
  if (shared_->running) return;
  // Detached: it may hang in a fault of the tenant's until that process ends. It holds all it uses;
  // the loop outlives every Reach whose `alive_` it can still lock.
  try {
    std::thread(&Reach::work, shared_, &loop_, std::weak_ptr(alive_)).detach();
    shared_->running = true;
  } catch (const std::system_error&) {  // no more threads: the job fails
    loop_.post([alive = std::weak_ptr(alive_), done = std::move(shared_->jobs.back().done)] {
      if (!alive.expired()) done(false);
    });
    shared_->jobs.pop_back();
  }
}

void Reach::barrier(std::function<void()> done) {
  if (pending_ == 0) return done();
  Job job;
  job.done = [then = std::move(done)](bool) { then(); };
  submit(std::move(job));
}

void Reach::work(const std::shared_ptr<Shared>& shared, base::EventLoop* loop,
                 const std::weak_ptr<int>& alive) {
  for (;;) {
    Job job;
    {
      std::unique_lock lock(shared->mutex);
      const bool woken = shared->changed.wait_for(
          lock, kIdle, [&] { return shared->stopped || !shared->jobs.empty(); });
      if (!woken) shared->running = false;
      if (!woken || shared->stopped) return;
      job = std::move(shared->jobs.front());
      shared->jobs.pop_front();
    }
    const bool ok = run(shared->memory, job);
    const std::lock_guard lock(shared->mutex);
    if (shared->stopped) return;  // nobody waits, and the loop may have gone
    loop->post([alive, done = std::move(job.done), ok] {
      if (!alive.expired()) done(ok);
    });
  }
}

}  // namespace vrdma::rdma
