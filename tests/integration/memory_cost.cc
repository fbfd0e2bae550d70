// memory_cost DEVICE COUNT BYTES STEP [threads [MAPPINGS]]: writes BYTES each STEP bytes of one
// mapping, registers each as a region, and writes them again; then makes MAPPINGS of its own.
// `threads`: beside a thread that sleeps; `alone`: without. Prints the MiB that the process has
// then, more than before it opened the device.
#include <infiniband/verbs.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <system_error>
#include <thread>

#include "tests/integration/open_device.h"

namespace {

// Pages of the memory arena, mapped or not.
long in_arena() {
  long pages = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    struct stat status {};
    std::error_code gone;
    const std::string file = std::filesystem::read_symlink(entry.path(), gone).string();
    if (file.find("memfd:vrdma-memory") != std::string::npos &&
        ::stat(entry.path().c_str(), &status) == 0)
      pages = status.st_blocks * 512 / ::sysconf(_SC_PAGESIZE);
  }
  return pages;
}

// Pages that this process has: private ones, and those of its memory arena.
long taken() {
  long all = 0, resident = 0, shared = 0;
  std::FILE* const file = std::fopen("/proc/self/statm", "re");
  if (file == nullptr || std::fscanf(file, "%ld %ld %ld", &all, &resident, &shared) != 3)
    std::abort();
  std::fclose(file);
  return resident - shared + in_arena();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 5) return 2;
  const size_t count = std::strtoul(argv[2], nullptr, 10),
               bytes = std::strtoul(argv[3], nullptr, 10),
               step = std::strtoul(argv[4], nullptr, 10);
  const unsigned long mappings = argc > 6 ? std::strtoul(argv[6], nullptr, 10) : 0;
  if (argc > 5 && std::strcmp(argv[5], "threads") == 0) std::thread([] { ::pause(); }).detach();
  const long before = taken();
  ibv_context* const context = open_device(argv[1]);
  ibv_pd* const pd = context != nullptr ? ibv_alloc_pd(context) : nullptr;
  auto* const memory =
      static_cast<char*>(::mmap(nullptr, count * step, PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  if (pd == nullptr || memory == MAP_FAILED) return 1;
  for (size_t i = 0; i < count; ++i) std::memset(memory + i * step, 1, bytes);
  for (size_t i = 0; i < count; ++i)
    if (ibv_reg_mr(pd, memory + i * step, bytes, IBV_ACCESS_LOCAL_WRITE) == nullptr) return 1;
  for (size_t i = 0; i < count; ++i) {
    if (memory[i * step] != 1 || memory[i * step + bytes - 1] != 1) return 1;
    std::memset(memory + i * step, 2, bytes);
  }
  for (size_t i = bytes; i < count * step; i += step)
    if (memory[i] != 0) return 1;
  for (unsigned long i = 0; i < mappings; ++i)  // neighbours with other rights remain apart
    if (::mmap(nullptr, static_cast<size_t>(::getpagesize()),
               i % 2 == 0 ? PROT_NONE : PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
               0) == MAP_FAILED) {
      std::perror("mmap");
      return 1;
    }
  std::printf("%ld\n", (taken() - before) * ::sysconf(_SC_PAGESIZE) >> 20);
  return 0;
}
