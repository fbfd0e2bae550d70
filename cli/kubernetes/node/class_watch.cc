#include "cli/kubernetes/node/class_watch.h"

#include <chrono>
#include <utility>

namespace vrdma::cli::kubernetes {

namespace {
constexpr auto kReconnect = std::chrono::milliseconds(500);
constexpr auto kAbsence = std::chrono::seconds(3);
}  // namespace

ClassWatch::ClassWatch(base::EventLoop& loop, std::string run_dir, OnClasses on_classes,
                       OnLost on_lost)
    : loop_(loop),
      run_dir_(std::move(run_dir)),
      on_classes_(std::move(on_classes)),
      on_lost_(std::move(on_lost)),
      thread_([this] { run(); }) {}

ClassWatch::~ClassWatch() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    if (client_ != nullptr) client_->end_watch();
  }
  stopped_.notify_one();
  thread_.join();
}

void ClassWatch::run() {
  for (;;) {
    const auto watched = watch();
    std::unique_lock lock(mutex_);
    if (stop_) return;
    if (!watched) post([this, why = watched.error().message()] { failed(why); });
    if (stopped_.wait_for(lock, kReconnect, [this] { return stop_; })) return;
  }
}

// Until the connection ends.
base::Result<void> ClassWatch::watch() {
  auto client = api::Client::connect(run_dir_);
  if (!client) return base::pass(std::move(client).error());
  const auto use = [this](api::Client* which) {
    const std::lock_guard lock(mutex_);
    client_ = which;
    return !stop_;
  };
  if (!use(&*client)) return {};
  auto watched = client->watch_classes([this](const v1::ListClassesResponse& classes) {
    post([this, classes] { received(classes); });
    return true;
  });
  use(nullptr);
  return watched;
}

// To the loop's thread, unless the object has ended until then.
void ClassWatch::post(std::function<void()> work) {
  loop_.post([work = std::move(work), alive = std::weak_ptr(alive_)] {
    if (!alive.expired()) work();
  });
}

void ClassWatch::received(const v1::ListClassesResponse& classes) {
  failing_ = false;
  why_ = "vrdmad does not answer";  // until it does
  wait();
  on_classes_(classes);
}

void ClassWatch::failed(const std::string& why) {
  if (!std::exchange(failing_, true)) wait();
  why_ = why.empty() ? "vrdmad cannot be reached" : why;
}

void ClassWatch::wait() {
  patience_ = loop_.after(kAbsence, [this] { on_lost_(why_); });
}

}  // namespace vrdma::cli::kubernetes
