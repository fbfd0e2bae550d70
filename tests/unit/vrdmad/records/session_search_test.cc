// The search for the processes of sessions: several at a time, within the budget of each vdevice.
#include "vrdmad/records/session_search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <set>
#include <vector>

#include "vrdmad/records/process_files.h"

namespace vrdma::vrdmad {
namespace {

using namespace std::chrono_literals;
using base::Duration;

// Each process needs `needs` of processor time to be searched.
struct Searched : Broker {
  Answer serve(const Request& request, Beside*) override {
    std::unique_lock lock(mutex);
    Answer answer;
    if (request.op != Request::Op::kFind) return answer;
    const Duration limit(static_cast<int64_t>(request.time_ns));
    requests.push_back({request.peer.pid, request.entry, limit});
    running.insert(request.peer.pid);
    granted += limit;
    most_granted = std::max(most_granted, granted);
    most_running = std::max(most_running, running.size());
    arrived.notify_all();
    arrived.wait_for(lock, 10s, [&] { return most_running >= together; });
    const Duration needed = request.entry == 0 ? needs[request.peer.pid] : Duration(0);
    answer.number = static_cast<uint64_t>(std::min(needed, limit).count());
    answer.error = needed > limit ? EMFILE : gone == request.peer.pid ? ESRCH : 0;
    answer.peer = request.peer;
    answer.entry = static_cast<uint32_t>(request.peer.pid);
    granted -= limit;
    running.erase(running.find(request.peer.pid));
    return answer;
  }

  struct Seen {
    pid_t pid;
    uint32_t earlier;
    Duration limit;
  };
  std::mutex mutex;
  std::condition_variable arrived;
  std::map<pid_t, Duration> needs;
  size_t together = 1;  // each request waits until so many have come
  pid_t gone = 0;
  std::vector<Seen> requests;
  std::multiset<pid_t> running;
  size_t most_running = 0;
  Duration granted{}, most_granted{};
};

struct Searches : testing::Test {
  void want(pid_t pid, uint64_t vdevice = 1) {
    SessionSearch::Wanted one;
    one.vdevice = vdevice;
    one.process.pid = pid;
    one.files = {{1, WantedFile::kEventfd}};
    wanted.push_back(std::move(one));
  }
  // The errors, in order; 0: found.
  std::vector<int> search() {
    std::vector<int> errors;
    SessionSearch searching(*broker, wanted);
    for (size_t i = 0; i < wanted.size(); ++i) {
      auto found = searching.take(i);
      if (found) {
        EXPECT_EQ(found->caller->peer().pid, wanted[i].process.pid);
      }
      errors.push_back(found ? 0 : found.error().code());
    }
    used = searching.used();
    return errors;
  }

  std::shared_ptr<Searched> broker = std::make_shared<Searched>();
  std::vector<SessionSearch::Wanted> wanted;
  std::map<uint64_t, Duration> used;
};

TEST_F(Searches, FindSeveralProcessesAtATime) {
  for (pid_t pid = 1; pid <= 9; ++pid) want(pid);
  broker->together = SessionSearch::kThreads;
  broker->needs[4] = broker->needs[5] = 1ms;
  broker->gone = 7;
  EXPECT_EQ(search(), (std::vector<int>{0, 0, 0, 0, 0, 0, ESRCH, 0, 0}));
  EXPECT_EQ(broker->most_running, SessionSearch::kThreads);
  EXPECT_EQ(used[1], 2ms);
}

TEST_F(Searches, SearchTheDescriptorsOfAProcessOnce) {
  for (int i = 0; i < 20; ++i) want(1 + i % 2, static_cast<uint64_t>(1 + i % 3));
  broker->needs[1] = broker->needs[2] = 1ms;
  EXPECT_EQ(search(), std::vector<int>(20, 0));
  EXPECT_EQ(std::count_if(broker->requests.begin(), broker->requests.end(),
                          [](const auto& one) { return one.earlier == 0; }),
            2);
}

// Of many vdevices, too. EAGAIN: the caller searches for it again.
TEST_F(Searches, AreNoLongerTogether) {
  constexpr Duration kBudget = ProcessFiles::kSearchTime;
  for (pid_t pid = 1; pid <= 4; ++pid) want(pid, static_cast<uint64_t>(pid));
  want(5, 5);
  for (pid_t pid = 1; pid <= 4; ++pid) broker->needs[pid] = kBudget * 2 / 5;
  EXPECT_EQ(search(), (std::vector<int>{0, 0, EAGAIN, EAGAIN, 0}));
  Duration sum{};
  for (const auto& [vdevice, its] : used) sum += its;
  EXPECT_LE(sum, kBudget + 5 * SessionSearch::kShare);
}

// One vdevice whose processes have many descriptors, and another.
TEST_F(Searches, AreNoLongerThanTheBudgetOfAVdevice) {
  constexpr Duration kBudget = ProcessFiles::kSearchTime;
  for (pid_t pid = 1; pid <= 5; ++pid) want(pid);
  for (pid_t pid = 6; pid <= 9; ++pid) want(pid, 2);
  for (pid_t pid = 1; pid <= 4; ++pid) broker->needs[pid] = kBudget * 2 / 5;
  EXPECT_EQ(search(), (std::vector<int>{0, 0, EMFILE, EMFILE, 0, 0, 0, 0, 0}));
  EXPECT_LE(used[1], kBudget);
  EXPECT_EQ(used[2], 0ms);
  EXPECT_LE(broker->most_granted, kBudget + SessionSearch::kThreads * SessionSearch::kShare);
}

TEST_F(Searches, EndWithoutHavingBeenAsked) {
  for (pid_t pid = 1; pid <= 9; ++pid) want(pid);
  const SessionSearch searching(*broker, wanted);
}

}  // namespace
}  // namespace vrdma::vrdmad
