// A list that several streams of gRPC get whole, whenever it changes.
#pragma once

#include <grpcpp/server_context.h>
#include <grpcpp/support/server_callback.h>

#include <functional>
#include <memory>
#include <mutex>
#include <set>

namespace vrdma::cli::kubernetes {

// Thread-safe. Must outlive the server of its streams.
template <class Message>
class Broadcast {
 public:
  // Called on gRPC's threads when a stream begins and when it has ended.
  using Observer = std::function<void(bool begins)>;
  explicit Broadcast(Observer observer) : observer_(std::move(observer)) {}

  // The list from now on.
  void publish(Message message) {
    const std::lock_guard lock(mutex_);
    last_ = std::make_shared<const Message>(std::move(message));
    for (auto* stream : streams_) stream->write();
  }
  // A stream for gRPC, which gets the list at once if there is one. It deletes itself.
  [[nodiscard]] grpc::ServerWriteReactor<Message>* open() { return new Stream(*this); }

 private:
  // It sends the newest list, one StartWrite() at a time, and skips those that were replaced
  // meanwhile. Finish() is called once, by OnCancel() or a failed write; OnDone() is gRPC's last
  // call.
  class Stream final : public grpc::ServerWriteReactor<Message> {
   public:
    explicit Stream(Broadcast& all) : all_(all) {
      all_.observer_(true);
      const std::lock_guard lock(all_.mutex_);
      all_.streams_.insert(this);
      write();  // gRPC keeps it until it knows the reactor
    }
    // With the mutex.
    void write() {
      if (writing_ || finished_ || sent_ == all_.last_) return;
      writing_ = true;
      sent_ = all_.last_;
      this->StartWrite(sent_.get());
    }
    void OnWriteDone(bool ok) override {
      const std::lock_guard lock(all_.mutex_);
      writing_ = false;
      ok ? write() : finish();
    }
    void OnCancel() override {
      const std::lock_guard lock(all_.mutex_);
      finish();
    }
    void OnDone() override {
      all_.observer_(false);
      delete this;
    }

   private:
    void finish() {
      if (finished_) return;
      finished_ = true;
      all_.streams_.erase(this);
      this->Finish(grpc::Status::CANCELLED);
    }

    Broadcast& all_;
    std::shared_ptr<const Message> sent_;  // stays until its write is done
    bool writing_ = false;
    bool finished_ = false;
  };

  const Observer observer_;
  std::mutex mutex_;                     // guards the two below, and the members of each stream
  std::shared_ptr<const Message> last_;  // null until the first publish()
  std::set<Stream*> streams_;
};

}  // namespace vrdma::cli::kubernetes
