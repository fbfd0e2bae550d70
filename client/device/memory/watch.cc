#include "client/device/memory/watch.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ctime>

#include "client/device/memory/raw_memory.h"

namespace vrdma::client {

namespace {

constexpr int kDontNeedLocked = 24;  // MADV_DONTNEED_LOCKED, Linux 5.18
constexpr size_t kStack = 256u << 10;

// Reads a small file of /proc below `folder`. Returns the number of characters, or -1.
ssize_t read_text(int folder, const char* name, char* text, size_t size) {
  const base::Fd file(::openat(folder, name, O_RDONLY | O_CLOEXEC));
  const ssize_t length = file.valid() ? ::read(file.get(), text, size - 1) : -1;
  text[std::max<ssize_t>(length, 0)] = '\0';
  return length;
}

// "TID/FILE"
void name_of(const char* thread, const char* file, char (&name)[64]) {
  const size_t length = std::min(std::strlen(thread), sizeof name - 16);
  std::memcpy(name, thread, length);
  std::strcpy(name + length, file);
}

// In ns; -1: it has ended. `clock`: /proc numbers threads as this process does. Else the kernel's
// account is read, which it brings up to date at each tick of its clock.
int64_t processor_time_of(int folder, const char* thread, bool clock) {
  if (clock) {
    // The clock of a thread (CPUCLOCK_SCHED | CPUCLOCK_PERTHREAD_MASK), clock_getcpuclockid(3).
    const auto id = static_cast<clockid_t>(~static_cast<unsigned>(std::atoi(thread)) << 3 | 6);
    timespec time{};
    if (::clock_gettime(id, &time) != 0) return -1;
    return time.tv_sec * 1'000'000'000 + time.tv_nsec;
  }
  char name[64], text[128];
  name_of(thread, "/schedstat", name);
  return read_text(folder, name, text, sizeof text) > 0 ? std::strtoll(text, nullptr, 10) : -1;
}

// The calling thread's number in /proc, which may be that of another pid namespace; 0: unknown.
int number_in_proc() {
  char target[64];
  const ssize_t length = ::readlink("/proc/thread-self", target, sizeof target - 1);
  if (length <= 0) return 0;
  target[length] = '\0';
  const char* const last = std::strrchr(target, '/');
  return last != nullptr ? std::atoi(last + 1) : 0;
}

// Keeps only the descriptors `kept` (ascending), in a table of this thread's own: the program may
// close what it does not know, and what it closes is not held open here.
void keep_descriptors(const int (&kept)[2]) {
  constexpr unsigned kUnshare = 2;  // CLOSE_RANGE_UNSHARE, Linux 5.9
  unsigned from = 0;
  for (const int one : kept) {
    const auto number = static_cast<unsigned>(one);
    if (number > from) (void)::syscall(SYS_close_range, from, number - 1, kUnshare);
    from = number + 1;
  }
  (void)::syscall(SYS_close_range, from, ~0u, kUnshare);
}

}  // namespace

bool Watch::start(const base::Fd& device) {
  if (tried_) return events_.valid() && is_trusted();
  tried_ = true;
  constexpr int kFlags = O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY;
  base::Fd events(static_cast<int>(::syscall(SYS_userfaultfd, kFlags)));
  if (!events.valid() && device.valid())
    events = base::Fd(::ioctl(device.get(), USERFAULTFD_IOC_NEW, kFlags));
  if (!events.valid()) return false;
  uffdio_api api{};
  api.api = UFFD_API;
  api.features = UFFD_FEATURE_EVENT_REMAP | UFFD_FEATURE_EVENT_REMOVE | UFFD_FEATURE_EVENT_UNMAP |
                 UFFD_FEATURE_WP_HUGETLBFS_SHMEM;
  if (::ioctl(events.get(), UFFDIO_API, &api) != 0) return false;
  const int self = number_in_proc();
  has_clocks_ = self == static_cast<int>(::syscall(SYS_gettid));
  if (self == 0 || (!has_clocks_ && ::access("/proc/thread-self/schedstat", R_OK) != 0))
    return false;
  // Nothing beside the stack is in the same mapping, so that no conversion includes it.
  auto* const stack = static_cast<uint8_t*>(
      raw::mmap(nullptr, kStack + 2 * kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  if (stack == MAP_FAILED) return false;
  if (raw::mprotect(stack + kPage, kStack, PROT_READ | PROT_WRITE) != 0) {
    raw::munmap(stack, kStack + 2 * kPage);
    return false;
  }
  events_ = std::move(events);
  events_of_thread_ = events_.get();
  pthread_attr_t attributes;
  ::pthread_attr_init(&attributes);
  ::pthread_attr_setstack(&attributes, stack + kPage, kStack);
  ::pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  int error = 0;
  {
    const SignalsBlocked inherited;
    pthread_t thread;
    error = ::pthread_create(
        &thread, &attributes,
        [](void* watch) -> void* {
          static_cast<Watch*>(watch)->run();
          return nullptr;
        },
        this);
  }
  ::pthread_attr_destroy(&attributes);
  if (error != 0) raw::munmap(stack, kStack + 2 * kPage);
  if (error == 0 && test()) return true;
  events_.reset();  // the watcher has a descriptor of its own
  return false;
}

bool Watch::cover(uint64_t start, uint64_t end) {
  uffdio_register reg{};
  reg.range = {start, end - start};
  reg.mode = UFFDIO_REGISTER_MODE_WP;
  return ::ioctl(events_.get(), UFFDIO_REGISTER, &reg) == 0;
}

void Watch::uncover(uint64_t start, uint64_t end) const {
  const uffdio_range range{start, end - start};
  (void)::ioctl(events_.get(), UFFDIO_UNREGISTER, &range);
}

bool Watch::is_alone_with() const {
  struct stat tasks {};
  return events_.valid() && ::stat("/proc/self/task", &tasks) == 0 && tasks.st_nlink == 2 + 2;
}

void Watch::forget() {
  events_.reset();
  tried_ = false;
  blind_ = false;
}

// Whether the kernel tells what is needed, tried on a page that nobody else knows.
bool Watch::test() {
  void* const page =
      raw::mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return false;
  const auto start = reinterpret_cast<uint64_t>(page);
  bool passed = false;
  if (raw::mmap(page, kPage, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, arena_.file().get(),
                static_cast<off_t>(start)) != MAP_FAILED) {
    auto* const byte = static_cast<volatile uint8_t*>(page);
    *byte = 1;
    passed =
        cover(start, start + kPage) && raw::madvise(page, kPage, MADV_DONTNEED) == 0 && *byte == 0;
  }
  raw::munmap(page, kPage);
  return passed && is_trusted();
}

void Watch::run() {
  (void)::prctl(PR_SET_NAME, "vrdma-memory");
  thread_ = number_in_proc();
  const int events = events_of_thread_;
  const int arena = arena_.file().get();
  keep_descriptors({std::min(arena, events), std::max(arena, events)});
  for (;;) {
    pollfd ready{events, POLLIN, 0};
    if (::poll(&ready, 1, -1) < 0 && errno != EINTR) break;
    if ((ready.revents & ~POLLIN) != 0) break;
    if ((ready.revents & POLLIN) != 0) serve(events);
  }
  blind_ = true;
}

void Watch::serve(int events) {
  constexpr int kTries = 200;
  constexpr timespec kNap{0, 100'000};
  uint32_t callers = 0;
  for (int tries = 0; tries < kTries && callers == 0; ++tries) {
    if (tries > 0) ::nanosleep(&kNap, nullptr);
    if (!each_caller([&](const Caller&) { ++callers; })) callers = 0;
  }
  if (callers == 0) {
    // Not a thread of this process that sleeps in a system call: a worker of io_uring. What it did
    // is corrected when it is known, which is too late to be certain.
    blind_ = true;
    uffd_msg message;
    if (::read(events, &message, sizeof message) != sizeof message) return;
    const std::lock_guard lock(exchange_);
    if (message.event == UFFD_EVENT_REMAP)
      correct_remap({SYS_mremap,
                     {message.arg.remap.from, message.arg.remap.len, message.arg.remap.len, 0,
                      message.arg.remap.to, 0}});
    else
      clear(message.arg.remove.start, message.arg.remove.end, message.event == UFFD_EVENT_REMOVE);
    return;
  }
  settle_ = false;
  {
    const std::lock_guard lock(exchange_);
    (void)each_caller([&](const Caller& caller) { correct(caller); });
  }
  for (; callers > 0; --callers) {
    uffd_msg message;
    if (::read(events, &message, sizeof message) != sizeof message) return;
  }
  pollfd more{events, POLLIN, 0};
  settle_ = ::poll(&more, 1, 0) != 0;
}

// False: /proc does not say.
template <class Found>
bool Watch::each_caller(Found found) const {
  const base::Fd folder(::open("/proc/self/task", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder.valid()) return false;
  alignas(8) char entries[4096];
  for (;;) {
    const long length = ::syscall(SYS_getdents64, folder.get(), entries, sizeof entries);
    if (length <= 0) return length == 0;
    for (long at = 0; at < length;) {
      const auto* const entry = reinterpret_cast<const dirent64*>(entries + at);
      at += entry->d_reclen;
      const int thread = std::atoi(entry->d_name);
      Caller caller;
      if (thread > 0 && thread != thread_ && is_caller(folder.get(), entry->d_name, &caller))
        found(caller);
    }
  }
}

bool Watch::is_caller(int folder, const char* thread, Caller* caller) const {
  constexpr int kTries = 100;
  constexpr char kSleepsIn[] = "userfaultfd_event_wait";
  constexpr int64_t kEnough = 100'000;  // ns; one that was woken needs a few thousand
  constexpr timespec kNap{0, 20'000};
  char name[64], text[256];
  int64_t had = -1;  // processor time
  for (int tries = 0; tries < kTries;) {
    name_of(thread, "/wchan", name);
    if (read_text(folder, name, text, sizeof text) <= 0) return false;  // it has ended
    const bool unknown = std::strcmp(text, "0") == 0;
    if (!unknown && std::strncmp(text, kSleepsIn, sizeof kSleepsIn - 1) != 0) return false;
    name_of(thread, "/syscall", name);
    if (read_text(folder, name, text, sizeof text) <= 0) return false;
    if (text[0] == 'r') {  // "running"
      const int64_t has = settle_ ? processor_time_of(folder, thread, has_clocks_) : -1;
      if (has < 0 || (had >= 0 && has - had > kEnough)) return false;
      if (had < 0) had = has;
      ::nanosleep(&kNap, nullptr);
      continue;
    }
    if (!unknown) break;
    // It has left the running state, and is about to leave the processor.
    ::sched_yield();
    if (++tries == kTries) return false;
  }
  char* at = text;
  caller->number = std::strtol(at, &at, 10);
  for (uint64_t& arg : caller->args) arg = std::strtoull(at, &at, 16);
  return true;
}

void Watch::correct(const Caller& caller) {
  const uint64_t start = caller.args[0], end = page_up(start + caller.args[1]);
  switch (caller.number) {
    case SYS_madvise:
      return correct_advice(start, end, static_cast<int>(caller.args[2]));
    case SYS_process_madvise:
      return correct_advice_list(caller);
    case SYS_mremap:
      return correct_remap(caller);
    case SYS_munmap:
    case SYS_mmap:
      return clear(start, end, false);
    default:
      return clear(0, UINT64_MAX, false);
  }
}

void Watch::correct_advice(uint64_t start, uint64_t end, int advice) {
  if (advice == MADV_DONTNEED || advice == kDontNeedLocked) clear(start, end, true);
}

void Watch::correct_advice_list(const Caller& caller) {
  for (uint64_t i = 0; i < caller.args[2]; ++i) {
    iovec entry{};
    const iovec here{&entry, sizeof entry};
    const iovec there{reinterpret_cast<void*>(caller.args[1] + i * sizeof entry), sizeof entry};
    if (::process_vm_readv(::getpid(), &here, 1, &there, 1, 0) != sizeof entry) {
      blind_ = true;
      return;
    }
    const auto start = reinterpret_cast<uint64_t>(entry.iov_base);
    correct_advice(start, page_up(start + entry.iov_len), static_cast<int>(caller.args[3]));
  }
}

// The caller has moved [args[0], + args[1]), and sleeps before it learns where to. Nobody else
// knows the new address.
void Watch::correct_remap(const Caller& caller) {
  struct Moved {
    Watch* watch;
    uint64_t start, end;  // what it left
    bool corrected = true;
  };
  const uint64_t start = caller.args[0];
  Moved moved{this, start, page_up(start + caller.args[1])};
  const SeeMapped correct_one = [](const Mapped& one, void* with) {
    auto& all = *static_cast<Moved*>(with);
    Watch& watch = *all.watch;
    if (!watch.arena_.is_in(one) || watch.arena_.is_home(one)) return;
    if (one.offset < all.start || one.offset >= std::max(all.end, all.start + 1)) return;
    if (!is_memory_of_program(one)) return;
    const uint64_t genuine = std::min(all.end - one.offset, one.end - one.start);
    all.corrected = watch.make_private(one, genuine) && all.corrected;
  };
  if (!visit_shared_files(correct_one, &moved) || !moved.corrected) return;
  const bool stays = (caller.args[3] & MREMAP_DONTUNMAP) != 0;
  clear(moved.start, moved.end, stays);
  if ((caller.args[3] & MREMAP_FIXED) != 0)
    clear(caller.args[4], page_up(caller.args[4] + caller.args[2]), false);
}

// The first bytes of what was moved are kept, `genuine` in number.
bool Watch::make_private(const Mapped& moved, uint64_t genuine) {
  void* const copy = arena_.copy_of(moved, genuine);
  if (copy == nullptr) return false;
  // Else the watcher's own call would wait for the watcher.
  const uffdio_range range{moved.start, moved.end - moved.start};
  if (::ioctl(events_of_thread_, UFFDIO_UNREGISTER, &range) == 0) return replace(moved, copy);
  raw::munmap(copy, range.len);
  return false;
}

void Watch::clear(uint64_t start, uint64_t end, bool mapped_too) {
  constexpr uint64_t kLast = INT64_MAX;
  uint64_t at = page_down(start);
  while (at < std::min(end, kLast)) {
    const off_t data = ::lseek(arena_.file().get(), static_cast<off_t>(at), SEEK_DATA);
    if (data < 0 || static_cast<uint64_t>(data) >= end) return;
    const off_t hole = ::lseek(arena_.file().get(), data, SEEK_HOLE);
    at = hole < 0 ? end : std::min(end, static_cast<uint64_t>(hole));
    clear_data(static_cast<uint64_t>(data), at, mapped_too);
  }
}

void Watch::clear_data(uint64_t start, uint64_t end, bool mapped_too) {
  if (mapped_too) return arena_.punch(start, end);
  struct Left {
    const Arena* arena;
    uint64_t at;
    bool blocked = false;
  };
  const auto free_gap = [](Left& left, uint64_t gap_end) {
    if (left.at >= gap_end) return true;
    // Nobody may map or grow into the gap while it is cleared.
    auto* const gap = reinterpret_cast<void*>(left.at);
    const size_t size = gap_end - left.at;
    if (raw::mmap(gap, size, PROT_NONE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1,
                  0) == MAP_FAILED)
      return false;
    left.arena->punch(left.at, gap_end);
    raw::munmap(gap, size);
    return true;
  };
  for (int tries = 0; tries < 100; ++tries) {
    struct Visit {
      Left left;
      decltype(free_gap)* free;
    } visit{{&arena_, start}, &free_gap};
    const SeeMapped see = [](const Mapped& one, void* with) {
      auto& [left, free] = *static_cast<Visit*>(with);
      if (left.blocked) return;
      if (one.start > left.at && !(*free)(left, one.start)) {
        left.blocked = true;
        return;
      }
      if (!left.arena->is_home(one)) left.arena->punch(std::max(left.at, one.start), one.end);
      left.at = one.end;
    };
    if (!visit_mappings(start, end, see, &visit)) return;
    if (!visit.left.blocked && free_gap(visit.left, end)) return;
  }
}

}  // namespace vrdma::client
