#include "vrdmad/admin/watchers.h"

#include <grpcpp/alarm.h>

#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>

#include "core/base/printable.h"
#include "vrdmad/admin/translation.h"

namespace vrdma::vrdmad {

using base::printable;

namespace {

// Events that may wait for a watcher, besides its initial ones, before the watch is ended.
constexpr size_t kWatchBacklog = 4096;

// One stream of WatchVdevs or WatchEvents.
//
// Events arrive on the control thread, enter backlog_, and leave one StartWrite() at a time.
// Finish() is called exactly once: by OnCancel, by a failed write, or by a full backlog. gRPC then
// calls OnDone() as the last reaction and forgets the object.
template <class Message, class Row>
class Watcher final : public grpc::ServerWriteReactor<Message> {
 public:
  // `watch` calls its argument as AdminBackend::watch() does.
  using Watch = std::function<std::shared_ptr<void>(std::function<void(const Row&)>)>;
  Watcher(const Watch& watch, grpc::CallbackServerContext& context) : context_(context) {
    // The first events arrive before gRPC knows the reactor; it keeps what is started until then.
    token_ = watch([this](const Row& event) { push(event); });
    {
      const std::lock_guard lock(mutex_);
      room_ = backlog_.size() + kWatchBacklog;
    }
    // Tells the client that from now on it misses no event, even if there are no vdevices.
    this->StartSendInitialMetadata();
  }

  void OnSendInitialMetadataDone(bool ok) override {
    const std::lock_guard lock(mutex_);
    writing_ = false;
    if (!ok) return finish(base::Error(ECANCELED, "the watcher has disconnected"));
    write_next();
  }
  void OnWriteDone(bool ok) override {
    const std::lock_guard lock(mutex_);
    writing_ = false;
    backlog_.pop_front();
    if (!ok) return finish(base::Error(ECANCELED, "the watcher has disconnected"));
    write_next();
  }
  void OnCancel() override {
    const std::lock_guard lock(mutex_);
    finish(base::Error(ESHUTDOWN, "the watch was cancelled"));
  }
  void OnDone() override {
    token_.reset();  // push() does not run after this
    delete this;
  }

 private:
  void push(const Row& event) {
    const std::lock_guard lock(mutex_);
    if (finished_) return;
    if (backlog_.size() >= room_)
      return finish(base::Error(ENOSPC, "the watcher does not read its events"));
    fill(backlog_.emplace_back(), event);
    write_next();
  }
  void write_next() {
    if (finished_ || writing_ || backlog_.empty()) return;
    writing_ = true;
    this->StartWrite(&backlog_.front());
  }
  void finish(const base::Error& error) {
    if (finished_) return;
    finished_ = true;
    this->Finish(status_of(context_, error));
  }

  grpc::CallbackServerContext& context_;
  std::shared_ptr<void> token_;

  std::mutex mutex_;             // guards all members below
  std::deque<Message> backlog_;  // writing_: the first one is being written
  size_t room_ = SIZE_MAX;       // of backlog_; unlimited for the initial events
  bool writing_ = true;          // first, the initial metadata
  bool finished_ = false;
};

// One WatchClasses stream. A look at the classes, on a thread of gRPC, its write and a pause
// alternate, so that one of them is always under way until Finish(), which is called when the
// client has gone. inotify(7) would not do: it sees little of changes through links and mounts.
class ClassWatcher final : public grpc::ServerWriteReactor<v1::ListClassesResponse> {
 public:
  ClassWatcher(AdminBackend& backend, grpc::CallbackServerContext& context)
      : backend_(backend), context_(context) {
    look();
  }

  void OnWriteDone(bool ok) override {
    if (!ok) return end();
    wait();
  }
  void OnCancel() override {
    const std::lock_guard lock(mutex_);
    cancelled_ = true;
    pause_.Cancel();  // calls look_again()
  }
  void OnDone() override { delete this; }

 private:
  static constexpr auto kPause = std::chrono::milliseconds(500);

  void wait() {
    {
      const std::lock_guard lock(mutex_);
      if (!cancelled_) {
        pause_.Set(std::chrono::system_clock::now() + kPause, [this](bool) { look_again(); });
        return;
      }
    }
    end();
  }
  void look_again() {
    bool wanted = false;
    {
      const std::lock_guard lock(mutex_);
      wanted = !cancelled_;
    }
    wanted ? look() : end();
  }
  void look() {
    const auto classes = backend_.list_classes();
    message_.Clear();
    if (!classes) message_.set_error(printable(classes.error().message()));
    if (classes)
      for (const auto& its : *classes) fill(*message_.add_classes(), its);
    StartWrite(&message_);
  }
  void end() { Finish(status_of(context_, base::Error(ECANCELED, "the watcher has gone"))); }

  AdminBackend& backend_;
  grpc::CallbackServerContext& context_;
  v1::ListClassesResponse message_;

  std::mutex mutex_;  // guards both
  bool cancelled_ = false;
  grpc::Alarm pause_;
};

}  // namespace

grpc::ServerWriteReactor<v1::WatchEvent>* watch_vdevs(AdminBackend& backend,
                                                      grpc::CallbackServerContext& context) {
  return new Watcher<v1::WatchEvent, WatchEvent>(
      [&](auto callback) { return backend.watch(std::move(callback)); }, context);
}

grpc::ServerWriteReactor<v1::Event>* watch_events(AdminBackend& backend,
                                                  grpc::CallbackServerContext& context,
                                                  EventRow::Time since) {
  return new Watcher<v1::Event, EventRow>(
      [&](auto callback) { return backend.watch_events(since, std::move(callback)); }, context);
}

grpc::ServerWriteReactor<v1::ListClassesResponse>* watch_classes(
    AdminBackend& backend, grpc::CallbackServerContext& context) {
  return new ClassWatcher(backend, context);
}

}  // namespace vrdma::vrdmad
