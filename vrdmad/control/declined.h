// Connections to vdevices whose worker cannot be started. The first request of each is answered
// with ECHILD, so that its program learns why it gets no device instead of waiting without end. One
// that resumes a session is told EAGAIN: it connects again, until its grace period ends.
//
// What a program sends is not believed: its call and sequence only choose the answer. A connection
// that says nothing is closed after kPatience; of each vdevice only Entrance::kMostWaiting wait.
//
// Belongs to the control thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>

#include "core/base/event_loop.h"
#include "core/ipc/messages.h"
#include "vrdmad/broker/conversation.h"
#include "vrdmad/broker/entrance.h"

namespace vrdma::vrdmad {

class Declined {
 public:
  static constexpr auto kPatience = std::chrono::seconds(3);

  explicit Declined(base::EventLoop& loop) : loop_(loop) {}
  Declined(const Declined&) = delete;
  Declined& operator=(const Declined&) = delete;
  ~Declined() = default;

  void add(Arrival arrival);

 private:
  using Talk = Conversation<ipc::Request, ipc::Reply>;
  struct One {
    Entrance::Waiting waiting;
    Talk talk;
    base::EventLoop::Timer end;
  };
  void on_readable(uint64_t number);
  void on_heard(uint64_t number, Talk::Heard heard, const ipc::Request& request);

  base::EventLoop& loop_;
  uint64_t last_ = 0;
  std::map<uint64_t, std::unique_ptr<One>> all_;
};

}  // namespace vrdma::vrdmad
