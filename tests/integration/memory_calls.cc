// A random test of memory that is, was or becomes registered, against a model, for memory_calls.sh:
//
//   memory_calls VDEVICE GID_INDEX SEED SECONDS THREADS [adapter]
//
// Each thread has two windows of pages, beside those of the other threads. It does the same to
// both: system calls, stores, forks. On the one it also registers and deregisters ranges, and a
// peer (a queue pair of the same process) writes, reads and does atomics there. The other is plain
// memory: the kernel is the model. After each step both windows have the same bytes. A call may
// fail on registered memory where it does not on plain memory; then it is not made on the model. It
// prints how often each call met each state of its range, and with one thread fails if one
// combination was never tried. `adapter`: the device pins the pages of a region, as an adapter and
// rxe do; after DONTNEED the region has the old ones, and the program new ones.
#include <infiniband/verbs.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "tests/integration/memory_calls_peer.h"
#include "tests/integration/open_device.h"

namespace memory_calls {
namespace {

using Clock = std::chrono::steady_clock;
constexpr int kDontNeedLocked = 24, kProcessMadvise = 440, kDontUnmap = 4;

enum Call : unsigned {
  kStore,
  kKernelStore,
  kRegister,
  kDeregister,
  kPeerWrite,
  kPeerRead,
  kPeerAtomic,
  kDontNeed,
  kDontNeedLockedCall,
  kDontNeedByList,
  kFree,
  kCold,
  kPageOut,
  kMove,
  kMoveAnywhere,
  kGrow,
  kShrinkAndGrow,
  kLeaveMapped,
  kAlias,
  kReplace,
  kUnmapAndGrow,
  kProtect,
  kLock,
  kFork,
  kSystemCallFork,
  kCalls
};
constexpr std::array<const char*, kCalls> kNames{"store",
                                                 "read(2)",
                                                 "register",
                                                 "deregister",
                                                 "peer's write",
                                                 "peer's read",
                                                 "peer's atomic",
                                                 "DONTNEED",
                                                 "DONTNEED_LOCKED",
                                                 "process_madvise",
                                                 "FREE",
                                                 "COLD",
                                                 "PAGEOUT",
                                                 "mremap FIXED",
                                                 "mremap MAYMOVE",
                                                 "mremap grows",
                                                 "mremap shrinks, grows",
                                                 "DONTUNMAP",
                                                 "mremap size 0",
                                                 "mmap FIXED",
                                                 "munmap, neighbour grows",
                                                 "mprotect",
                                                 "mlock",
                                                 "fork",
                                                 "clone"};

enum State : unsigned { kNever, kOnce, kTwice, kPartly, kFormerly, kMoved, kStates };
constexpr std::array<const char*, kStates> kStateNames{"never",  "once",     "twice",
                                                       "partly", "formerly", "moved"};
std::array<std::array<std::atomic<uint64_t>, kStates>, kCalls> table;

std::mutex moving, forking;
bool device_pins = false;

struct Range {
  size_t first, count;  // pages
  [[nodiscard]] size_t at() const { return first * kPage; }
  [[nodiscard]] size_t size() const { return count * kPage; }
  [[nodiscard]] size_t past() const { return first + count; }
};

struct Mr {
  ibv_mr* ibv;
  Range range;
  bool stale = false;  // its key names pages that are not there any more
};

// Windows side by side in one mapping, as the allocations of several threads are, with inaccessible
// pages around them.
uint8_t* make_windows(unsigned count) {
  auto* const all = static_cast<uint8_t*>(
      ::mmap(nullptr, count * kWindow + 2 * kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  if (all == MAP_FAILED) die("mmap");
  return map(all + kPage, count * kWindow);
}

class Pair {
 public:
  Pair(ibv_context* context, ibv_pd* pd, int gid_index, uint64_t seed, unsigned number,
       uint8_t* ours, uint8_t* model)
      : pd_(pd),
        peer_(context, pd, gid_index),
        random_(seed * 1000 + number),
        number_(number),
        ours_(ours + number * kWindow),
        model_(model + number * kWindow) {
    if (::pipe(pipe_) != 0) die("pipe");
  }

  void step() {
    if (++number_of_steps_ % 50 == 0) begin_anew();
    const auto call = static_cast<Call>(below(kCalls));
    Range range = any();
    if (call >= kPeerWrite && call <= kPeerAtomic) {
      if (mrs_.empty()) return;
      range = mrs_[below(mrs_.size())].range;
    }
    const State state = state_of(range);
    note(call, range, state);
    {
      // Of two threads one would map pages where the other has just unmapped some.
      const bool moves = call >= kMove && call <= kUnmapAndGrow && call != kReplace;
      std::unique_lock<std::mutex> lock(moving, std::defer_lock);
      if (moves) lock.lock();
      if (!run(call, range)) return;
      mend();
    }
    ++table[call][state];
    compare();
  }

 private:
  // In memory that nobody has registered yet.
  void begin_anew() {
    while (!mrs_.empty()) drop(0);
    for (uint8_t* base : {ours_, model_}) map(base, kWindow);
    was_ = moved_ = {};
    steps_.clear();
  }
  size_t below(size_t most) { return std::uniform_int_distribution<size_t>(0, most - 1)(random_); }
  Range any() {
    // Often such as a registered one, whole.
    if (!mrs_.empty() && below(3) == 0) return mrs_[below(mrs_.size())].range;
    const size_t first = below(kPages - 1);
    return {first, 1 + below(std::min<size_t>(kPages - first, 12))};
  }

  State state_of(const Range& range) const {
    size_t registered = 0;
    unsigned most = 0;
    bool was = false, moved = false;
    for (size_t page = range.first; page < range.past(); ++page) {
      unsigned count = 0;
      for (const Mr& mr : mrs_)
        if (mr.range.first <= page && page < mr.range.past()) ++count;
      registered += count > 0 ? 1 : 0;
      most = std::max(most, count);
      was = was || was_[page];
      moved = moved || (count == 0 && moved_[page]);
    }
    if (moved) return kMoved;
    if (registered == 0) return was ? kFormerly : kNever;
    if (registered < range.count) return kPartly;
    return most > 1 ? kTwice : kOnce;
  }

  // Their keys name what was there, or nothing; the peer does not use them.
  void forget_keys(const Range& range) {
    for (Mr& mr : mrs_)
      if (mr.range.first < range.past() && range.first < mr.range.past()) mr.stale = true;
  }

  void fill(uint8_t* to, size_t size) {
    const uint64_t value = random_() | 1;
    for (size_t i = 0; i + 8 <= size; i += 8) {
      const uint64_t word = value * (i + 1);
      std::memcpy(to + i, &word, 8);
    }
  }

  // The same call on both, ours first. False: ours failed, and nothing was done.
  bool both(const std::function<long(uint8_t*)>& call, const char* what) {
    if (call(ours_) < 0) return false;
    if (call(model_) < 0) die(what);
    return true;
  }
  bool advise(const Range& range, int advice) {
    return both([&](uint8_t* base) { return ::madvise(base + range.at(), range.size(), advice); },
                "madvise");
  }

  bool run(Call call, Range range) {
    const size_t at = range.at(), size = range.size();
    switch (call) {
      case kStore: {
        fill(ours_ + at, size);
        std::memcpy(model_ + at, ours_ + at, size);
        return true;
      }
      case kKernelStore: {
        std::array<uint8_t, 2000> bytes{};
        fill(bytes.data(), bytes.size());
        const size_t where = at + below(size - bytes.size());
        for (uint8_t* base : {ours_, model_}) {
          if (::write(pipe_[1], bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size()))
            die("write");
          if (::read(pipe_[0], base + where, bytes.size()) != static_cast<ssize_t>(bytes.size()))
            die("read");
        }
        return true;
      }
      case kRegister: {
        if (mrs_.size() >= 8) drop(below(mrs_.size()));
        ibv_mr* const mr = ibv_reg_mr(pd_, ours_ + at, size, kAccess);
        if (mr == nullptr) die("ibv_reg_mr");
        mrs_.push_back({mr, range});
        for (size_t page = range.first; page < range.past(); ++page)
          was_[page] = true, moved_[page] = false;
        return true;
      }
      case kDeregister:
        if (mrs_.empty()) return false;
        drop(below(mrs_.size()));
        return true;
      case kPeerWrite:
      case kPeerRead:
      case kPeerAtomic:
        return peer(call, range);
      case kDontNeed:
      case kDontNeedLockedCall:
        if (device_pins) forget_keys(range);
        return advise(range, call == kDontNeed ? MADV_DONTNEED : kDontNeedLocked);
      case kDontNeedByList: {
        if (device_pins) forget_keys(range);
        const int self = static_cast<int>(::syscall(SYS_pidfd_open, ::getpid(), 0));
        const auto call_one = [&](uint8_t* base) {
          const iovec list[2] = {{base + at, kPage}, {base + at, size}};
          return ::syscall(kProcessMadvise, self, list, 2, MADV_DONTNEED, 0);
        };
        const bool done = both(call_one, "process_madvise");
        ::close(self);
        return done;
      }
      case kFree: {
        // Old bytes or zeroes: until something is stored.
        const bool done = ::madvise(ours_ + at, size, MADV_FREE) == 0;
        fill(ours_ + at, size);
        std::memcpy(model_ + at, ours_ + at, size);
        return done || errno == EINVAL;
      }
      case kCold:
        return advise(range, MADV_COLD);
      case kPageOut:
        return advise(range, MADV_PAGEOUT);
      case kMove: {
        Range to{below(kPages - range.count + 1), range.count};
        if (to.first < range.past() && range.first < to.past()) return false;
        forget_keys(range);
        forget_keys(to);
        for (size_t i = 0; i < range.count; ++i) moved_[to.first + i] = true;
        const auto move = [&](uint8_t* base) {
          return remap(base + at, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, base + to.at()) == 0;
        };
        if (move(ours_) && move(model_)) return true;
        // Across mappings, of which the kernel has more in one window than in the other: the target
        // has been unmapped, and since Linux 6.17 a part may have moved.
        for (uint8_t* base : {ours_, model_}) {
          map(base + at, size);
          map(base + to.at(), size);
        }
        return true;
      }
      case kMoveAnywhere:
      case kGrow:
        return grow(range, call == kGrow ? size + kPage * (1 + below(6)) : size);
      case kShrinkAndGrow: {
        if (range.count < 2) return false;
        const size_t less = kPage * (1 + below(range.count - 1));
        forget_keys(range);
        if (!both([&](uint8_t* base) { return remap(base + at, size, less, 0, nullptr); },
                  "mremap"))
          return false;
        unmapped_.push_back({range.first + less / kPage, (size - less) / kPage});
        return grow({range.first, less / kPage}, size);
      }
      case kLeaveMapped:
        return leave_mapped(range);
      case kAlias: {
        // Plain memory refuses it. If ours does not, the result has nothing to do with the range.
        void* const other = ::mremap(ours_ + at, 0, size, MREMAP_MAYMOVE);
        if (other == MAP_FAILED) return true;
        std::memset(other, 0xee, size);
        ::munmap(other, size);
        return true;
      }
      case kReplace:
        forget_keys(range);
        for (uint8_t* base : {ours_, model_}) map(base + at, size);
        return true;
      case kUnmapAndGrow: {
        if (range.count < 2) return false;
        const size_t half = range.count / 2;
        forget_keys(range);
        const Range gone{range.first + half, range.count - half};
        for (uint8_t* base : {ours_, model_})
          if (::munmap(base + gone.at(), gone.size()) != 0) die("munmap");
        unmapped_.push_back(gone);
        return grow({range.first, half}, size);
      }
      case kProtect: {
        const auto protect = [&](int prot) {
          return both([&](uint8_t* base) { return ::mprotect(base + at, size, prot); }, "mprotect");
        };
        if (!protect(PROT_READ)) return false;
        compare();
        return protect(PROT_READ | PROT_WRITE);
      }
      case kLock: {
        if (!both([&](uint8_t* base) { return ::mlock(base + at, size); }, "mlock")) return false;
        compare();
        return both([&](uint8_t* base) { return ::munlock(base + at, size); }, "munlock");
      }
      case kFork:
      case kSystemCallFork:
        return spawn(call, range);
      default:
        return false;
    }
  }

  static long remap(uint8_t* at, size_t size, size_t to_size, int flags, uint8_t* to) {
    return ::mremap(at, size, to_size, flags, to) == MAP_FAILED ? -1 : 0;
  }

  // Grows or moves to where the kernel likes; what left the window is compared and unmapped.
  bool grow(const Range& range, size_t size) {
    const size_t at = range.at();
    forget_keys(range);
    const auto remap_one = [&](uint8_t* base) {
      return static_cast<uint8_t*>(::mremap(base + at, range.size(), size, MREMAP_MAYMOVE));
    };
    auto* const model = remap_one(model_);
    if (model == MAP_FAILED) return true;  // across mappings
    auto* const ours = remap_one(ours_);
    if (ours == MAP_FAILED) {
      ::munmap(model, size);
      std::memcpy(map(model_ + at, range.size()), ours_ + at, range.size());
      return true;
    }
    if (std::memcmp(ours, model, size) != 0) wrong("what mremap moved", ours, model, size);
    std::memset(ours, 0x5a, size);
    compare_around(range);
    ::munmap(ours, size);
    ::munmap(model, size);
    for (uint8_t* base : {ours_, model_}) map(base + at, range.size());
    return true;
  }
  // The rest of the window has not changed; `range` and what is behind it may be anything.
  void compare_around(const Range& range) {
    check(0, range.at());
    size_t from = std::max(range.past(), unmapped_.empty() ? 0 : unmapped_.back().past());
    check(from * kPage, kWindow - from * kPage);
  }

  bool leave_mapped(const Range& range) {
    uint8_t* moved[2] = {};
    uint8_t* const bases[2] = {ours_, model_};
    forget_keys(range);
    for (int i = 0; i < 2; ++i) {
      moved[i] = map(nullptr, range.size());
      if (remap(bases[i] + range.at(), range.size(), range.size(),
                MREMAP_MAYMOVE | MREMAP_FIXED | kDontUnmap, moved[i]) == 0)
        continue;
      // As above.
      map(moved[i], range.size());
      for (uint8_t* one : moved)
        if (one != nullptr) ::munmap(one, range.size());
      for (uint8_t* base : bases) map(base + range.at(), range.size());
      return true;
    }
    if (std::memcmp(moved[0], moved[1], range.size()) != 0)
      wrong("what DONTUNMAP moved", moved[0], moved[1], range.size());
    std::memset(moved[0], 0x5b, range.size());
    for (uint8_t* one : moved) ::munmap(one, range.size());
    return true;
  }

  bool peer(Call call, const Range& range) {
    for (const Mr& mr : mrs_) {
      if (mr.stale || mr.range.first != range.first || mr.range.count != range.count) continue;
      const size_t offset = below(range.size() - 8) / 8 * 8;
      const size_t at = range.at() + offset;
      const size_t size =
          call == kPeerAtomic ? 8 : 1 + below(std::min<size_t>(range.size() - offset, 20'000));
      if (call == kPeerWrite) {
        fill(peer_.buffer(), size);
        peer_.request(IBV_WR_RDMA_WRITE, ours_ + at, size, mr.ibv->rkey);
        std::memcpy(model_ + at, peer_.buffer(), size);
      } else if (call == kPeerRead) {
        peer_.request(IBV_WR_RDMA_READ, ours_ + at, size, mr.ibv->rkey);
        if (std::memcmp(peer_.buffer(), model_ + at, size) != 0)
          wrong("what the peer read", peer_.buffer(), model_ + at, size);
      } else {
        peer_.request(IBV_WR_ATOMIC_FETCH_AND_ADD, ours_ + at, 8, mr.ibv->rkey);
        uint64_t word = 0;
        std::memcpy(&word, model_ + at, 8);
        ++word;
        std::memcpy(model_ + at, &word, 8);
      }
      return true;
    }
    return false;
  }

  bool spawn(Call call, const Range& range) {
    // While the library's handlers of fork(3) run, the child of another clone(2) has the pages.
    const std::lock_guard<std::mutex> lock(forking);
    const pid_t pid =
        call == kFork ? ::fork() : static_cast<pid_t>(::syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0));
    if (pid < 0) die("fork");
    if (pid == 0) {
      if (call == kFork && std::memcmp(ours_, model_, kWindow) != 0) ::_exit(1);
      std::memset(ours_ + range.at(), 0x77, range.size());
      ::_exit(0);
    }
    int status = 0;
    if (::waitpid(pid, &status, 0) != pid) die("waitpid");
    const bool died = WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV;
    if (status != 0 && (call == kFork || !died)) {
      std::fprintf(stderr, "FAILED: a child ended with status %x%s\n", status, history().c_str());
      std::_Exit(1);
    }
    return true;
  }

  void drop(size_t which) {
    if (ibv_dereg_mr(mrs_[which].ibv) != 0) die("ibv_dereg_mr");
    mrs_.erase(mrs_.begin() + static_cast<ptrdiff_t>(which));
  }

  // Maps new pages where the window has none.
  void mend() {
    for (uint8_t* base : {ours_, model_})
      for (size_t page = 0; page < kPages; ++page) {
        void* const at = base + page * kPage;
        if (::mmap(at, kPage, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) == MAP_FAILED &&
            errno != EEXIST)
          die("mmap");
      }
    unmapped_.clear();
  }

  void compare() { check(0, kWindow); }
  void check(size_t at, size_t size) {
    if (std::memcmp(ours_ + at, model_ + at, size) != 0)
      wrong("the window", ours_ + at, model_ + at, size);
  }
  [[noreturn]] void wrong(const char* what, const uint8_t* ours, const uint8_t* model,
                          size_t size) {
    size_t count = 0, first = size;
    for (size_t i = 0; i < size; ++i)
      if (ours[i] != model[i]) first = std::min(first, i), ++count;
    std::fprintf(stderr,
                 "FAILED: thread %u: %s: %zu bytes of %zu are wrong, the first at %zu (page %zu of "
                 "the window): %02x, not %02x%s\n",
                 number_, what, count, size, first,
                 static_cast<size_t>(ours + first - ours_) / kPage, ours[first], model[first],
                 history().c_str());
    std::_Exit(1);
  }

  void note(Call call, const Range& range, State state) {
    char line[100];
    std::snprintf(line, sizeof line, "\n  %s, pages %zu to %zu (%s)", kNames[call], range.first,
                  range.past() - 1, kStateNames[state]);
    steps_.emplace_back(line);
    if (steps_.size() > 24) steps_.erase(steps_.begin());
  }
  [[nodiscard]] std::string history() const {
    std::string all;
    for (const std::string& one : steps_) all += one;
    return all;
  }

  ibv_pd* pd_;
  Peer peer_;
  std::mt19937_64 random_;
  unsigned number_;
  uint8_t* ours_;
  uint8_t* model_;
  int pipe_[2] = {-1, -1};
  std::vector<Mr> mrs_;
  std::array<bool, kPages> was_{}, moved_{};
  std::vector<Range> unmapped_;
  std::vector<std::string> steps_;
  uint64_t number_of_steps_ = 0;
};

// Linux 6.13 and later permit it to a process on itself.
bool kernel_has_process_madvise() {
  uint8_t* const page = map(nullptr, kPage);
  const iovec list{page, kPage};
  const int self = static_cast<int>(::syscall(SYS_pidfd_open, ::getpid(), 0));
  const bool has = ::syscall(kProcessMadvise, self, &list, 1, MADV_DONTNEED, 0) >= 0;
  ::close(self);
  ::munmap(page, kPage);
  return has;
}

// False: a combination was never tried.
bool print_table() {
  bool all = true;
  const bool has_list = kernel_has_process_madvise();
  std::printf("%-24s", "");
  for (const char* state : kStateNames) std::printf("%10s", state);
  std::printf("\n");
  for (unsigned call = 0; call < kCalls; ++call) {
    std::printf("%-24s", kNames[call]);
    for (unsigned state = 0; state < kStates; ++state) {
      const uint64_t count = table[call][state].load();
      // A peer has keys of what is registered now, and of nothing that was moved since.
      const bool possible =
          (call < kPeerWrite || call > kPeerAtomic ||
           (state != kNever && state != kFormerly && state != kMoved && state != kPartly)) &&
          (call != kDontNeedByList || has_list);
      if (possible && call != kDeregister && count == 0) all = false;
      std::printf("%10s", possible ? std::to_string(count).c_str() : "-");
    }
    std::printf("\n");
  }
  return all;
}

}  // namespace
}  // namespace memory_calls

int main(int argc, char** argv) {
  using namespace memory_calls;
  if (argc != 6 && argc != 7) return 2;
  device_pins = argc == 7;
  const uint64_t seed = std::strtoull(argv[3], nullptr, 0);
  const double seconds = std::atof(argv[4]);
  const auto threads = static_cast<unsigned>(std::atoi(argv[5]));
  ibv_context* const context = open_device(argv[1]);
  ibv_pd* const pd = context != nullptr ? ibv_alloc_pd(context) : nullptr;
  if (pd == nullptr) die("open the vdevice");
  const auto end = Clock::now() + std::chrono::duration<double>(seconds);
  uint8_t* const ours = make_windows(threads);
  uint8_t* const model = make_windows(threads);
  const auto run = [&](unsigned number) {
    Pair pair(context, pd, std::atoi(argv[2]), seed, number, ours, model);
    while (Clock::now() < end) pair.step();
  };
  std::vector<std::thread> others;
  for (unsigned i = 1; i < threads; ++i) others.emplace_back(run, i);
  run(0);
  for (auto& thread : others) thread.join();
  if (print_table() || threads > 1) return 0;
  std::fprintf(stderr, "FAILED: a combination was never tried\n");
  return 1;
}
