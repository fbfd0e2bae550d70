#include "vrdmad/worker/worker.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <utility>
#include <vector>

#include "core/ipc/socket.h"
#include "tests/unit/vrdmad/worker/parts.h"
#include "vrdmad/broker/local_broker.h"
#include "vrdmad/worker/worker_thread.h"

namespace vrdma::vrdmad {
namespace {

using provisioning::Kind;

// A worker with vdevice 1, and the control thread's end.
class WorkerTest : public testing::Test {
 protected:
  WorkerTest() {
    AddVdevice vdevice;
    vdevice.vdevice = 1;
    vdevice.name = vdevice.label = "red0";
    vdevice.tenant = vdevice.fabric = "red";
    vdevice.limits = {{Kind::kQp, 8}};
    worker_->send(parcel(vdevice, {parts_.page,
                                   parts_.fabric,
                                   parts_.qp_numbers,
                                   parts_.tenant_budget,
                                   parts_.parent_budget,
                                   {}})
                      .value());
  }
  ~WorkerTest() override {
    let_go();
    worker_.reset();
  }
  // On the worker's thread. While the gate is shut, the worker does not get past it.
  void on_answer(ToControl answer) {
    std::unique_lock lock(mutex_);
    if (std::holds_alternative<Accepted>(answer)) return;
    if (const auto* refused = std::get_if<Refused>(&answer)) return refused_.push_back(*refused);
    answers_.push_back(std::move(answer));
    changed_.notify_all();
    changed_.wait(lock, [this] { return !shut_; });
  }
  [[nodiscard]] bool wait_for(size_t answers, std::chrono::milliseconds limit) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, limit, [&] { return answers_.size() >= answers; });
  }
  [[nodiscard]] ToControl last() {
    const std::lock_guard lock(mutex_);
    return answers_.back();
  }
  void stop_worker() {
    {
      const std::lock_guard lock(mutex_);
      shut_ = true;
    }
    worker_->send(Collect{0, 1});
    ASSERT_TRUE(wait_for(1, std::chrono::seconds(10)));
  }
  void let_go() {
    const std::lock_guard lock(mutex_);
    shut_ = false;
    changed_.notify_all();
  }
  [[nodiscard]] VdeviceUse use() const {
    return use_of(*parts_.page, rdma::FabricCounters(), base::Clock::steady().now());
  }

  std::shared_ptr<LocalBroker> broker_ = std::make_shared<LocalBroker>();
  const VdeviceParts parts_ = new_parts();
  std::mutex mutex_;
  std::condition_variable changed_;
  bool shut_ = false;
  std::vector<ToControl> answers_;
  std::vector<Refused> refused_;  // not among the answers
  std::unique_ptr<WorkerThread> worker_ = WorkerThread::start(broker_, [this](ToControl answer) {
                                            on_answer(std::move(answer));
                                          }).value();
};

TEST_F(WorkerTest, says_when_it_has_collected) {
  worker_->send(Collect{1, 17});
  worker_->send(Collect{2, 18});  // it has none of that id
  ASSERT_TRUE(wait_for(2, std::chrono::seconds(10)));
  EXPECT_EQ(answers_[0], ToControl(Done{17, 0, {}}));
  EXPECT_EQ(answers_[1], ToControl(Done{18, 0, {}}));
}

TEST_F(WorkerTest, tells_by_its_page_what_is_used_while_it_is_stopped) {
  stop_worker();
  worker_->send(Collect{1, 2});
  const VdeviceUse now = use();
  EXPECT_FALSE(wait_for(2, std::chrono::milliseconds(20))) << "it is not stopped";
  const auto& row = now.quota[static_cast<size_t>(Kind::kQp)];
  EXPECT_EQ(row.limit, 8u);
  EXPECT_EQ(row.used, 0u);
  let_go();
  EXPECT_TRUE(wait_for(2, std::chrono::seconds(10)));
}

