#include "core/rdma/reach.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <system_error>
#include <thread>

namespace vrdma::rdma {

namespace {

constexpr auto kIdle = std::chrono::seconds(1);

bool transfer(int memory, const Reach::Job& job) {
  for (const auto& part : job.parts) {
    const int file = part.memory != nullptr ? part.memory->get() : memory;
    for (uint64_t done = 0; done < part.length;) {
      uint8_t* bytes = job.buffer->data() + part.offset + done;
      const size_t left = part.length - done;
      const auto at = static_cast<off_t>(part.addr + done);
      const ssize_t moved =
          job.write ? ::pwrite(file, bytes, left, at) : ::pread(file, bytes, left, at);
      if (moved <= 0) return false;
      done += static_cast<uint64_t>(moved);
    }
  }
  return true;
}

}  // namespace

Reach::Reach(base::EventLoop& loop, base::Fd memory) : loop_(loop) {
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
    const bool ok = transfer(shared->memory.get(), job);
    const std::lock_guard lock(shared->mutex);
    if (shared->stopped) return;  // nobody waits, and the loop may have gone
    loop->post([alive, done = std::move(job.done), ok] {
      if (!alive.expired()) done(ok);
    });
  }
}

}  // namespace vrdma::rdma
