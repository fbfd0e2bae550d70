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
    VdeviceSetup setup;
    setup.id = 1;
    setup.name = setup.label = "red0";
    setup.tenant = setup.fabric = "red";
    setup.page = page_;
    setup.ledger = provisioning::Ledger(part(page_, &VdevicePage::quota));
    if (!setup.ledger.set_limits({{"qp", 8}})) std::abort();
    worker_->add(std::move(setup));
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
    worker_->collect(0, 0);
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
  worker_->collect(1, 17);
  worker_->collect(2, 18);  // it has none of that id
  ASSERT_TRUE(wait_for(2, std::chrono::seconds(10)));
  EXPECT_EQ(answers_[0].ticket, 17u);
  EXPECT_EQ(answers_[1].ticket, 18u);
}

TEST_F(WorkerTest, tells_by_its_page_what_is_used_while_it_is_stopped) {
  stop_worker();
  worker_->collect(1, 2);
  const VdeviceUse now = use();
  EXPECT_FALSE(wait_for(2, std::chrono::milliseconds(20))) << "it is not stopped";
  const auto& row = now.quota[static_cast<size_t>(Kind::kQp)];
  EXPECT_EQ(row.limit, 8u);
  EXPECT_EQ(row.used, 0u);
  let_go();
  EXPECT_TRUE(wait_for(2, std::chrono::seconds(10)));
}

}  // namespace
}  // namespace vrdma::vrdmad
