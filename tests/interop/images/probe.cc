// What a drop-in library needs of libc and of the C++ runtime that is linked into it, tried where
// there is an old glibc: preloaded into a program of that release, it prints a line and ends it.
#include <gnu/libc-version.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <mutex>
#include <random>
#include <shared_mutex>
#include <stdexcept>
#include <thread>
#include <vector>

#include "core/base/single_thread.h"

namespace {

[[noreturn]] void end(const char* what) {
  std::printf("probe: glibc %s: %s\n", ::gnu_get_libc_version(), what);
  std::fflush(stdout);
  ::_exit(what[0] == 'o' ? 0 : 1);
}

int thrown(int depth) {
  if (depth == 0) throw std::runtime_error("as it should be");
  const std::vector<int> unwound(3, depth);
  return thrown(depth - 1) + unwound[0];
}

__attribute__((constructor(65500))) void probe() {
  using vrdma::base::is_single_threaded;
  if (!is_single_threaded()) end("a program without threads has several");
  bool first = true;
  std::thread([&] { first = is_single_threaded(); }).join();
  if (first) end("a thread beside another is alone");
  if (is_single_threaded()) end("a program that has had threads has a single one");

  constexpr int kThreads = 8, kRounds = 1000;
  std::shared_mutex mutex;
  std::once_flag once;
  int called = 0, caught = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i)
    threads.emplace_back([&] {
      for (int round = 0; round < kRounds; ++round) {
        std::call_once(once, [&] { ++called; });
        try {
          (void)thrown(5);
        } catch (const std::runtime_error&) {
          const std::lock_guard lock(mutex);
          ++caught;
        }
        const std::shared_lock reading(mutex);
      }
    });
  for (auto& thread : threads) thread.join();
  if (called != 1) end("call_once calls more often");
  if (caught != kThreads * kRounds) end("an exception is not caught");
  std::random_device random;
  if (random() == random() && random() == random()) end("random_device repeats itself");
  struct stat root {
  }, opened{};
  if (::stat("/", &root) != 0 || !S_ISDIR(root.st_mode)) end("stat does not know /");
  if (::stat("/nonexistent", &opened) == 0 || errno != ENOENT) end("stat finds what is not there");
  if (::fstat(STDOUT_FILENO, &opened) != 0 || opened.st_nlink == 0) end("fstat");
  end("ok");
}

}  // namespace
