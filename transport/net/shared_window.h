// How much the queue pairs of a vdevice may have on their way to one host, together.
//
// A queue pair's own window says nothing of the others. A thousand of them would fill the
// receiver's buffer many times over, and nearly all would be lost. Here each says what it has on
// its way. While that is kMost or more, those that want to send wait, and are called in the order
// in which they came. A peer that does not answer must not keep room that others need: what its
// queue pair takes for lost is not on its way.
//
// All calls are one thread's.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <utility>

#include "transport/net/connection.h"

namespace vrdma::transport::net {

class SharedWindow {
 public:
  // A fraction of the buffer of a socket of vrdmad (vrdmad/broker/roce_sockets.cc), which counts
  // what it has by the memory that it takes.
  static constexpr uint64_t kMost = 2u << 20;  // bytes

  // A queue pair.
  class Member {
   public:
    // `window` null: there is no limit. `resume` is called when its turn has come.
    Member(std::shared_ptr<SharedWindow> window, std::function<void()> resume)
        : window_(std::move(window)), resume_(std::move(resume)) {}
    Member(const Member&) = delete;
    Member& operator=(const Member&) = delete;
    ~Member() { move_to(nullptr); }

    // From now on it shares that window, with what it has on its way.
    void move_to(std::shared_ptr<SharedWindow> window) {
      if (window == window_) return;
      const uint64_t bytes = bytes_;
      if (window_ != nullptr) {
        std::erase(window_->waiting_, this);
        waits_ = false;
        set(0);
        end_turn();
      }
      window_ = std::move(window);
      set(bytes);
    }

    // Whether it may send something now. False: it will be called.
    [[nodiscard]] bool may_send() {
      if (window_ == nullptr) return true;
      if (window_->has_room() && (called_ || window_->waiting_.empty())) return true;
      end_turn();
      if (!std::exchange(waits_, true)) window_->waiting_.push_back(this);
      return false;
    }
    // What it has on its way now.
    void set(uint64_t bytes) {
      if (window_ == nullptr) return;
      window_->on_way_ += bytes - std::exchange(bytes_, bytes);
      window_->call();
    }
    // It has sent what it could since it was called.
    void end_turn() {
      if (!std::exchange(called_, false)) return;
      --window_->called_;
      window_->call();
    }

   private:
    friend class SharedWindow;
    std::shared_ptr<SharedWindow> window_;
    const std::function<void()> resume_;
    uint64_t bytes_ = 0;
    bool waits_ = false, called_ = false;
  };

  [[nodiscard]] uint64_t on_way() const { return on_way_; }

 private:
  [[nodiscard]] bool has_room() const { return on_way_ < kMost; }
  // Each of those that were called may send a burst.
  void call() {
    while (!waiting_.empty() && on_way_ + called_ * kSlice < kMost) {
      Member& next = *waiting_.front();
      waiting_.pop_front();
      next.waits_ = false;
      next.called_ = true;
      ++called_;
      next.resume_();
    }
  }

  uint64_t on_way_ = 0;  // bytes
  uint64_t called_ = 0;  // members
  std::deque<Member*> waiting_;
};

}  // namespace vrdma::transport::net
