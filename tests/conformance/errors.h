// Shared by the tests of errors: a pair of queue pairs that is broken and reconnected repeatedly.
#pragma once

#include <functional>
#include <initializer_list>

#include "tests/conformance/queue.h"

namespace conformance {

constexpr size_t kBufferSize = 64u << 10;

struct Breakable {
  explicit Breakable(const Side& given, const QpOptions& options = {});

  // a runs `act`, which posts work request 1; it completes with one of `statuses`. a's requests
  // before and after it are flushed. Unless `event` is -1, b's queue pair goes to ERR and has that
  // asynchronous event (or `other_event`); its receives are flushed. Then both reconnect, and a
  // message in each direction arrives.
  void provoke(const std::function<void()>& act, std::initializer_list<ibv_wc_status> statuses,
               int event = -1, int other_event = -1);
  // The same where b's receive number 1, which `receive` posts, completes with an error.
  void provoke_receive(const std::function<void()>& receive, ibv_wc_status at_b,
                       ibv_wc_status at_a);
  void mend();

  const Side& side;
  Cq cq, recv_cq;
  Qp qp;
  Buffer buffer;
};

}  // namespace conformance
