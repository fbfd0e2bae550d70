#include "core/rdma/process.h"

#include <cstring>
#include <map>
#include <mutex>
#include <utility>

namespace vrdma::rdma {

using base::Fd;

namespace {

// One for each process, whichever worker serves it.
std::shared_ptr<std::mutex> changes_of(pid_t pid, uint64_t start_time) {
  static std::mutex guard;
  static std::map<std::pair<pid_t, uint64_t>, std::weak_ptr<std::mutex>> all;
  const std::lock_guard lock(guard);
  std::erase_if(all, [](const auto& one) { return one.second.expired(); });
  std::weak_ptr<std::mutex>& known = all[{pid, start_time}];
  std::shared_ptr<std::mutex> changes = known.lock();
  if (changes == nullptr) known = changes = std::make_shared<std::mutex>();
  return changes;
}

}  // namespace

std::shared_ptr<Process> Process::make(const Peer& peer, Fd pidfd, MemoryFiles memory) {
  std::shared_ptr<Process> process(new Process);
  process->peer_ = peer;
  process->pidfd_ = std::move(pidfd);
  process->memory_ = std::move(memory);
  return process;
}

NotDirect Process::why_not_shared_with(const Process& other) const {
  if (peer_.uid() != other.peer_.uid()) return NotDirect::kUser;
  if (peer_.user_namespace != other.peer_.user_namespace) return NotDirect::kUserNamespace;
  const bool dumpable = peer_.dumpable != 0 && other.peer_.dumpable != 0;
  return dumpable ? NotDirect::kNone : NotDirect::kNotDumpable;
}

void Process::start_reach(base::EventLoop& loop, std::shared_ptr<ReachThreads> threads) {
  reach_ = std::make_unique<Reach>(
      loop, Reach::Memory{std::move(memory_), changes_of(pid(), start_time())}, std::move(threads));
}

void Process::confirm(uint64_t addr, uint64_t challenge, std::function<void(bool)> done) {
  Reach::Job job;
  job.parts.push_back({addr, sizeof challenge, 0});
  job.buffer = std::make_shared<std::vector<uint8_t>>(sizeof challenge);
  job.done = [challenge, buffer = job.buffer, then = std::move(done)](bool ok) {
    then(ok && std::memcmp(buffer->data(), &challenge, sizeof challenge) == 0);
  };
  reach_->submit(std::move(job));
}

Reach::Part part_of(const Piece& piece, uint64_t offset, const Process& worker) {
  const bool foreign = piece.process != nullptr && piece.process != &worker;
  return {piece.addr, piece.length, offset,
          foreign ? piece.process->reach()->memory() : std::shared_ptr<const Reach::Memory>()};
}

}  // namespace vrdma::rdma
