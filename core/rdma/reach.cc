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

bool store_marked(int file, const Reach::Marker& mark, uint64_t stood, uint8_t* bytes,
                  uint64_t addr, uint64_t length) {
  mark(ipc::Mark::kBegun, stood);
  const bool ok = transfer(file, true, bytes, addr, length);
  if (ok) mark(ipc::Mark::kDone, stood);
  return ok;
}

bool store(int file, const Reach::Job& job, bool last, uint8_t* bytes, uint64_t addr,
           uint64_t length) {
  if (!last || !job.mark) return transfer(file, true, bytes, addr, length);
  uint64_t stood = 0;
  const uint64_t known = std::min(length, sizeof stood);
  return transfer(file, false, reinterpret_cast<uint8_t*>(&stood), addr, known) &&
         store_marked(file, job.mark, stood, bytes, addr, length);
}

// A thread that waits for the mutex waits for a page of the same process, as it would for its own.
bool change(int file, const Reach::Memory& memory, const Reach::Job& job) {
  const Reach::Part& word = job.parts.front();
  const std::lock_guard lock(*memory.changes);
  uint64_t old = 0;
  if (!transfer(file, false, reinterpret_cast<uint8_t*>(&old), word.addr, sizeof old)) return false;
  std::memcpy(job.buffer->data() + word.offset, &old, sizeof old);
  uint64_t fresh = job.change(old);
  auto* const bytes = reinterpret_cast<uint8_t*>(&fresh);
  if (fresh == old) {  // nothing is stored: the program may store there meanwhile
    if (job.mark) job.mark(ipc::Mark::kDone, old);
    return true;
  }
  if (job.mark) return store_marked(file, job.mark, old, bytes, word.addr, sizeof fresh);
  return transfer(file, true, bytes, word.addr, sizeof fresh);
}

// -1 once the memory's reach has gone.
int open_memory(const Reach::Memory& memory, ReachThreads::Descriptors& descriptors) {
  const std::lock_guard lock(*memory.guard);
  const base::Fd& file = memory.files.memory;
  return file.valid() ? descriptors.keep(file.get(), memory.serial) : -1;
}

// Invalid then.
base::Fd open_maps(const Reach::Memory& memory, const ReachThreads::Descriptors& descriptors) {
  const std::lock_guard lock(*memory.guard);
  const base::Fd& file = memory.files.maps;
  return file.valid() ? descriptors.take(file.get()) : base::Fd();
}

bool perform(const Reach::Memory& memory, const Reach::Job& job, const Reach::Part& part,
             ReachThreads::Descriptors& descriptors) {
  if (job.only_asked)
    return mappings_permit(open_maps(memory, descriptors), part.addr, part.length, job.write);
  const int file = open_memory(memory, descriptors);
  if (job.change) return change(file, memory, job);
  uint8_t* const bytes = job.buffer->data() + part.offset;
  return job.write ? store(file, job, &part == &job.parts.back(), bytes, part.addr, part.length)
                   : transfer(file, false, bytes, part.addr, part.length);
}

bool touches(const Reach::Job& job, const Reach::Memory* memory) {
  return std::any_of(job.parts.begin(), job.parts.end(),
                     [&](const Reach::Part& part) { return part.memory.get() == memory; });
}

// Of the jobs that touch `memory` nothing is left but to fail, each in its turn.
void revoke_touching(std::deque<Reach::Job>& jobs, const Reach::Memory* memory) {
  for (Reach::Job& job : jobs) {
    if (!touches(job, memory)) continue;
    job.parts.clear();
    job.revoked = true;
  }
}

}  // namespace

Reach::Reach(base::EventLoop& loop, Memory memory, std::shared_ptr<ReachThreads> threads)
    : loop_(loop), threads_(std::move(threads)) {
  shared_->threads = threads_;
  shared_->alive = alive_;
  shared_->loop = &loop;
  shared_->memory = std::move(memory);
  shared_->memory.serial = ReachThreads::Descriptors::next_serial();
}

Reach::~Reach() {
  leave_relays();
  auto releases = std::exchange(releases_, {});
  for (auto& [id, release] : releases) revoke(*shared_, std::move(release));
  std::deque<Job> dropped;  // not under the lock: they own others' objects
  {
    const std::lock_guard lock(shared_->mutex);
    shared_->stopped = true;
    dropped.swap(shared_->jobs);
  }
  for (Job& job : dropped)
    if (job.relaying != nullptr) job.done(false);  // the other side goes on
  // Here, and not by whoever drops `shared_` last: that may be a thread with another table.
  const std::lock_guard lock(*shared_->memory.guard);
  shared_->memory.files = {};
}

