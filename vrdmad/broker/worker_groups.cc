#include "vrdmad/broker/worker_groups.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <system_error>
#include <thread>
#include <utility>

namespace vrdma::vrdmad {

namespace fs = std::filesystem;

using base::fail_errno;
using base::Fd;
using base::pass;
using base::Result;

namespace {

// The kernel may report a process as ended shortly before the process leaves its group, and the
// workers of a killed broker end a moment after it.
constexpr int kTries = 10;
constexpr std::chrono::milliseconds kBetween{10};

uint64_t quarter_of_memory() {
  return static_cast<uint64_t>(::sysconf(_SC_PHYS_PAGES)) *
         static_cast<uint64_t>(::sysconf(_SC_PAGESIZE)) / 4;
}

// A hierarchy has only the files of its own controllers.
Result<void> limit(const Fd& group, const char* file, const std::string& value) {
  const Fd opened(::openat(group.get(), file, O_WRONLY | O_CLOEXEC));
  if (!opened.valid() && errno == ENOENT) return {};
  if (!opened.valid() || ::write(opened.get(), value.data(), value.size()) < 0)
    return fail_errno(std::string("write ") + value + " to " + file);
  return {};
}

// To move a process of several threads, the kernel waits for all processors, which takes ten
// milliseconds and more. Version 1 has a file for one thread.
Fd open_members(const Fd& group) {
  Fd threads(::openat(group.get(), "tasks", O_WRONLY | O_CLOEXEC));
  if (threads.valid() || errno != ENOENT) return threads;
  return Fd(::openat(group.get(), "cgroup.procs", O_WRONLY | O_CLOEXEC));
}

}  // namespace

WorkerGroup::WorkerGroup(WorkerGroup&& other) noexcept
    : all_(std::exchange(other.all_, nullptr)),
      name_(other.name_),
      members_(std::move(other.members_)),
      memory_events_(std::move(other.memory_events_)) {}

WorkerGroup::~WorkerGroup() {
  if (all_ != nullptr) all_->remove_or_leave(name_);
}

bool WorkerGroup::enter() const {
  for (const Fd& members : members_)
    if (::write(members.get(), "0", 1) != 1) return false;
  return true;
}

uint64_t WorkerGroup::exceeded_memory() const {
  std::array<char, 512> room{};
  if (!memory_events_.valid() || ::pread(memory_events_.get(), room.data(), room.size() - 1, 0) < 0)
    return 0;
  // `oom` counts only what this limit has caused, `oom_kill` also what others have.
  const std::string text = std::string("\n") + room.data();
  const bool here = text.find("\noom 0\n") == std::string::npos;
  const bool killed = text.find("\noom_kill 0\n") == std::string::npos;
  return here && killed ? all_->memory_ : 0;
}

WorkerGroups::WorkerGroups(const std::vector<std::string>& parents) : memory_(quarter_of_memory()) {
  for (const std::string& path : parents) {
    parents_.push_back({path, Fd(::open(path.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC))});
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(path, error))
      if (entry.path().filename().string().starts_with(kPrefix) && entry.is_directory(error))
        left_.insert(entry.path().filename());
  }
  for (int tries = 1; (remove_left(), !left_.empty()) && tries < kTries; ++tries)
    std::this_thread::sleep_for(kBetween);
}

Result<WorkerGroup> WorkerGroups::make() {
  remove_left();
  for (;;) {
    // Unlike that of any group which another broker removes meanwhile.
    auto made = make(kPrefix + std::to_string(::getpid()) + "-" + std::to_string(++made_));
    if (made || made.error().code() != EEXIST) return made;
  }
}

Result<WorkerGroup> WorkerGroups::make(const std::string& name) {
  WorkerGroup group(*this, name);
  for (const Parent& parent : parents_) {
    const std::string path = parent.path + "/" + name;
    if (::mkdirat(parent.directory.get(), name.c_str(), 0755) != 0)
      return fail_errno("make the control group " + path);
    const Fd directory(
        ::openat(parent.directory.get(), name.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    for (const auto& [file, value] : {std::pair{"pids.max", std::to_string(kThreads)},
                                      {"memory.max", std::to_string(memory_)},
                                      {"memory.swap.max", std::string("0")}})
      if (auto limited = limit(directory, file, value); !limited)
        return pass(std::move(limited).error(), "limit the control group " + path);
    Fd members = open_members(directory);
    if (!members.valid()) return fail_errno("open the members of the control group " + path);
    group.members_.push_back(std::move(members));
    if (Fd events(::openat(directory.get(), "memory.events", O_RDONLY | O_CLOEXEC)); events.valid())
      group.memory_events_ = std::move(events);
  }
  return group;
}

bool WorkerGroups::remove(const std::string& name) const {
  bool removed = true;
  for (const Parent& parent : parents_)
    if (parent.directory.valid() &&
        ::unlinkat(parent.directory.get(), name.c_str(), AT_REMOVEDIR) != 0 && errno != ENOENT)
      removed = false;
  return removed;
}

void WorkerGroups::remove_left() {
  const std::lock_guard lock(mutex_);
  std::erase_if(left_, [this](const std::string& name) { return remove(name); });
}

void WorkerGroups::remove_or_leave(const std::string& name) {
  bool removed = remove(name);
  for (int tries = 1; !removed && tries < kTries; ++tries) {
    std::this_thread::sleep_for(kBetween);
    removed = remove(name);
  }
  if (!removed) {
    const std::lock_guard lock(mutex_);
    left_.insert(name);
    return;
  }
  remove_left();
}

}  // namespace vrdma::vrdmad
