// Control groups of worker processes (cgroups(7)): one for each, below the groups that vrdmad has
// prepared at its start (vrdmad/parent_groups.h). A worker serves one tenant, or one fabric that an
// operator named.
//
// `cpu`: all groups have the same weight. So each worker gets an equal share of busy processors,
// however many threads it has, and however many other workers there are.
//
// `pids`: kThreads. A worker that was taken over cannot use up the tasks of the service.
//
// `memory`, of version 2 alone: a quarter of the host's memory, and no swap. It is for a worker
// that was taken over: what others use is bounded by the quotas of their vdevices, which operators
// change at any time. It is not derived from these, because the kernel charges shared memory to the
// group that touches it first, and keeps it charged there; with a narrow limit the kernel would
// kill workers that do nothing wrong. With version 1, only what limits the service limits memory.
//
// A group is removed when its worker was reaped. The kernel keeps a group (EBUSY) in which a thread
// hangs, for example one of a killed broker's worker. Its removal is tried again with each group
// that is made or removed, and by the next broker.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/base/fd.h"
#include "core/rdma/reach_threads.h"

namespace vrdma::vrdmad {

class WorkerGroups;

// Must not outlive its WorkerGroups.
class WorkerGroup {
 public:
  WorkerGroup(WorkerGroup&& other) noexcept;
  WorkerGroup& operator=(WorkerGroup&&) = delete;
  // Removes it, which may take some 100 ms. Destroy it after its worker was reaped.
  ~WorkerGroup();

  // Moves the calling process, which has one thread, into it. Allocates nothing. Sets errno.
  [[nodiscard]] bool enter() const;
  // The memory limit, in bytes, if the kernel has killed a process of the group because of that;
  // 0 otherwise. Of version 2 alone.
  [[nodiscard]] uint64_t exceeded_memory() const;

 private:
  friend class WorkerGroups;
  WorkerGroup(WorkerGroups& all, std::string name) : all_(&all), name_(std::move(name)) {}

  WorkerGroups* all_;  // none: moved from
  const std::string name_;
  std::vector<base::Fd> members_;  // where to write, one for each parent
  base::Fd memory_events_;         // of version 2
};

// Any thread.
class WorkerGroups {
 public:
  // The name of a group begins with it. No other directory of the parents may.
  static constexpr const char* kPrefix = "worker-";
  // A worker has one thread, at most kMostInTotal that reach memory, and one more of these for each
  // vdevice. If a worker of more than a thousand vdevices has no more threads, requests that would
  // need one fail, as when the host has no more.
  static constexpr unsigned kThreads = 2 * rdma::ReachThreads::kMostInTotal;

  // Removes what earlier brokers have left in `parents`, which are directories, and waits 100 ms at
  // most for workers that are ending: what they write into a program's memory must not come after
  // what the next worker writes. None: workers get no groups. Call before the broker's system calls
  // are confined.
  explicit WorkerGroups(const std::vector<std::string>& parents);
  WorkerGroups(const WorkerGroups&) = delete;
  WorkerGroups& operator=(const WorkerGroups&) = delete;
  ~WorkerGroups() = default;

  [[nodiscard]] base::Result<WorkerGroup> make();

 private:
  friend class WorkerGroup;
  struct Parent {
    std::string path;
    base::Fd directory;  // invalid: it could not be opened
  };
  [[nodiscard]] base::Result<WorkerGroup> make(const std::string& name);
  // False: the kernel keeps it.
  [[nodiscard]] bool remove(const std::string& name) const;
  void remove_left();
  void remove_or_leave(const std::string& name);

  std::vector<Parent> parents_;
  const uint64_t memory_;
  std::atomic<unsigned> made_ = 0;
  std::mutex mutex_;
  std::set<std::string> left_;  // to be removed
};

}  // namespace vrdma::vrdmad
