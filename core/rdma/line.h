// The line of a device's senders that may not go on. A sender that is not admitted enters it. The
// line calls the sender when its turn has come, and the sender asks again; one that is refused
// again goes to the end.
//
// Belongs to the thread of its loop.
#pragma once

#include <functional>
#include <list>
#include <unordered_map>

#include "core/base/event_loop.h"

namespace vrdma::rdma {

class Sender;

class Line {
 public:
  // Until the next may be admitted; zero: now. Asked again then.
  using Wait = std::function<base::Duration()>;

  Line(base::EventLoop& loop, Wait wait) : loop_(loop), wait_(std::move(wait)) {}
  Line(const Line&) = delete;
  Line& operator=(const Line&) = delete;

  [[nodiscard]] bool admit(Sender& sender);
  void leave(Sender& sender);  // before it goes, or when it needs nothing any more
  void look_again();           // the wait has become another one
  void dismiss();              // nobody need wait any more

 private:
  void wake_in(base::Duration delay);
  void call_next();

  base::EventLoop& loop_;
  const Wait wait_;
  std::list<Sender*> line_;
  std::unordered_map<Sender*, std::list<Sender*>::iterator> places_;
  Sender* called_ = nullptr;      // whose turn it is
  base::EventLoop::Timer timer_;  // while there is a line
};

}  // namespace vrdma::rdma
