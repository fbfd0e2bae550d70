// The classes as vrdmad describes them, twice a second.
//
// api::Client blocks, so a thread of this object uses it. The thread connects again every 0.5 s
// after vrdmad has gone; an absence or a silence of less than 3 s is not reported, because a
// restart of vrdmad takes less.
#pragma once

#include <vrdma/v1/admin.pb.h>

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "api/client.h"
#include "core/base/event_loop.h"

namespace vrdma::cli::kubernetes {

class ClassWatch {
 public:
  using OnClasses = std::function<void(const v1::ListClassesResponse&)>;
  using OnLost = std::function<void(const std::string& why)>;

  // Calls both on `loop`, which must outlive the object. `on_lost` comes once for each absence and
  // each silence; `on_classes` ends them.
  ClassWatch(base::EventLoop& loop, std::string run_dir, OnClasses on_classes, OnLost on_lost);
  ClassWatch(const ClassWatch&) = delete;
  ClassWatch& operator=(const ClassWatch&) = delete;
  ~ClassWatch();

 private:
  void run();
  base::Result<void> watch();
  void post(std::function<void()> work);
  void received(const v1::ListClassesResponse& classes);
  void failed(const std::string& why);
  void wait();

  base::EventLoop& loop_;
  const std::string run_dir_;
  const OnClasses on_classes_;
  const OnLost on_lost_;
  // Of the loop's thread.
  std::string why_;       // what on_lost() will say
  bool failing_ = false;  // since the connection failed, and not only since vrdmad is silent
  base::EventLoop::Timer patience_;
  const std::shared_ptr<int> alive_ = std::make_shared<int>(0);  // for what is posted

  std::mutex mutex_;  // guards the two below
  bool stop_ = false;
  api::Client* client_ = nullptr;  // while the thread watches
  std::condition_variable stopped_;
  std::thread thread_;  // last: uses all members above
};

}  // namespace vrdma::cli::kubernetes
