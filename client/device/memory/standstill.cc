#include "client/device/memory/standstill.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "client/device/memory/raw_memory.h"
#include "client/device/session.h"

namespace vrdma::client {

using base::Fd;
using ipc::HoldPhase;
using ipc::Reached;

Spare::~Spare() {
  if (copy_ != nullptr) ::munmap(copy_, 2 * kMost);
  leave();
}

bool Spare::make() {
  if (size_ != 0) return true;
  if (copy_ == nullptr) {
    void* const made = ::mmap(nullptr, 2 * kMost, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (made == MAP_FAILED) return false;
    copy_ = static_cast<uint8_t*>(made);
  }
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) return false;
  out_ = Fd(ends[0]);
  in_ = Fd(ends[1]);
  nowhere_ = Fd(::open("/dev/null", O_WRONLY | O_CLOEXEC));
  // Each page takes a slot of the pipe, however little of it is used.
  (void)::fcntl(in_.get(), F_SETPIPE_SZ, static_cast<int>(kMost));
  const int room = ::fcntl(in_.get(), F_GETPIPE_SZ);
  if (!nowhere_.valid() || room < 4096) {
    leave();
    return false;
  }
  size_ = static_cast<uint64_t>(room) < kMost ? static_cast<uint64_t>(room) : kMost;
  if (keep(reinterpret_cast<uint64_t>(copy_), 4096)) {
    forget(4096);
    return true;
  }
  leave();
  return make_aside();
}

bool Spare::make_aside() {
  void* const made =
      raw::mmap(nullptr, kStep, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (made == MAP_FAILED) return false;
  aside_ = static_cast<uint8_t*>(made);
  size_ = kMost;
  return true;
}

void Spare::leave() {
  if (aside_ != nullptr) raw::munmap(aside_, kStep);
  aside_ = nullptr;
  in_.reset();
  out_.reset();
  nowhere_.reset();
  size_ = 0;
}

bool Spare::keep(uint64_t start, uint64_t length) {
  if (aside_ != nullptr) return true;
  uint64_t done = 0;
  while (done < length) {
    const iovec rest{reinterpret_cast<void*>(start + done), length - done};
    const long count =
        ::syscall(SYS_vmsplice, in_.get(), &rest, 1ul, static_cast<unsigned>(SPLICE_F_NONBLOCK));
    if (count <= 0) {
      forget(done);
      return false;
    }
    done += static_cast<uint64_t>(count);
  }
  return true;
}

// Only pages of one mapping. On EFAULT the kernel has unmapped the target first, so it is mapped
// again.
bool Spare::move_aside(uint64_t at, uint64_t length) {
  if (raw::mremap(reinterpret_cast<void*>(at), length, length, MREMAP_MAYMOVE | MREMAP_FIXED,
                  aside_) != MAP_FAILED)
    return true;
  if (errno == EFAULT &&
      raw::mmap(aside_, kStep, PROT_NONE,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1,
                0) == MAP_FAILED) {
    aside_ = nullptr;
    size_ = 0;
  }
  return false;
}

uint64_t Spare::exchange(uint64_t at, uint64_t most, int prot, const Fd& file, uint64_t offset) {
  uint64_t length = most;
  if (aside_ != nullptr && !move_aside(at, length)) {
    length = 4096;
    if (aside_ == nullptr || most == length || !move_aside(at, length)) return 0;
  }
  auto* const memory = reinterpret_cast<void*>(at);
  if (raw::mmap(memory, length, prot, MAP_SHARED | MAP_FIXED, file.get(),
                static_cast<off_t>(offset)) != MAP_FAILED)
    return length;
  if (aside_ != nullptr) {
    // The address range of aside_ is unmapped and no longer ours.
    (void)raw::mremap(std::exchange(aside_, nullptr), length, length, MREMAP_MAYMOVE | MREMAP_FIXED,
                      memory);
    size_ = 0;
  }
  return 0;
}

void Spare::forget(uint64_t length) {
  if (aside_ != nullptr) return;
  while (length > 0) {
    const long count = ::syscall(SYS_splice, out_.get(), nullptr, nowhere_.get(), nullptr, length,
                                 static_cast<unsigned>(SPLICE_F_NONBLOCK));
    if (count <= 0) return leave();  // closing the pipe forgets its contents too
    length -= static_cast<uint64_t>(count);
  }
}

bool Spare::recall(uint8_t* out, uint64_t length) {
  if (aside_ != nullptr) {
    copy_pages(out, aside_, length);
    return true;
  }
  uint64_t done = 0;
  while (done < length) {
    const long count = ::syscall(SYS_read, out_.get(), out + done, length - done);
    if (count <= 0) {
      leave();
      return false;
    }
    done += static_cast<uint64_t>(count);
  }
  return true;
}

namespace {

// That threads are held together while the program runs between exchanges.
constexpr auto kLongestRow = std::chrono::milliseconds(20);

// Of this process; 0: not known.
uint64_t count_threads() {
  struct stat status {};
  if (raw::call(SYS_newfstatat, AT_FDCWD, "/proc/self/task", &status, 0) != 0 ||
      status.st_nlink <= 2)
    return 0;
  return status.st_nlink - 2;
}

}  // namespace

Standstill::Standstill(Session& session, ipc::HoldWords& words) : words_(&words) {
  ipc::Request request;
  ipc::Reply reply;
  request.call = ipc::Call::kHold;
  request.hold.thread = static_cast<uint32_t>(::syscall(SYS_gettid));
  if (session.call(request, &reply) != 0) return;
  if (reply.hold.reached != 0) {
    reached_ = reply.hold.reached <= static_cast<uint32_t>(ipc::kLastReached)
                   ? static_cast<Reached>(reply.hold.reached)
                   : Reached::kOther;
    return;
  }
  // If the hold has ended already, the first exchange shows it.
  serial_ = reply.hold.serial;
  owner_ = words_->owner.load();
  reached_ = (owner_ & FUTEX_OWNER_DIED) == 0 ? Reached::kNot : Reached::kLost;
  threads_ = count_threads();
  began_ = std::chrono::steady_clock::now();
}

Standstill::Standstill(Standstill&& other) noexcept
    : words_(other.words_),
      reached_(other.reached_),
      serial_(std::exchange(other.serial_, 0)),
      owner_(other.owner_),
      threads_(other.threads_),
      rests_(other.rests_),
      began_(other.began_) {}

Standstill::~Standstill() {
  if (serial_ == 0) return;
  uint32_t held = ipc::hold_word(HoldPhase::kHeld, serial_);
  if (words_->state.compare_exchange_strong(held, ipc::hold_word(HoldPhase::kOver, serial_)))
    (void)::syscall(SYS_futex, &words_->state, FUTEX_WAKE, 1, nullptr, nullptr, 0);
}

bool Standstill::begin_exchange(HoldPhase as) {
  uint32_t held = ipc::hold_word(HoldPhase::kHeld, serial_);
  begun_ = ipc::hold_word(as, serial_);
  const bool begun = reached_ == Reached::kNot && words_->owner.load() == owner_ &&
                     words_->state.compare_exchange_strong(held, begun_);
  if (!begun && reached_ == Reached::kNot) reached_ = Reached::kLost;
  return begun;
}

bool Standstill::end_exchange() {
  const bool in_time = words_->owner.load() == owner_;
  uint32_t begun = begun_;
  (void)words_->state.compare_exchange_strong(begun, ipc::hold_word(HoldPhase::kHeld, serial_));
  if (!in_time) reached_ = Reached::kLost;
  return in_time;
}

bool Standstill::is_held() const {
  return reached_ == Reached::kNot && words_->owner.load() == owner_ &&
         words_->state.load() == ipc::hold_word(HoldPhase::kHeld, serial_);
}

bool Standstill::rest() {
  if (!is_held() || threads_ == 0 || words_->rest.load() == 0 ||
      std::chrono::steady_clock::now() - began_ >= kLongestRow)
    return false;
  words_->rest.store(++rests_ + 1);
  return true;
}

// Held threads neither end nor make others. So if there are as many as at first, only this one
// runs.
bool Standstill::go_on() {
  words_->rest.store(1);
  return is_held() && count_threads() == threads_;
}

Standstill Holds::begin(const Asker& asker) {
  in_a_row_ = std::chrono::steady_clock::now() - ended_ < ipc::kRest;
  if (resting_ && resting_->go_on()) {
    Standstill still = std::move(*resting_);
    resting_.reset();
    return still;
  }
  resting_.reset();
  return {asker.session, asker.words};
}

void Holds::end(Standstill still, bool may_rest) {
  ended_ = std::chrono::steady_clock::now();
  if (may_rest && in_a_row_ && still.rest()) resting_.emplace(std::move(still));
}

// The program's memory has bytes that a sanitizer protects.
__attribute__((no_sanitize("address", "thread"))) void carry_over(const uint8_t* was,
                                                                  const uint8_t* is, uint8_t* now,
                                                                  uint64_t length) {
  const auto* const before_all = reinterpret_cast<const uint64_t*>(was);
  const auto* const after_all = reinterpret_cast<const uint64_t*>(is);
  auto* const words = reinterpret_cast<uint64_t*>(now);
  for (uint64_t i = 0; i < length / sizeof(uint64_t); ++i) {
    const uint64_t before = before_all[i], after = after_all[i];
    if (before == after) continue;
    uint64_t current = __atomic_load_n(&words[i], __ATOMIC_SEQ_CST), wanted = 0;
    do {
      wanted = 0;
      for (unsigned shift = 0; shift < 64; shift += 8) {
        const uint64_t byte = uint64_t{0xff} << shift;
        const bool ours = ((before ^ after) & byte) != 0 && ((current ^ before) & byte) == 0;
        wanted |= (ours ? after : current) & byte;
      }
    } while (wanted != current && !__atomic_compare_exchange_n(&words[i], &current, wanted, true,
                                                               __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST));
  }
}

}  // namespace vrdma::client
