#include "vrdmad/control/processes.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <thread>

namespace vrdma::vrdmad {
namespace {

constexpr const char* kBoot = "this boot";

// A process that sleeps until it is killed.
class Child {
 public:
  Child() : pid_(::fork()) {
    if (pid_ == 0)
      for (;;) ::pause();
  }
  ~Child() { end(); }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  [[nodiscard]] uint32_t pid() const { return static_cast<uint32_t>(pid_); }
  void kill() const { ::kill(pid_, SIGKILL); }
  void end() {
    if (pid_ <= 0) return;
    kill();
    ::waitpid(std::exchange(pid_, 0), nullptr, 0);
  }

 private:
  pid_t pid_;
};

class ProcessesTest : public testing::Test {
 protected:
  // Runs the loop until the owner's end is reported, or for `longest`.
  void run(std::chrono::milliseconds longest) {
    const auto timer = loop_->after(longest, [this] { loop_->stop(); });
    loop_->run();
  }
  std::function<void()> ended() {
    return [this] {
      ++ends_;
      loop_->stop();
    };
  }
  std::unique_ptr<base::EventLoop> loop_ = base::EventLoop::create().value();
  HostProcesses processes_{*loop_, kBoot}, after_reboot_{*loop_, "another boot"};
  int ends_ = 0;
};

TEST_F(ProcessesTest, tells_once_when_the_process_ends) {
  Child child;
  const auto owner = processes_.identify({child.pid(), 0, ""});
  ASSERT_TRUE(owner) << owner.error().message();
  EXPECT_GT(owner->start_time, 0U);
  EXPECT_EQ(owner->boot_id, kBoot);
  const auto watch = processes_.watch(*owner, ended());
  ASSERT_TRUE(watch) << watch.error().message();
  run(std::chrono::milliseconds(20));
  EXPECT_EQ(ends_, 0);
  child.kill();  // not reaped: a zombie has ended
  run(std::chrono::seconds(20));
  EXPECT_EQ(ends_, 1);
  run(std::chrono::milliseconds(20));
  EXPECT_EQ(ends_, 1);
  const auto late = processes_.watch(*owner, ended());
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().code(), ESRCH);
  EXPECT_EQ(processes_.identify({child.pid(), 0, ""}).error().code(), ESRCH);
}

TEST_F(ProcessesTest, a_process_that_has_its_pid_is_not_the_owner) {
  const Child child;
  Owner owner = processes_.identify({child.pid(), 0, ""}).value();
  EXPECT_TRUE(processes_.identify(owner));
  ++owner.start_time;
  const auto reused = processes_.watch(owner, ended());
  ASSERT_FALSE(reused);
  EXPECT_EQ(reused.error().code(), ESRCH);
  EXPECT_EQ(processes_.identify(owner).error().code(), ESRCH);
  --owner.start_time;
  EXPECT_TRUE(processes_.watch(owner, ended()));
  EXPECT_EQ(after_reboot_.watch(owner, ended()).error().code(), ESRCH);
  EXPECT_EQ(after_reboot_.identify(owner).error().code(), ESRCH);
}

TEST_F(ProcessesTest, numbers_that_are_no_process_are_refused) {
  EXPECT_EQ(processes_.identify({0, 0, ""}).error().code(), EINVAL);
  EXPECT_EQ(processes_.identify({UINT32_MAX, 0, ""}).error().code(), EINVAL);
  Child child;
  const uint32_t pid = child.pid();
  child.end();
  const auto gone = processes_.identify({pid, 0, ""});
  ASSERT_FALSE(gone);
  EXPECT_EQ(gone.error().message(), "the owner: there is no process " + std::to_string(pid));
  // A thread is not a process.
  std::atomic<pid_t> thread_id = 0;
  std::atomic<bool> over = false;
  std::thread thread([&] {
    thread_id = ::gettid();
    while (!over) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  });
  while (thread_id == 0) std::this_thread::yield();
  const auto of_thread = processes_.identify({static_cast<uint32_t>(thread_id.load()), 0, ""});
  over = true;
  thread.join();
  EXPECT_EQ(of_thread.error().code(), EINVAL);
}

}  // namespace
}  // namespace vrdma::vrdmad
