#include "cli/kubernetes/plugin/service.h"

#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <grpcpp/server_posix.h>
#include <kubelet/deviceplugin.grpc.pb.h>

#include <chrono>
#include <mutex>
#include <set>

namespace vrdma::cli::kubernetes {

namespace {

using List = std::shared_ptr<const v1beta1::ListAndWatchResponse>;

}  // namespace

// Streams live in watchers_, whose mutex also guards the members of each.
class Service::Calls final : public v1beta1::DevicePlugin::CallbackService {
 public:
  Calls(std::string class_name, std::string resource, Observer observer)
      : class_name_(std::move(class_name)),
        resource_(std::move(resource)),
        observer_(std::move(observer)) {}

  void publish(v1beta1::ListAndWatchResponse devices) {
    const std::lock_guard lock(mutex_);
    list_ = std::make_shared<const v1beta1::ListAndWatchResponse>(std::move(devices));
    for (auto* watcher : watchers_) watcher->write();
  }

  grpc::ServerUnaryReactor* GetDevicePluginOptions(grpc::CallbackServerContext* context,
                                                   const v1beta1::Empty*,
                                                   v1beta1::DevicePluginOptions*) override {
    return finish(context, grpc::Status::OK);  // both are false
  }

  grpc::ServerUnaryReactor* Allocate(grpc::CallbackServerContext* context,
                                     const v1beta1::AllocateRequest* request,
                                     v1beta1::AllocateResponse* response) override {
    Allocation allocation = allocate(class_name_, resource_, *request);
    if (!allocation.reason.empty()) {
      observer_(Event::kRefused, allocation.reason);
      return finish(context, {grpc::StatusCode::INVALID_ARGUMENT, allocation.sentence});
    }
    for (int i = 0; i < request->container_requests_size(); ++i) observer_(Event::kAllocated, "");
    *response = std::move(allocation.answer);
    return finish(context, grpc::Status::OK);
  }

  grpc::ServerWriteReactor<v1beta1::ListAndWatchResponse>* ListAndWatch(
      grpc::CallbackServerContext*, const v1beta1::Empty*) override {
    return new Watcher(*this);  // deletes itself in OnDone()
  }

 private:
  // One stream. It sends the newest list, one StartWrite() at a time, and skips those that were
  // replaced meanwhile. Finish() is called once, by OnCancel() or a failed write; OnDone() is
  // gRPC's last call.
  class Watcher final : public grpc::ServerWriteReactor<v1beta1::ListAndWatchResponse> {
   public:
    explicit Watcher(Calls& calls) : calls_(calls) {
      calls_.observer_(Event::kStreamBegan, "");
      const std::lock_guard lock(calls_.mutex_);
      calls_.watchers_.insert(this);
      write();  // gRPC keeps it until it knows the reactor
    }
    // With the mutex.
    void write() {
      if (writing_ || finished_ || sent_ == calls_.list_) return;
      writing_ = true;
      sent_ = calls_.list_;
      StartWrite(sent_.get());
    }
    void OnWriteDone(bool ok) override {
      const std::lock_guard lock(calls_.mutex_);
      writing_ = false;
      ok ? write() : finish();
    }
    void OnCancel() override {
      const std::lock_guard lock(calls_.mutex_);
      finish();
    }
    void OnDone() override {
      calls_.observer_(Event::kStreamEnded, "");
      delete this;
    }

   private:
    void finish() {
      if (finished_) return;
      finished_ = true;
      calls_.watchers_.erase(this);
      Finish(grpc::Status::CANCELLED);
    }

    Calls& calls_;
    List sent_;  // stays until its write is done
    bool writing_ = false;
    bool finished_ = false;
  };

  static grpc::ServerUnaryReactor* finish(grpc::CallbackServerContext* context,
                                          const grpc::Status& status) {
    auto* const reactor = context->DefaultReactor();
    reactor->Finish(status);
    return reactor;
  }

  const std::string class_name_, resource_;
  const Observer observer_;
  std::mutex mutex_;  // guards the two below
  List list_;         // null until the first publish()
  std::set<Watcher*> watchers_;
};

struct Service::Server {
  std::unique_ptr<grpc::Server> grpc;
};

Service::Service(std::unique_ptr<Calls> calls)
    : calls_(std::move(calls)), server_(std::make_unique<Server>()) {}

base::Result<std::unique_ptr<Service>> Service::start(std::string class_name, std::string resource,
                                                      Observer observer) {
  std::unique_ptr<Service> service(new Service(
      std::make_unique<Calls>(std::move(class_name), std::move(resource), std::move(observer))));
  grpc::ServerBuilder builder;
  builder.RegisterService(service->calls_.get());
  service->server_->grpc = builder.BuildAndStart();  // without a listening port
  if (!service->server_->grpc) return base::fail(EAGAIN, "gRPC cannot start a server");
  return service;
}

Service::~Service() {
  // A deadline in the past cancels calls at once instead of waiting for their ends.
  if (server_->grpc) server_->grpc->Shutdown(std::chrono::system_clock::now());
}

void Service::add_client(base::Fd client) {
  grpc::AddInsecureChannelFromFd(server_->grpc.get(), client.release());
}

void Service::publish(v1beta1::ListAndWatchResponse devices) {
  calls_->publish(std::move(devices));
}

}  // namespace vrdma::cli::kubernetes