TEST_F(WorkerTest, answers_what_becomes_of_limits) {
  worker_->send(CheckLimits{1, 1, {{Kind::kQp, 9}}});
  worker_->send(SetLimits{1, 2, {{Kind::kQp, 7}, {Kind::kQp, 6}}, false});
  worker_->send(SetLimits{2, 3, {}, false});
  worker_->send(SetLimits{1, 0, {{Kind::kMr, 3}}, true});  // wants no answer
  worker_->send(SetLimits{1, 4, {{Kind::kQp, 7}}, true});
  worker_->send(AskCgroups{1, 5, {}});
  worker_->send(AskQueuePairs{1, 6, 0});
  worker_->send(AskExports{1, 7, 0});
  worker_->send(AskExports{2, 8, 0});
  ASSERT_TRUE(wait_for(8, std::chrono::seconds(10)));
  const auto error = [&](size_t i) { return std::get<Done>(answers_.at(i)).error; };
  EXPECT_EQ(answers_[0], ToControl(Done{1, 0, {}}));
  EXPECT_EQ(error(1), EINVAL);
  EXPECT_EQ(error(2), ENOENT);
  EXPECT_EQ(answers_[3], ToControl(Done{4, 0, {}}));
  EXPECT_EQ(answers_[4], ToControl(CgroupUse{5, {}, false}));
  EXPECT_EQ(answers_[5], ToControl(QueuePairs{6, {}, false}));
  EXPECT_EQ(answers_[6], ToControl(Exports{7, {}, false}));
  EXPECT_EQ(answers_[7], ToControl(Exports{8, {}, false}));
  EXPECT_EQ(use().quota[static_cast<size_t>(Kind::kQp)].limit, 7u);
  EXPECT_EQ(use().quota[static_cast<size_t>(Kind::kMr)].limit, 3u);
}

TEST_F(WorkerTest, parks_no_session_that_it_does_not_have) {
  worker_->send(ParkSession{1, 7, 1, ParkSession::Step::kPark});
  worker_->send(ParkSession{2, 7, 2, ParkSession::Step::kResume});
  ASSERT_TRUE(wait_for(2, std::chrono::seconds(10)));
  EXPECT_EQ(answers_[0], ToControl(Done{1, ENOENT, "its session has ended"}));
  EXPECT_EQ(answers_[1], ToControl(Done{2, ENOENT, "its session has ended"}));
}

// On its own thread, without the control thread's end.
TEST(Worker, knows_what_its_vdevices_reach) {
  const auto loop = base::EventLoop::create().value();
  Worker worker(*loop, nullptr, [](const ToControl&) {});
  const auto add = [&](uint64_t id, bool network) {
    const VdeviceParts parts = new_parts();
    AddVdevice vdevice;
    vdevice.vdevice = id;
    vdevice.name = vdevice.label = "red" + std::to_string(id);
    vdevice.tenant = vdevice.fabric = "red";
    vdevice.ways.network = network;
    worker.take(parcel(vdevice, {parts.page,
                                 parts.fabric,
                                 parts.qp_numbers,
                                 parts.tenant_budget,
                                 parts.parent_budget,
                                 {}})
                    .value());
  };
  const auto reaches = [&](uint64_t id) { return worker.find(id)->reaches_network; };
  add(1, false);
  add(2, true);
  EXPECT_FALSE(reaches(1));
  EXPECT_TRUE(reaches(2));
  worker.take({SetWays{1, {true}}, {}});
  worker.take({SetWays{3, {true}}, {}});
  EXPECT_TRUE(reaches(1));
  EXPECT_EQ(worker.find(3), nullptr);
  worker.take({SetWays{2, {}}, {}});
  EXPECT_FALSE(reaches(2));
  EXPECT_TRUE(reaches(1)) << "the other vdevice";
}

// A program that connects to vdevice 1.
class OpeningTest : public WorkerTest {
 protected:
  OpeningTest() {
    auto ends = ipc::make_socket_pair().value();
    program_ = std::move(ends.first);
    auto arrival = broker_->admit(std::move(ends.second)).value();
    connection_ = furnisher_.add(1, arrival.caller);
    worker_->send(parcel(1, connection_, std::move(arrival)));
  }
  void send(ipc::Call call) {
    ipc::Request request;
    request.call = call;
    request.sequence = ++sequence_;
    if (call == ipc::Call::kHello)
      request.hello.challenge_addr = reinterpret_cast<uint64_t>(&challenge_);
    EXPECT_TRUE(ipc::send_message(program_.get(), &request, sizeof request));
  }
  ipc::Reply reply() {
    ipc::Reply reply;
    std::vector<base::Fd> fds;
    EXPECT_TRUE(ipc::receive_reply(program_.get(), &reply, &fds));
    return reply;
  }
  [[nodiscard]] bool has_reply(std::chrono::milliseconds within) const {
    pollfd state{program_.get(), POLLIN, 0};
    return ::poll(&state, 1, static_cast<int>(within.count())) == 1;
  }
  void prove(bool truly) {
    send(ipc::Call::kHello);
    const uint64_t challenge = reply().challenge.challenge;
    challenge_ = truly ? challenge : ~challenge;
    send(ipc::Call::kProve);
  }
  // Ends when the worker has asked for the kit.
  void want_kit(size_t answers) {
    prove(true);
    ASSERT_TRUE(wait_for(answers, std::chrono::seconds(10)));
    EXPECT_EQ(last(), ToControl(WantKit{connection_, {}}));
  }
  [[nodiscard]] base::Result<SessionKit> kit() { return furnisher_.furnish(connection_, {}, {}); }

