// Blocking calls while signals arrive: as read(2), which a handler with SA_RESTART does not end.
#include <pthread.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <functional>
#include <thread>

#include "tests/conformance/errors.h"

namespace conformance {

namespace {

std::atomic<int> handled;

void handle(int flags) {
  struct sigaction action {};
  action.sa_handler = [](int) { ++handled; };
  action.sa_flags = flags;
  CHECK_EQ(::sigaction(SIGUSR1, &action, nullptr), 0);
}

// Runs `call` while signals arrive at this thread; after some of them calls `then`.
void disturb(const std::function<void()>& call, const std::function<void()>& then) {
  std::atomic<bool> returned = false;
  handled = 0;
  std::thread disturber([&, waiter = ::pthread_self()] {
    for (bool done = false; !returned;) {
      ::pthread_kill(waiter, SIGUSR1);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      if (done || handled < 20) continue;
      then();
      done = true;
    }
  });
  call();
  returned = true;
  disturber.join();
}

void nothing() {}

}  // namespace

CONFORMANCE_TEST(errors, signals_while_a_completion_is_awaited) {
  Cq cq(side, true);
  Qp qp(side, cq);
  Buffer buffer(side, 4096);
  qp.connect();
  if (side.is_a()) {
    side.await_word(1);
    qp.send(1, {buffer.sge(0, 8)});
    cq.expect(1);
  } else {
    qp.receive(2, {buffer.sge(0, 64)});
    cq.arm();
    handle(0);
    disturb(
        [&] {
          ibv_cq* told = nullptr;
          void* context = nullptr;
          CHECK_EQ(ibv_get_cq_event(cq.channel, &told, &context), -1);
          CHECK_EQ(errno, EINTR);
        },
        nothing);
    handle(SA_RESTART);
    disturb([&] { cq.await_event(); }, [&] { side.tell_word(1); });
    cq.expect(2);
  }
  side.meet(2);
}

CONFORMANCE_TEST(errors, signals_while_an_asynchronous_event_is_awaited) {
  Cq cq(side);
  Srq srq(side, 8);
  QpOptions options;
  options.srq = srq.srq;
  Qp qp(side, cq, options);
  qp.connect();
  handle(0);
  disturb(
      [&] {
        ibv_async_event event{};
        CHECK_EQ(ibv_get_async_event(side.context, &event), -1);
        CHECK_EQ(errno, EINTR);
      },
      nothing);
  handle(SA_RESTART);
  disturb(
      [&] {
        ibv_async_event event{};
        CHECK_EQ(ibv_get_async_event(side.context, &event), 0);
        CHECK(event.element.qp == qp.qp);
        ibv_ack_async_event(&event);
      },
      [&] { qp.to(IBV_QPS_ERR); });
  side.meet(1);
}

}  // namespace conformance
