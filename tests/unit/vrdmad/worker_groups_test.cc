// Control groups of workers, in the real hierarchies of this machine.
#include "vrdmad/broker/worker_groups.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <set>
#include <string>
#include <thread>

#include "tests/unit/vrdmad/parent_group.h"

namespace vrdma::vrdmad {
namespace {

namespace fs = std::filesystem;

std::string content(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

struct WorkersGroups : testing::Test {
  void SetUp() override {
    if (parent.directories().empty()) GTEST_SKIP() << parent.why_none();
    groups.emplace(parent.directories());
  }
  // Of this process's first group.
  [[nodiscard]] static std::string name(unsigned number) {
    return "worker-" + std::to_string(::getpid()) + "-" + std::to_string(number);
  }
  // A process that is in the group until it is killed.
  static pid_t member(const WorkerGroup& group) {
    std::array<int, 2> ends{};
    EXPECT_EQ(::pipe(ends.data()), 0);
    const pid_t child = ::fork();
    if (child == 0) {
      const char entered = group.enter() ? 1 : 0;
      (void)!::write(ends[1], &entered, 1);
      ::pause();
      ::_exit(0);
    }
    char entered = 0;
    EXPECT_EQ(::read(ends[0], &entered, 1), 1);
    EXPECT_EQ(entered, 1);
    ::close(ends[0]);
    ::close(ends[1]);
    return child;
  }
  static void end(pid_t child) {
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
  }
  const TestParentGroup parent;
  std::optional<WorkerGroups> groups;
};

TEST_F(WorkersGroups, HoldAProcessAndLimitIt) {
  std::optional<WorkerGroup> group(groups->make().value());
  const pid_t child = member(*group);
  size_t limits = 0;
  for (const std::string& directory : parent.directories()) {
    const std::string made = directory + "/" + name(1);
    EXPECT_EQ(content(made + "/cgroup.procs"), std::to_string(child) + "\n");
    if (!fs::exists(made + "/pids.max")) continue;
    ++limits;
    EXPECT_EQ(content(made + "/pids.max"), std::to_string(WorkerGroups::kThreads) + "\n");
  }
  EXPECT_EQ(limits, 1u);
  end(child);
  group.reset();
  EXPECT_TRUE(parent.children().empty()) << "a group is left";
}

TEST_F(WorkersGroups, AreRemovedWhenTheLastProcessHasLeft) {
  std::optional<WorkerGroup> group(groups->make().value());
  const pid_t child = member(*group);
  group.reset();
  EXPECT_EQ(parent.children(), std::set<std::string>{name(1)}) << "the kernel keeps it";
  (void)groups->make().value();
  EXPECT_EQ(parent.children(), std::set<std::string>{name(1)});
  end(child);
  group.emplace(groups->make().value());
  EXPECT_EQ(parent.children(), std::set<std::string>{name(3)});
}

TEST_F(WorkersGroups, OfEarlierBrokersAreRemoved) {
  std::optional<WorkerGroup> group(groups->make().value());
  const pid_t child = member(*group);
  for (const std::string& directory : parent.directories())
    for (const char* other : {"worker-1-1", "worker-1-22", "daemon"})
      fs::create_directory(directory + "/" + other);
  WorkerGroups next(parent.directories());
  const std::set<std::string> kept{"daemon", name(1)};
  EXPECT_EQ(parent.children(), kept) << "one has a process";
  end(child);
  (void)next.make().value();
  EXPECT_EQ(parent.children(), std::set<std::string>{"daemon"});
  group.reset();
}

// As after a kill of the broker, whose workers the kernel kills then.
TEST_F(WorkersGroups, WaitForWorkersThatEnd) {
  const WorkerGroup group = groups->make().value();
  const pid_t child = member(group);
  std::atomic<bool> has_ended = false;
  std::thread killer([child, &has_ended] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    end(child);
    has_ended = true;
  });
  WorkerGroups next(parent.directories());
  const bool in_time = has_ended;
  killer.join();
  if (!in_time) (void)next.make().value();  // on a busy machine the group goes with the next one
  EXPECT_TRUE(parent.children().empty());
}

TEST_F(WorkersGroups, HaveNamesThatAreFree) {
  for (const std::string& directory : parent.directories())
    fs::create_directory(directory + "/" + name(1));
  const WorkerGroup group = groups->make().value();
  EXPECT_TRUE(parent.children().contains(name(2)));
}

TEST_F(WorkersGroups, CannotBeMadeWithoutTheirParent) {
  WorkerGroups elsewhere({"/proc/nowhere"});
  const auto made = elsewhere.make();
  ASSERT_FALSE(made);
  EXPECT_NE(made.error().message().find("make the control group /proc/nowhere/worker-"),
            std::string::npos);
}

TEST(NoWorkerGroups, NeedNoParents) {
  WorkerGroups groups({});
  const auto group = groups.make();
  ASSERT_TRUE(group);
  EXPECT_TRUE(group->enter());
}

}  // namespace
}  // namespace vrdma::vrdmad
