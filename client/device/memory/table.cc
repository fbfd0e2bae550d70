#include "client/device/memory/table.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

#include "client/device/complaint.h"
#include "client/device/memory/pins.h"
#include "client/device/memory/raw_memory.h"
#include "client/dial/dial.h"

namespace vrdma::client {

namespace {

// Memory in place has mappings of its own: with those that it divides, two for each region that
// lies apart. As many remain for the program as it can have now; beyond them memory is reached.
constexpr uint32_t kUsualMost = 65530;  // vm.max_map_count, where it cannot be read
constexpr uint32_t kOfConversion = 2;
constexpr uint32_t kCountEach = 4096;  // conversions that are refused

uint32_t most_mappings() {
  static const uint32_t most = [] {
    const base::Fd file(::open("/proc/sys/vm/max_map_count", O_RDONLY | O_CLOEXEC));
    char text[16] = {};
    if (!file.valid() || ::read(file.get(), text, sizeof text - 1) <= 0) return kUsualMost / 2;
    const unsigned long all = std::strtoul(text, nullptr, 10);
    return all == 0 ? kUsualMost / 2 : static_cast<uint32_t>(std::min(all, 1ul << 30)) / 2;
  }();
  return most;
}

// By the user, or by the class of the container that the program is in (cli/hook/setup.cc).
bool is_asked_to_reach() {
  static const bool asked = [] {
    constexpr std::string_view kReached = "reached";
    const char* const wish = std::getenv("VRDMA_MEMORY");
    if (wish != nullptr && wish == kReached) return true;
    if (wish != nullptr && *wish != '\0' && wish != std::string_view("in-place"))
      complain_of_variable("VRDMA_MEMORY", wish,
                           "it may be reached or in-place, and is taken for in-place");
    const base::Fd file(
        ::open((run_directory() + "/memory").c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    char word[kReached.size()] = {};
    return file.valid() && ::read(file.get(), word, sizeof word) == sizeof word &&
           std::string_view(word, sizeof word) == kReached;
  }();
  return asked;
}

}  // namespace

MemoryTable& MemoryTable::instance() {
  static MemoryTable* table = [] {
    ::pthread_atfork([] { instance().before_fork(); }, [] { instance().after_fork_in_parent(); },
                     [] { instance().after_fork_in_child(); });
    return new MemoryTable;  // never destroyed, because threads may register until the process ends
  }();
  return *table;
}

void MemoryTable::provide(base::Fd arena, base::Fd device) {
  const std::lock_guard lock(mutex_);
  if (arena_.valid()) return;
  arena_ = Arena(std::move(arena));
  device_ = std::move(device);
}

void MemoryTable::leave(const ipc::HoldWords& words) {
  const std::lock_guard lock(mutex_);
  holds_.let_go(words);
}

int MemoryTable::acquire(uint64_t addr, uint64_t length, bool writable, const Asker& asker,
                         ipc::Way* way, ipc::Reached* why) {
  *way = ipc::Way::kReached;
  *why = ipc::Reached::kOther;
  if (length == 0) return 0;
  const uint64_t start = page_down(addr), end = page_up(addr + length);
  if (end <= start) return EFAULT;  // the last page of the address space
  const std::lock_guard lock(mutex_);
  std::vector<Mapped> mapped;
  if (!read_mappings(start, end, &mapped)) return 0;
  const auto here = reinterpret_cast<uint64_t>(__builtin_frame_address(0));
  uint64_t covered = start;
  bool suitable = arena_.valid(), ready = true;
  for (const auto& one : mapped) {
    if (one.start != covered || (one.prot & PROT_READ) == 0) return EFAULT;
    if (writable && (one.prot & PROT_WRITE) == 0) return EFAULT;
    covered = one.end;
    suitable = suitable && (arena_.is_home(one) || (one.anonymous && !one.holds(here)));
    ready = ready && arena_.is_home(one);
  }
  if (covered < end) return EFAULT;
  if (!suitable) {
    if (arena_.valid()) *why = ipc::Reached::kMemory;
    return 0;
  }
  if (!ready || restored_)
    *why = obstacle();
  else if (!watch_.is_trusted())
    *why = ipc::Reached::kUnseen;
  else
    *why = ipc::Reached::kNot;
  if (*why != ipc::Reached::kNot) return 0;
  if (!ready) library_.look();
  for (const auto& one : mapped) {
    if (one.shared) continue;
    if (library_.meet(one.start, one.end)) {
      *why = ipc::Reached::kMemory;
      return 0;
    }
    if (kept_out_.meet(one.start, one.end)) {
      *why = ipc::Reached::kOther;
      return 0;
    }
    // What is converted stays so, also if the rest cannot be.
    if (!convert(one, asker, why)) return 0;
  }
  *why = ipc::Reached::kNot;
  *way = ipc::Way::kInPlace;
  return 0;
}

void MemoryTable::reach(uint64_t addr, uint64_t length) {
  if (length == 0) return;
  const std::lock_guard lock(mutex_);
  kept_out_.add(page_down(addr), page_up(addr + length));
}

void MemoryTable::leave(uint64_t addr, uint64_t length) {
  if (length == 0) return;
  const std::lock_guard lock(mutex_);
  kept_out_.remove(page_down(addr), page_up(addr + length));
}

void MemoryTable::look_again() {
  if (arena_.valid() && !arena_.is_same_file()) restored_ = true;
}

ipc::Reached MemoryTable::obstacle() {
  if (restored_) return ipc::Reached::kUnseen;
  if (is_asked_to_reach()) return ipc::Reached::kAsked;
  if (may_have_pinned_pages({watch_.descriptor(), userfaultfd_.get()}))
    return ipc::Reached::kPinned;
  if (!watch_.start(device_)) return ipc::Reached::kUnseen;
  if (!for_fork_.make()) return ipc::Reached::kOther;
  return has_room_for_mappings() ? ipc::Reached::kNot : ipc::Reached::kMappings;
}

bool MemoryTable::has_room_for_mappings() {
  if (uncounted_ == 0) {
    uint32_t count = 0;
    const SeeMapped add = [](const Mapped&, void* with) { ++*static_cast<uint32_t*>(with); };
    const uint32_t room = visit_mappings(0, UINT64_MAX, add, &count) && count < most_mappings()
                              ? (most_mappings() - count) / kOfConversion
                              : 0;
    too_many_mappings_ = room == 0;
    uncounted_ = too_many_mappings_ ? kCountEach : room;
  }
  --uncounted_;
  if (!too_many_mappings_) converted_ = true;
  return !too_many_mappings_;
}

// A thread that unmaps or replaces memory of the arena sleeps until the watcher has seen it, and
// the watcher waits for the exchange. So what was advised though the arena had just left it is
// found.
bool MemoryTable::advise_arena(int advice) {
  struct Advice {
    MemoryTable* table;
    int advice;
  } given{this, advice};
  const SeeMapped advise = [](const Mapped& one, void* with) {
    const auto& all = *static_cast<Advice*>(with);
    if (!all.table->arena_.is_in(one) || !is_memory_of_program(one)) return;
    (void)raw::madvise(reinterpret_cast<void*>(one.start), one.end - one.start, all.advice);
    const SeeMapped undo = [](const Mapped& now, void* table) {
      if (!static_cast<MemoryTable*>(table)->arena_.is_in(now))
        (void)raw::madvise(reinterpret_cast<void*>(now.start), now.end - now.start, MADV_DOFORK);
    };
    if (all.advice == MADV_DONTFORK) (void)visit_mappings(one.start, one.end, undo, all.table);
  };
  const std::lock_guard lock(exchange_);
  return visit_shared_files(advise, &given);
}

void MemoryTable::before_fork() {
  mutex_.lock();
  holds_.let_go();
  fork_pipe_[0] = fork_pipe_[1] = -1;
  fork_shows_arena_ = false;
  if (!converted_) return;
  for_fork_.let_go();
  if (::pipe2(fork_pipe_, O_CLOEXEC) != 0) fork_pipe_[0] = fork_pipe_[1] = -1;
  // The child copies the pages itself, as the C library's own data may be among them.
  fork_shows_arena_ = advise_arena(MADV_DOFORK);
}

void MemoryTable::after_fork_in_parent() {
  if (fork_pipe_[1] >= 0) {
    ::close(fork_pipe_[1]);
    char nothing;
    while (::read(fork_pipe_[0], &nothing, 1) < 0 && errno == EINTR) {
    }  // until the child has closed its end
    ::close(fork_pipe_[0]);
  }
  if (converted_) {
    (void)advise_arena(MADV_DONTFORK);
    (void)for_fork_.make();
  }
  mutex_.unlock();
}

// Until all pages are private to the child, writes only to the stack: allocated memory might be in
// a page that the parent considers free.
void MemoryTable::after_fork_in_child() {
  const SeeMapped revert_one = [](const Mapped& one, void* with) {
    auto* const table = static_cast<MemoryTable*>(with);
    if (table->arena_.is_in(one)) table->revert_in_child(one);
  };
  if (converted_ && !visit_shared_files(revert_one, this) && fork_shows_arena_) ::abort();
  converted_ = false;
  kept_out_ = {};
  arena_ = {};  // the parent's; the child's sessions bring another one
  watch_.forget();
  // The parent's watcher may have it.
  new (&exchange_) std::mutex;
  userfaultfd_.reset();
  device_.reset();
  spare_.leave();
  if (fork_pipe_[1] >= 0) {
    ::close(fork_pipe_[1]);
    ::close(fork_pipe_[0]);
  }
  mutex_.unlock();
}

}  // namespace vrdma::client
