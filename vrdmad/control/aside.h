// Work that may take long, apart from the control thread: on a thread of its own, or in a
// simulation's time (tests/sim).
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

namespace vrdma::vrdmad {

class Aside {
 public:
  Aside() = default;
  virtual ~Aside() = default;
  Aside(const Aside&) = delete;
  Aside& operator=(const Aside&) = delete;

  // Calls `work` once, or never if this ends before. Call again only when that has begun.
  virtual void run(std::function<void()> work) = 0;
};

class AsideThread final : public Aside {
 public:
  AsideThread();
  ~AsideThread() override;  // waits for the work that runs
  void run(std::function<void()> work) override;

 private:
  void serve();

  std::mutex mutex_;
  std::condition_variable wake_;
  std::function<void()> work_;
  bool ends_ = false;
  std::thread thread_;
};

}  // namespace vrdma::vrdmad
