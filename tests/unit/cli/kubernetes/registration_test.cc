#include "cli/kubernetes/plugin/registration.h"

#include <gtest/gtest.h>

#include "tests/unit/core/base/manual_clock.h"

namespace vrdma::cli::kubernetes {
namespace {

using State = Registration::State;
using std::chrono::milliseconds;
using std::chrono::seconds;

class RegistrationTest : public testing::Test {
 protected:
  bool look() {
    return registration_.look(clock_.now(), kubelet_, endpoint_, [this] { return other_; });
  }
  // An attempt that succeeds, after which the kubelet reads the devices.
  void register_now() {
    ASSERT_TRUE(look());
    registration_.answered(clock_.now(), "");
    registration_.stream_began(clock_.now());
    ASSERT_EQ(registration_.state(), State::kRegistered);
  }
  void end_stream() { registration_.stream_ended(clock_.now()); }
  // How often it tries in a time in which the kubelet refuses.
  int refused_attempts(base::Duration time) {
    int attempts = 0;
    for (const auto end = clock_.now() + time; clock_.now() < end; clock_.advance(milliseconds(10)))
      if (look()) {
        ++attempts;
        registration_.answered(clock_.now(), "no");
      }
    return attempts;
  }

  test::ManualClock clock_;
  std::optional<serve::FileId> kubelet_ = serve::FileId{1, 1, 1};
  std::string endpoint_ = "a.sock";
  const Younger listening_{{"b.sock"}, true};
  Younger other_;
  Registration registration_;
};

TEST_F(RegistrationTest, waits_for_a_kubelet_and_a_socket) {
  kubelet_.reset();
  EXPECT_FALSE(look());
  EXPECT_EQ(registration_.state(), State::kAbsent);
  kubelet_ = serve::FileId{1, 1, 1};
  endpoint_ = "";
  EXPECT_FALSE(look());
  endpoint_ = "a.sock";
  register_now();
  clock_.advance(seconds(1000));
  EXPECT_FALSE(look());
  EXPECT_EQ(clock_.now() - *registration_.stream_since(), seconds(1000));
}

TEST_F(RegistrationTest, has_one_call_at_a_time) {
  EXPECT_TRUE(look());
  clock_.advance(seconds(5));
  kubelet_ = serve::FileId{1, 2, 2};
  EXPECT_FALSE(look());
  registration_.answered(clock_.now(), "too late");
  EXPECT_TRUE(look()) << "the next kubelet";
}

TEST_F(RegistrationTest, the_stream_may_begin_before_the_answer) {
  ASSERT_TRUE(look());
  registration_.stream_began(clock_.now());
  EXPECT_EQ(registration_.state(), State::kTrying);
  registration_.answered(clock_.now(), "");
  EXPECT_EQ(registration_.state(), State::kRegistered);
}

TEST_F(RegistrationTest, registers_again_for_a_new_kubelet_or_socket) {
  register_now();
  kubelet_ = serve::FileId{1, 1, 2};
  ASSERT_TRUE(look()) << "at once, though the old stream has not ended";
  registration_.stream_began(clock_.now());
  end_stream();  // the old one
  registration_.answered(clock_.now(), "");
  EXPECT_EQ(registration_.state(), State::kRegistered);
  endpoint_ = "b.sock";
  EXPECT_TRUE(look());
}

TEST_F(RegistrationTest, a_kubelet_that_returns_with_the_same_socket_is_asked_again) {
  register_now();
  const auto same = std::exchange(kubelet_, std::nullopt);
  EXPECT_FALSE(look());
  end_stream();
  kubelet_ = same;
  EXPECT_TRUE(look());
}

TEST_F(RegistrationTest, the_end_of_a_stream_is_answered_at_once_and_then_every_second) {
  register_now();
  clock_.advance(milliseconds(50));  // kubelet 1.36 at the end of a predecessor
  end_stream();
  EXPECT_EQ(registration_.why(), "the kubelet has ended its stream of devices");
  register_now();
  clock_.advance(milliseconds(50));
  end_stream();
  EXPECT_FALSE(look());
  clock_.advance(milliseconds(940));
  EXPECT_FALSE(look());
  clock_.advance(milliseconds(20));
  register_now();
  clock_.advance(seconds(1));
  end_stream();
  register_now();
}

TEST_F(RegistrationTest, tries_every_second_forever) {
  EXPECT_EQ(refused_attempts(seconds(60)), 60);
  EXPECT_EQ(registration_.state(), State::kTrying);
  EXPECT_EQ(registration_.why(), "no");
  clock_.advance(seconds(1));
  register_now();
}

TEST_F(RegistrationTest, tries_again_if_the_kubelet_accepts_but_does_not_read) {
  ASSERT_TRUE(look());
  registration_.answered(clock_.now(), "");
  EXPECT_EQ(registration_.state(), State::kTrying);
  EXPECT_FALSE(look());
  EXPECT_EQ(registration_.next_attempt(), clock_.now() + Registration::kInterval);
  clock_.advance(Registration::kInterval);
  EXPECT_TRUE(look());
}

TEST_F(RegistrationTest, yields_to_a_younger_instance_until_it_has_ended) {
  register_now();
  other_ = listening_;
  EXPECT_FALSE(look());
  EXPECT_EQ(registration_.state(), State::kYielding);
  clock_.advance(seconds(5));
  end_stream();
  for (int i = 0; i < 100; ++i, clock_.advance(seconds(1))) EXPECT_FALSE(look());
  EXPECT_EQ(registration_.state(), State::kYielding);
  other_ = {};
  register_now();
}

// Kubelet 1.36 leaves its stream, and forgets the resource with the younger instance.
TEST_F(RegistrationTest, registers_again_after_a_younger_instance_also_if_its_stream_lasts) {
  register_now();
  other_ = listening_;
  for (int i = 0; i < 10; ++i, clock_.advance(seconds(1))) EXPECT_FALSE(look());
  other_ = {};
  EXPECT_TRUE(look());
}

// It registered, and a kill left its file.
TEST_F(RegistrationTest, registers_again_once_after_an_instance_that_it_did_not_see_listen) {
  register_now();
  other_ = {{"b.sock"}, false};
  EXPECT_FALSE(look()) << "it may listen in a moment";
  EXPECT_EQ(registration_.state(), State::kYielding);
  clock_.advance(milliseconds(999));
  EXPECT_FALSE(look());
  clock_.advance(milliseconds(1));
  register_now();
  for (int i = 0; i < 10; ++i, clock_.advance(seconds(1))) EXPECT_FALSE(look());
  EXPECT_EQ(registration_.state(), State::kRegistered);
  other_.files.insert("c.sock");
  EXPECT_FALSE(look());
  EXPECT_EQ(registration_.state(), State::kYielding) << "another one";
}

TEST_F(RegistrationTest, leaves_a_slow_kubelet_the_time_to_read) {
  ASSERT_TRUE(look());
  clock_.advance(seconds(4));
  registration_.answered(clock_.now(), "");
  EXPECT_FALSE(look()) << "kubelet 1.20 opens the stream after its answer";
  registration_.stream_began(clock_.now());
  EXPECT_EQ(registration_.state(), State::kRegistered);
}

// Two instances and a kubelet that ends the stream of the older registration.
TEST(TwoRegistrations, do_not_register_against_each_other) {
  test::ManualClock clock;
  Registration older, younger;
  int attempts = 0;
  const auto step = [&](Registration& self, Registration& other, const char* endpoint,
                        bool has_younger) {
    if (!self.look(clock.now(), serve::FileId{1, 1, 1}, endpoint, [=] {
          return has_younger ? Younger{{"b.sock"}, true} : Younger();
        }))
      return;
    ++attempts;
    self.stream_began(clock.now());
    self.answered(clock.now(), "");
    if (other.stream_since()) other.stream_ended(clock.now());
  };
  for (int i = 0; i < 60; ++i, clock.advance(seconds(1))) {
    step(older, younger, "a.sock", i >= 5);
    if (i >= 5) step(younger, older, "b.sock", false);
  }
  EXPECT_EQ(attempts, 2);
  EXPECT_EQ(older.state(), State::kYielding);
  EXPECT_EQ(younger.state(), State::kRegistered);
}

}  // namespace
}  // namespace vrdma::cli::kubernetes
