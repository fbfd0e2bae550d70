#include "transport/net/shared_window.h"

#include <gtest/gtest.h>

#include <vector>

namespace vrdma::transport::net {
namespace {

struct Shared : testing::Test {
  std::shared_ptr<SharedWindow> window = std::make_shared<SharedWindow>();
  std::vector<char> called;
  SharedWindow::Member a{window, [this] { called.push_back('a'); }};
  SharedWindow::Member b{window, [this] { called.push_back('b'); }};
  SharedWindow::Member c{window, [this] { called.push_back('c'); }};
};

TEST_F(Shared, LetsAllSendWhileThereIsRoom) {
  a.set(SharedWindow::kMost - 1);
  EXPECT_TRUE(a.may_send());
  EXPECT_TRUE(b.may_send());
}

TEST_F(Shared, CallsThoseThatWaitInTheirOrder) {
  a.set(SharedWindow::kMost);
  EXPECT_FALSE(b.may_send());
  EXPECT_FALSE(c.may_send());
  EXPECT_FALSE(b.may_send()) << "it waits once";
  a.set(SharedWindow::kMost - 1);
  EXPECT_EQ(called, (std::vector{'b'})) << "there is room for one burst";
  EXPECT_FALSE(a.may_send()) << "others came before";
  EXPECT_TRUE(b.may_send());
  b.set(kSlice);
  b.end_turn();
  EXPECT_EQ(called, (std::vector{'b'}));
  a.set(0);
  EXPECT_EQ(called, (std::vector{'b', 'c', 'a'}));
}

TEST_F(Shared, CallsTheNextWhenOneHasNothingToSend) {
  a.set(SharedWindow::kMost);
  EXPECT_FALSE(b.may_send());
  EXPECT_FALSE(c.may_send());
  a.set(SharedWindow::kMost - 1);
  b.end_turn();
  EXPECT_EQ(called, (std::vector{'b', 'c'}));
}

TEST_F(Shared, FreesTheRoomOfOneThatGoes) {
  {
    SharedWindow::Member gone{window, [] {}};
    gone.set(SharedWindow::kMost);
    SharedWindow::Member waits{window, [] { FAIL() << "it has gone"; }};
    EXPECT_FALSE(waits.may_send());
    EXPECT_FALSE(a.may_send());
  }
  EXPECT_EQ(window->on_way(), 0u);
  EXPECT_EQ(called, (std::vector{'a'}));
}

TEST_F(Shared, TakesWhatIsOnItsWayToAnotherWindow) {
  const auto other = std::make_shared<SharedWindow>();
  a.set(SharedWindow::kMost);
  EXPECT_FALSE(b.may_send());
  EXPECT_FALSE(c.may_send());
  a.move_to(window);
  EXPECT_EQ(called, (std::vector<char>{})) << "it is the same";
  c.move_to(other);
  a.move_to(other);
  EXPECT_EQ(window->on_way(), 0u);
  EXPECT_EQ(other->on_way(), SharedWindow::kMost);
  EXPECT_EQ(called, (std::vector{'b'}));
  EXPECT_FALSE(c.may_send());
  a.set(0);
  EXPECT_EQ(called, (std::vector{'b', 'c'}));
}

}  // namespace
}  // namespace vrdma::transport::net
