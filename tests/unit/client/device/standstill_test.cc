#include "client/device/memory/standstill.h"

#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <string>

namespace vrdma::client {
namespace {

std::string carried(std::string was, std::string is, std::string now) {
  alignas(8) std::array<uint8_t, 16> a{}, b{}, c{};
  std::memcpy(a.data(), was.data(), 16);
  std::memcpy(b.data(), is.data(), 16);
  std::memcpy(c.data(), now.data(), 16);
  carry_over(a.data(), b.data(), c.data(), 16);
  return {reinterpret_cast<const char*>(c.data()), 16};
}

TEST(CarryOver, BringsWhatWasWrittenToTheOldPages) {
  EXPECT_EQ(carried("0123456789abcdef", "0123456789abcdef", "0123456789abcdef"),
            "0123456789abcdef");
  EXPECT_EQ(carried("0123456789abcdef", "01X3456789abcdeY", "0123456789abcdef"),
            "01X3456789abcdeY");
}

TEST(CarryOver, KeepsWhatWasWrittenToTheNewOnes) {
  EXPECT_EQ(carried("0123456789abcdef", "0123456789abcdef", "N123456789abcdef"),
            "N123456789abcdef");
  EXPECT_EQ(carried("0123456789abcdef", "01X3456789abcdef", "N123456789abcdef"),
            "N1X3456789abcdef");
  EXPECT_EQ(carried("0123456789abcdef", "X123456789abcdef", "N123456789abcdef"),
            "N123456789abcdef");
}

TEST(Spare, RecallsPagesThatAreMappedNoMore) {
  Spare spare;
  ASSERT_TRUE(spare.make());
  const uint64_t size = spare.size();
  ASSERT_GE(size, 4096u);
  for (int round = 0; round < 3; ++round) {
    void* const memory = ::mmap(nullptr, size, PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    ASSERT_NE(memory, MAP_FAILED);
    const auto start = reinterpret_cast<uint64_t>(memory);
    std::memset(memory, 1, size);
    ASSERT_TRUE(spare.keep(start, size));
    std::memset(memory, 2, size);  // after keep(), before exchange()
    ASSERT_EQ(::mmap(memory, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED,
                     -1, 0),
              memory);
    std::memset(memory, 3, size);
    if (round == 1) {
      spare.forget(size);
    } else {
      uint8_t* const now = spare.copy() + Spare::kMost;
      ASSERT_TRUE(spare.recall(now, size));
      EXPECT_EQ(now[0], 2);
      EXPECT_EQ(now[size - 1], 2);
    }
    ::munmap(memory, size);
  }
  EXPECT_EQ(spare.size(), size);
}

// Like the seccomp profile of Podman's containers.
bool forbid_vmsplice() {
  std::array<sock_filter, 4> program = {{
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_vmsplice, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  }};
  const sock_fprog filter{program.size(), program.data()};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

uint8_t* anonymous(uint64_t size) {
  void* const memory =
      ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return memory != MAP_FAILED ? static_cast<uint8_t*>(memory) : nullptr;
}

// Returns the line of the first failed check.
int exchange_without_vmsplice() {
#define MUST(true)                      \
  do {                                  \
    if (!(true)) return __LINE__ % 256; \
  } while (false)
  MUST(forbid_vmsplice());
  const base::Fd file(::memfd_create("new", MFD_CLOEXEC));
  MUST(::ftruncate(file.get(), 1 << 20) == 0);
  Spare spare;
  MUST(spare.make() && spare.phase() == ipc::HoldPhase::kMoving);
  uint8_t* const memory = anonymous(1 << 20);
  const auto start = reinterpret_cast<uint64_t>(memory);
  // Two mappings; their border is in the second step.
  MUST(memory != nullptr && ::madvise(memory + 20480, 4096, MADV_DONTDUMP) == 0);
  std::memset(memory, 1, 1 << 20);
  MUST(spare.keep(start, spare.size()));
  std::memset(memory, 2, 1 << 20);
  uint64_t done = 0;
  for (unsigned steps = 0; done < 2 * Spare::kStep; ++steps) {
    const uint64_t step =
        spare.exchange(start + done, Spare::kStep, PROT_READ | PROT_WRITE, file, done);
    MUST(step != 0 && steps < 16);
    done += step;
    MUST(memory[done - 1] == 0 && memory[done] == 2);
    MUST(spare.recall(spare.copy() + Spare::kMost, step));
    MUST(spare.copy()[Spare::kMost] == 2 && spare.copy()[Spare::kMost + step - 1] == 2);
  }
  spare.forget(done);
  // If mapping fails, the pages stay where they were.
  MUST(spare.exchange(start + done, Spare::kStep, PROT_READ, base::Fd(), 0) == 0);
  MUST(memory[done] == 2 && memory[done + Spare::kStep - 1] == 2);
#undef MUST
  return 0;
}

TEST(Spare, MovesPagesAsideWhereItMayNotReferToThem) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(exchange_without_vmsplice());
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
  EXPECT_EQ(WEXITSTATUS(status), 0) << "the last digits of the failed line";
}

}  // namespace
}  // namespace vrdma::client
