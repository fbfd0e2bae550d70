// The trampolines, with real_stub.c in place of the real library. A process looks for the real
// library only once, so each test runs in a new process of this executable.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <infiniband/verbs.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

extern "C" {
int execute_ioctl(uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e, uint64_t f,
                  uint64_t g, uint64_t h);
void __verbs_log(char* to, uint32_t size, const char* format, ...);
int ibv_cmd_alloc_pd(void* context, void* pd, void* cmd, size_t size, void* resp, size_t rsize);
}

namespace {

// Runs `body` in a process whose real library is `path`; it must return 0.
template <class Body>
void with_real_library(const char* path, Body body) {
  const char* given = std::getenv("VRDMA_REAL_LIBIBVERBS");
  if (given != nullptr && std::strcmp(given, path) == 0) {
    ASSERT_EQ(body(), 0);
    return;
  }
  const testing::TestInfo& test = *testing::UnitTest::GetInstance()->current_test_info();
  const std::string filter =
      std::string("--gtest_filter=") + test.test_suite_name() + "." + test.name();
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    ::setenv("VRDMA_REAL_LIBIBVERBS", path, 1);
    ::execl("/proc/self/exe", "client_abi_test", filter.c_str(), nullptr);
    ::_exit(127);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(Real, AllArgumentsArrive) {
  with_real_library(VRDMA_REAL_STUB, [] {
    std::vector<std::thread> threads;
    std::atomic<int> good = 0;
    for (int i = 0; i < 4; ++i)
      threads.emplace_back([&good] { good += execute_ioctl(1, 2, 3, 4, 5, 6, 7, 8) == 4321; });
    for (std::thread& thread : threads) thread.join();
    if (good != 4) return 1;
    if (execute_ioctl(1, 2, 3, 4, 5, 6, 7, 8) != 4321) return 2;  // now resolved

    for (int round = 0; round < 2; ++round) {
      char text[128] = "";
      __verbs_log(text, sizeof text, "%d %s %d %.1f %.1f %.1f %.1f %.1f %.1f %.1f %.1f %.1f", 1,
                  "two", 3, 1.5, 2.5, 3.5, 4.5, 5.5, 6.5, 7.5, 8.5, 9.5);
      if (std::strcmp(text, "1 two 3 1.5 2.5 3.5 4.5 5.5 6.5 7.5 8.5 9.5") != 0) return 3;
    }

    void* ours = ::dlopen("libibverbs.so.1", RTLD_NOW | RTLD_NOLOAD);
    auto* old = reinterpret_cast<void* (*)(void*)>(::dlvsym(ours, "ibv_alloc_pd", "IBVERBS_1.0"));
    char place[16];
    if (old(place) != place + 10) return 4;
    return 0;
  });
}

// The stub has the private functions in another node than Debian 12's library. A provider asks for
// them in the node of its release, or of a later one.
TEST(Real, PrivateFunctionsAreReachedUnderEachNode) {
  with_real_library(VRDMA_REAL_STUB, [] {
    void* ours = ::dlopen("libibverbs.so.1", RTLD_NOW | RTLD_NOLOAD);
    for (const char* node : {"25", "33", "34", "57", "59", "64", "65", "66", "79"}) {
      const std::string version = std::string("IBVERBS_PRIVATE_") + node;
      auto* function = reinterpret_cast<decltype(&execute_ioctl)>(
          ::dlvsym(ours, "execute_ioctl", version.c_str()));
      if (function == nullptr || function(1, 2, 3, 4, 5, 6, 7, 8) != 4321) return 1;
      const std::string registers = std::string("verbs_register_driver_") + node;
      if (::dlvsym(ours, registers.c_str(), version.c_str()) == nullptr) return 2;
      auto* text = reinterpret_cast<const char* (*)(int)>(
          ::dlvsym(ours, "ibv_wr_opcode_str", version.c_str()));
      if (text == nullptr || std::strcmp(text(IBV_WR_SEND), "send") != 0) return 3;
    }
    return 0;
  });
}

TEST(Real, AFunctionThatItDoesNotHaveAnswersEnosys) {
  with_real_library(VRDMA_REAL_STUB, [] {
    if (ibv_cmd_alloc_pd(nullptr, nullptr, nullptr, 0, nullptr, 0) != ENOSYS) return 1;
    errno = 0;
    int count = 3;
    if (ibv_get_device_list(&count) != nullptr || errno != ENOSYS || count != 0) return 2;
    return 0;
  });
}

// A drop-in as the real library would recurse.
TEST(Real, IsNeverOurselves) {
  with_real_library(VRDMA_OURS, [] {
    if (execute_ioctl(1, 2, 3, 4, 5, 6, 7, 8) != ENOSYS) return 1;
    errno = 0;
    if (ibv_import_device(-1) != nullptr || errno != ENOSYS) return 2;
    return ibv_fork_init() == 0 && ibv_is_fork_initialized() == IBV_FORK_UNNEEDED ? 0 : 3;
  });
}

// The loader would wait for a writer.
TEST(Real, AFifoIsNotLoaded) {
  const char* const given = std::getenv("VRDMA_REAL_LIBIBVERBS");
  char directory[] = "/tmp/vrdma-real.XXXXXX";
  std::string fifo = given == nullptr ? "" : given;
  if (given == nullptr) {
    ASSERT_NE(::mkdtemp(directory), nullptr);
    fifo = std::string(directory) + "/libibverbs.so.1";
    ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  }
  with_real_library(fifo.c_str(), [] {
    ::alarm(10);
    return execute_ioctl(1, 2, 3, 4, 5, 6, 7, 8) == ENOSYS ? 0 : 1;
  });
  if (given != nullptr) return;
  ::unlink(fifo.c_str());
  ::rmdir(directory);
}

TEST(Real, WithoutOneVirtualDevicesAreThere) {
  with_real_library("/nonexistent", [] {
    ::setenv("FAKE_DEVICES", "a", 1);
    int count = 0;
    ibv_device** list = ibv_get_device_list(&count);
    if (list == nullptr || count != 1) return 1;
    ibv_context* context = ibv_open_device(list[0]);
    ibv_free_device_list(list);
    if (context == nullptr) return 2;
    ibv_device_attr attr{};
    if (ibv_query_device(context, &attr) != 0 || attr.max_qp != 17) return 3;
    return ibv_close_device(context);
  });
}

}  // namespace
