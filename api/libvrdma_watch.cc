// Watches in the C API: a thread reads the stream and queues events for the program.
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>

#include <cerrno>
#include <chrono>
#include <deque>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "api/client.h"
#include "api/libvrdma.h"
#include "core/base/fd.h"

namespace vrdma::api {

namespace {

// How many events to queue for a program that does not read; then the watch fails, as in vrdmad.
constexpr size_t kBacklog = 65536;

}  // namespace

class OwnedEvent : public vrdma_event {
 public:
  explicit OwnedEvent(const v1::WatchEvent& from)
      : vrdma_event{}, vdevice_(from.vdev()), reason_(from.reason()) {
    type = static_cast<vrdma_event_type>(from.type());
    vrdma_event::reason = reason_.c_str();
    vrdma_event::vdevice = &vdevice_;
  }
  OwnedEvent(const OwnedEvent&) = delete;
  OwnedEvent& operator=(const OwnedEvent&) = delete;

 private:
  OwnedVdevice vdevice_;
  const std::string reason_;
};
static_assert(VRDMA_VDEVICE_ADDED == static_cast<int>(v1::WatchEvent::ADDED) &&
              VRDMA_VDEVICE_CHANGED == static_cast<int>(v1::WatchEvent::CHANGED) &&
              VRDMA_VDEVICE_REMOVED == static_cast<int>(v1::WatchEvent::REMOVED));

}  // namespace vrdma::api

using vrdma::api::OwnedEvent;
using vrdma::base::Result;

struct vrdma_watch {
 public:
  vrdma_watch(vrdma::api::Client client, vrdma::base::Fd ready)
      : client_(std::move(client)), ready_(std::move(ready)), reader_([this] { read(); }) {
    ::pthread_setname_np(reader_.native_handle(), "vrdma-watch");
    begun_.get_future().wait();
  }
  vrdma_watch(const vrdma_watch&) = delete;
  vrdma_watch& operator=(const vrdma_watch&) = delete;
  ~vrdma_watch() {
    client_.end_watch();
    reader_.join();
  }

  [[nodiscard]] int fd() const { return ready_.get(); }

  // Null if there is no event now.
  Result<std::unique_ptr<OwnedEvent>> take() {
    const std::lock_guard lock(mutex_);
    if (events_.empty() && error_) return vrdma::base::pass(*error_);
    if (events_.empty()) return nullptr;
    auto event = std::move(events_.front());
    events_.pop_front();
    // Stays at least 1 after the watch has failed.
    if (events_.empty() && !error_) {
      eventfd_t ignored = 0;
      ::eventfd_read(ready_.get(), &ignored);
    }
    return event;
  }

 private:
  void read() {
    const auto ended = client_.watch_vdevs(
        [this](const vrdma::v1::WatchEvent& event) {
          auto made = std::make_unique<OwnedEvent>(event);
          const std::lock_guard lock(mutex_);
          if (events_.size() >= vrdma::api::kBacklog) return false;
          events_.push_back(std::move(made));
          ::eventfd_write(ready_.get(), 1);
          return true;
        },
        [this] { begun_.set_value(); });
    const std::lock_guard lock(mutex_);
    error_ =
        ended ? vrdma::base::Error(ENOSPC, "the program does not read its events") : ended.error();
    ::eventfd_write(ready_.get(), 1);
  }

  const vrdma::api::InUse in_use_;
  vrdma::api::Client client_;
  const vrdma::base::Fd ready_;  // an eventfd, above 0 while there is an event or an error to read

  std::promise<void> begun_;  // the daemon reports all changes from now on

  std::mutex mutex_;  // guards the two below
  std::deque<std::unique_ptr<OwnedEvent>> events_;
  std::optional<vrdma::base::Error> error_;

  std::thread reader_;  // last, because it uses all members above
};

vrdma_watch* vrdma_watch_open() {
  return vrdma::api::guarded(static_cast<vrdma_watch*>(nullptr), []() -> Result<vrdma_watch*> {
    if (auto ok = vrdma::api::check_not_forked(); !ok)
      return vrdma::base::pass(std::move(ok).error());
    const vrdma::api::NoSignals no_signals;
    auto client = vrdma::api::Client::connect(vrdma::api::default_run_dir());
    if (!client) return vrdma::base::pass(std::move(client).error());
    vrdma::base::Fd ready(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!ready.valid()) return vrdma::base::fail_errno("create an eventfd");
    return new vrdma_watch(std::move(*client), std::move(ready));
  });
}

int vrdma_watch_fd(const vrdma_watch* watch) { return watch->fd(); }

int vrdma_watch_next(vrdma_watch* watch, int timeout_ms, vrdma_event** event) {
  using Clock = std::chrono::steady_clock;
  const auto deadline = Clock::now() + std::chrono::milliseconds(timeout_ms);
  return vrdma::api::guarded(-1, [&]() -> Result<int> {
    if (auto ok = vrdma::api::check_not_forked(); !ok)
      return vrdma::base::pass(std::move(ok).error());
    for (;;) {
      auto taken = watch->take();
      if (!taken) return vrdma::base::pass(std::move(taken).error());
      if (*taken != nullptr) {
        *event = taken->release();
        return 1;
      }
      int left = -1;
      if (timeout_ms >= 0) {
        left = static_cast<int>(
            std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count());
        if (left <= 0) return 0;
      }
      pollfd ready{watch->fd(), POLLIN, 0};
      if (::poll(&ready, 1, left) < 0 && errno != EINTR)
        return vrdma::base::fail_errno("wait for an event");
    }
  });
}

void vrdma_free_event(vrdma_event* event) { delete static_cast<OwnedEvent*>(event); }

void vrdma_watch_close(vrdma_watch* watch) {
  // The reader thread does not exist in a forked child.
  if (watch == nullptr || vrdma::api::InUse::was_forked()) return;
  const vrdma::api::NoSignals no_signals;
  delete watch;
}
