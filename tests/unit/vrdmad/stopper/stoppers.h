// A stopper process that holds the threads of the test.
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <memory>
#include <thread>
#include <utility>

#include "core/base/mapping.h"
#include "core/ipc/layout.h"
#include "core/ipc/socket.h"
#include "core/rdma/peer.h"
#include "tests/unit/core/base/run_until.h"
#include "tests/unit/vrdmad/broker/fork_helper.h"
#include "vrdmad/stopper/process.h"
#include "vrdmad/stopper/stopper.h"

namespace vrdma::vrdmad {

// The stopper holds the threads of this process.
struct Stoppers : testing::Test {
  std::unique_ptr<Stopper> stopper = Stopper::attach(fork_helper(
      [](base::Fd socket) { stopper::serve(std::move(socket), [](const base::Fd&) {}); }));
  std::unique_ptr<base::EventLoop> loop = base::EventLoop::create().value();
  Stopper::AccountRef account = std::make_shared<Stopper::Account>(stopper.get());
  bool died = false;
  base::EventLoop::Watch watch = stopper->watch(*loop, [this] { died = true; }).value();
  base::Fd arena = base::make_memfd("test", ipc::kHeapOffset).value();
  base::Mapping page = base::Mapping::shared(arena, 4096, 0, PROT_READ | PROT_WRITE).value();
  ipc::HoldWords& words = *page.at<ipc::HoldWords>(ipc::kHoldOffset);
  rdma::PeerHandle self = make_self();

  std::atomic<uint64_t> counted = 0;
  std::atomic<bool> over = false;
  std::thread counter{[this] {
    while (!over) ++counted;
  }};
  ~Stoppers() override {
    over = true;
    counter.join();
  }

  static rdma::PeerHandle make_self() {
    const auto ends = ipc::make_socket_pair().value();
    return rdma::identify_peer(ends.first.get()).value();
  }
  bool run_until(const std::function<bool()>& condition) {
    return test::run_until(*loop, condition);
  }
  // The test's own thread requests the hold. On a busy machine some threads stop too late.
  Stopper::Answer hold() {
    Stopper::Answer answer = hold_once();
    for (int i = 0; i < 20 && answer.reached == ipc::Reached::kDeadline; ++i) {
      ::usleep(100'000);
      answer = hold_once();
    }
    return answer;
  }
  Stopper::Answer hold_once() {
    Stopper::Answer got;
    bool came = false;
    const Stopper::Wish wish{self.peer, static_cast<uint32_t>(::syscall(SYS_gettid)),
                             self.pidfd.get(), arena.get()};
    const auto ticket = account->stopper()->hold(account, wish, *loop, [&](Stopper::Answer answer) {
      got = answer;
      came = true;
    });
    EXPECT_TRUE(run_until([&] { return came; }));
    return got;
  }
  bool counts() {
    const uint64_t before = counted;
    ::usleep(20'000);
    return counted != before;
  }
  // All threads are held, and the others have not run meanwhile. The stopper lets them go after a
  // while; if the test was too late to observe, it repeats the hold.
  bool all_stand_still() {
    for (int i = 0; i < 20; ++i) {
      const auto answer = hold();
      if (answer.reached != ipc::Reached::kNot) return false;
      const bool counted_on = counts();
      if (words.state != ipc::hold_word(ipc::HoldPhase::kHeld, answer.serial)) continue;
      let_go(answer.serial);
      return !counted_on;
    }
    return false;
  }
  // Allows for a busy machine.
  bool counts_again() {
    for (int i = 0; i < 250; ++i)
      if (counts()) return true;
    return false;
  }
  void let_go(uint32_t serial) { words.state = ipc::hold_word(ipc::HoldPhase::kOver, serial); }
};

}  // namespace vrdma::vrdmad