void Reach::replace(MemoryFiles files) {
  const std::lock_guard lock(*shared_->memory.guard);
  shared_->memory.files = std::move(files);
  shared_->memory.serial = ReachThreads::Descriptors::next_serial();
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
  schedule(std::move(job));
}

void Reach::schedule(Job job) {
  {
    const std::lock_guard lock(shared_->mutex);
    shared_->jobs.push_back(std::move(job));
    if (std::exchange(shared_->scheduled, true)) return;
  }
  if (!begin_turn(shared_)) fail_all(shared_, nullptr);
}

// There is no thread, and none can be made.
void Reach::fail_all(const std::shared_ptr<Shared>& shared, ReachThreads::Descriptors* from) {
  std::deque<Job> failed;
  {
    const std::lock_guard lock(shared->mutex);
    shared->scheduled = false;
    failed.swap(shared->jobs);
  }
  for (Job& job : failed) {
    if (job.relaying != nullptr)
      finish(job.relaying, job.write ? RelayEnd::kNotWritten : RelayEnd::kNotRead, from);
    else
      (void)tell(*shared, std::move(job.done), false, from);
  }
}

bool Reach::tell(Shared& shared, std::function<void(bool)> done, bool ok,
                 ReachThreads::Descriptors* from) {
  return post(
      shared,
      [alive = shared.alive, then = std::move(done), ok] {
        if (!alive.expired()) then(ok);
      },
      from);
}

bool Reach::begin_turn(const std::shared_ptr<Shared>& shared) {
  const auto threads = shared->threads.lock();
  return threads != nullptr &&
         threads->run([shared](ReachThreads::Here& here) { take_turn(shared, here); });
}

void Reach::barrier(std::function<void()> done) {
  interrupt_relays();
  if (pending_ == 0 && waiting_.empty()) return done();
  Job job;
  job.done = [then = std::move(done)](bool) { then(); };
  submit(std::move(job));
}

std::shared_ptr<void> Reach::pause(std::function<void()> ready) {
  ++pauses_;
  interrupt_relays();
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
  interrupt_relays();
  if (pending_ == 0 && waiting_.empty()) return done();
  const uint64_t id = next_release_++;
  Release& release = releases_[id];
  release.owner = owner.shared_;
  release.done = std::move(done);
  release.patience = loop_.after(kPatience, [this, id] {
    auto node = releases_.extract(id);
    if (node.empty()) return;
    revoke_touching(waiting_, &node.mapped().owner->memory);
    revoke(*shared_, std::move(node.mapped()));
  });
  barrier([this, id] {
    auto node = releases_.extract(id);
    if (!node.empty()) node.mapped().done();
  });
}

// Takes the owner's memory away from the jobs of `shared`: from those in the queue, and from the
// one that runs. A part of that which is at it ends first; the owner's page is what it waits for.
void Reach::revoke(Shared& shared, Release release) {
  const Memory* memory = &release.owner->memory;
  {
    const std::lock_guard lock(shared.mutex);
    revoke_touching(shared.jobs, memory);
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

void Reach::end_to_touch(Shared& shared, ReachThreads::Descriptors& descriptors) {
  std::vector<Shared::Wait> waits;
  {
    const std::lock_guard lock(shared.mutex);
    shared.touched = nullptr;
    waits.swap(shared.waits);
  }
  for (auto& wait : waits) (void)post(*wait.owner, std::move(wait.done), &descriptors);
}

bool Reach::post(Shared& shared, std::function<void()> work, ReachThreads::Descriptors* from) {
  const std::lock_guard lock(shared.mutex);
  if (shared.stopped) return false;
  if (from == nullptr)
    shared.loop->post(std::move(work));
  else
    shared.loop->post(std::move(work), from->keep(shared.loop->waker(), shared.waker_serial));
  return true;
}

bool Reach::run(Shared& shared, const Job& job, ReachThreads::Descriptors& descriptors) {
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
void Reach::take_turn(const std::shared_ptr<Shared>& shared, ReachThreads::Here& here) {
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
  const bool ok = !job.revoked && run(*shared, job, here.descriptors);
  if (job.relaying != nullptr) {
    end_turn(shared, here.descriptors);
    return go_on(std::move(job), ok, here);
  }
  if (tell(*shared, std::move(job.done), ok, &here.descriptors)) end_turn(shared, here.descriptors);
}

void Reach::end_turn(const std::shared_ptr<Shared>& shared, ReachThreads::Descriptors& from) {
  {
    const std::lock_guard lock(shared->mutex);
    shared->scheduled = !shared->jobs.empty();
    if (!shared->scheduled || begin_turn(shared)) return;
  }
  fail_all(shared, &from);
}

}  // namespace vrdma::rdma
