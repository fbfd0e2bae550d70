#include "vrdmad/worker/worker.h"

#include <gtest/gtest.h>

#include <condition_variable>
#include <mutex>
#include <vector>

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
    VdeviceShared shared;
    shared.page = page_;
    shared.ledger = provisioning::Ledger(part(page_, &VdevicePage::quota));
    if (!shared.ledger.set_limits({{"qp", 8}})) std::abort();
    worker_->add(vdevice, std::move(shared));
  }
  ~WorkerTest() override {
    let_go();
    worker_.reset();
  }
  // On the worker's thread. While the gate is shut, the worker does not get past it.
  void on_answer(ToControl answer) {
    std::unique_lock lock(mutex_);
    answers_.push_back(std::move(answer));
    changed_.notify_all();
    changed_.wait(lock, [this] { return !shut_; });
  }
  [[nodiscard]] bool wait_for(size_t answers, std::chrono::milliseconds limit) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, limit, [&] { return answers_.size() >= answers; });
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
    return use_of(*page_, rdma::FabricCounters(), base::EventLoop::now());
  }

  std::shared_ptr<VdevicePage> page_ = std::make_shared<VdevicePage>();
  std::mutex mutex_;
  std::condition_variable changed_;
  bool shut_ = false;
  std::vector<ToControl> answers_;
  std::unique_ptr<Worker> worker_ =
      Worker::start({}, 0, [this](ToControl answer) { on_answer(std::move(answer)); }).value();
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
  ASSERT_TRUE(wait_for(5, std::chrono::seconds(10)));
  const auto error = [&](size_t i) { return std::get<Done>(answers_.at(i)).error; };
  EXPECT_EQ(answers_[0], ToControl(Done{1, 0, {}}));
  EXPECT_EQ(error(1), EINVAL);
  EXPECT_EQ(error(2), ENOENT);
  EXPECT_EQ(answers_[3], ToControl(Done{4, 0, {}}));
  EXPECT_EQ(answers_[4], ToControl(CgroupUse{5, {}, false}));
  EXPECT_EQ(use().quota[static_cast<size_t>(Kind::kQp)].limit, 7u);
  EXPECT_EQ(use().quota[static_cast<size_t>(Kind::kMr)].limit, 3u);
}

}  // namespace
}  // namespace vrdma::vrdmad
