#include "provisioning/request_rate.h"

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <vector>

#include "tests/unit/core/base/manual_clock.h"

namespace vrdma::provisioning {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// A reader that always has another request.
struct Asking final : RequestRate::Reader {
  explicit Asking(RequestRate& its) : rate(its) {}
  ~Asking() override { rate.leave(*this); }
  void admitted() override { read_all(); }
  void read_all() {
    while (rate.admits(*this)) {
      RequestRate::has_read(*this);
      ++read;
    }
  }
  RequestRate& rate;
  uint64_t read = 0;
};

class Requests : public testing::Test {
 protected:
  void run(milliseconds how_long) { clock.run(*loop, how_long); }
  test::ManualClock clock;
  std::unique_ptr<base::EventLoop> loop = std::move(*base::EventLoop::create(clock));
  RequestRate rate{*loop};
};

TEST_F(Requests, BeyondTheRateAreReadLater) {
  rate.set(1000);
  Asking one(rate);
  one.read_all();
  EXPECT_EQ(one.read, 1000u);
  EXPECT_TRUE(RequestRate::waits(one));
  EXPECT_EQ(rate.use().waited, 1u);
  EXPECT_EQ(rate.used(), 1000u);
  EXPECT_EQ(rate.use().used(clock.now(), 1000), 1000u);
  EXPECT_EQ(rate.use().used(clock.now() + seconds(2), 1000), 0u);
  EXPECT_EQ(rate.use().used(clock.now(), 0), 0u);
  run(milliseconds(200));
  EXPECT_EQ(one.read, 1200u);
}

TEST_F(Requests, AreEverybodysInTurn) {
  rate.set(1000);
  Asking first(rate), second(rate);
  first.read_all();
  second.read_all();
  EXPECT_EQ(second.read, 0u) << "a new reader must not overtake the queue";
  first.read = 0;
  run(milliseconds(300));
  EXPECT_EQ(first.read, 150u);
  EXPECT_EQ(second.read, 150u);
}

TEST_F(Requests, ThatWereNotThereAreNotSpent) {
  rate.set(1);
  Asking one(rate);
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(rate.admits(one)) << "it stays admitted until it reads";
  EXPECT_EQ(rate.used(), 1u);
  RequestRate::has_read(one);
  one.read_all();
  EXPECT_LE(one.read, 1u);
}

TEST_F(Requests, DoNotWaitAnyMoreWithoutALimit) {
  rate.set(1);
  Asking one(rate);
  one.read_all();
  ASSERT_TRUE(RequestRate::waits(one));
  auto gone = std::make_unique<Asking>(rate);
  gone->read_all();
  gone.reset();  // a reader that left is not called
  rate.set(100'000);
  run(milliseconds(50));
  EXPECT_GT(one.read, 100u);
}

}  // namespace
}  // namespace vrdma::provisioning