  Furnisher furnisher_;
  base::Fd program_;
  uint64_t connection_ = 0;
  std::atomic<uint64_t> challenge_ = 0;  // the worker reads it
  uint32_t sequence_ = 0;
};

TEST_F(OpeningTest, waits_for_what_control_makes) {
  want_kit(1);
  EXPECT_FALSE(has_reply(std::chrono::milliseconds(50)));
  worker_->send(parcel(Kit{connection_}, base::fail(ENODEV, "the vdevice has gone")));
  EXPECT_EQ(reply().error, ENODEV);
  want_kit(2);
  worker_->send(parcel(Kit{connection_}, kit()));
  const ipc::Reply opened = reply();
  EXPECT_EQ(opened.error, 0);
  EXPECT_EQ(opened.hello.session, 0u) << "nobody takes it over";
  program_.reset();
  ASSERT_TRUE(wait_for(3, std::chrono::seconds(10)));
  EXPECT_EQ(last(), ToControl(Ended{connection_}));
}

TEST_F(OpeningTest, asks_for_nothing_without_the_proof) {
  prove(false);
  EXPECT_EQ(reply().error, EPERM);
  worker_->send(Collect{1, 17});
  ASSERT_TRUE(wait_for(1, std::chrono::seconds(10)));
  EXPECT_EQ(last(), ToControl(Done{17, 0, {}})) << "it wanted a kit";
  {
    const std::lock_guard lock(mutex_);
    ASSERT_EQ(refused_.size(), 1u);
    EXPECT_EQ(refused_[0].vdevice, 1u);
    EXPECT_EQ(refused_[0].why, Refused::Why::kIdentity);
    EXPECT_GT(refused_[0].pid, 0);
  }
  want_kit(2);
}

TEST_F(OpeningTest, ends_a_program_that_presents_memory_of_another) {
  for (size_t attempt = 1; attempt <= 3; ++attempt) {
    want_kit(attempt);
    worker_->send(parcel(Kit{connection_}, base::fail(EPERM, "it is another's")));
    EXPECT_EQ(reply().error, EPERM);
  }
  ASSERT_TRUE(wait_for(4, std::chrono::seconds(10)));
  EXPECT_EQ(last(), ToControl(Ended{connection_}));
}

TEST_F(OpeningTest, lets_the_vdevice_pay_for_the_kit) {
  want_kit(1);
  const auto before = use().cpu;
  program_.reset();
  ASSERT_TRUE(wait_for(2, std::chrono::seconds(10)));
  constexpr std::chrono::nanoseconds kUsed = std::chrono::hours(1);
  worker_->send(parcel(Kit{connection_, 1, static_cast<uint64_t>(kUsed.count())}, kit()));
  worker_->send(Collect{1, 17});
  ASSERT_TRUE(wait_for(3, std::chrono::seconds(10)));
  EXPECT_GE(use().cpu - before, kUsed) << "though nobody wants it any more";
}

TEST_F(OpeningTest, drops_a_kit_that_comes_too_late) {
  want_kit(1);
  program_.reset();
  ASSERT_TRUE(wait_for(2, std::chrono::seconds(10)));
  EXPECT_EQ(last(), ToControl(Ended{connection_}));
  worker_->send(parcel(Kit{connection_}, kit()));
  worker_->send(parcel(Kit{connection_ + 1}, base::fail(EPERM, "for nobody")));
  worker_->send(Collect{1, 17});
  ASSERT_TRUE(wait_for(3, std::chrono::seconds(10)));
}

}  // namespace
}  // namespace vrdma::vrdmad
