#include "cli/kubernetes/plugin/service.h"

#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <grpcpp/server_posix.h>
#include <kubelet/deviceplugin.grpc.pb.h>

#include <chrono>

#include "api/keep_grpc.h"
#include "cli/kubernetes/kubelet/broadcast.h"

namespace vrdma::cli::kubernetes {

class Service::Calls final : public v1beta1::DevicePlugin::CallbackService {
 public:
  Calls(std::string class_name, std::string resource, Observer observer)
      : class_name_(std::move(class_name)),
        resource_(std::move(resource)),
        observer_(std::move(observer)),
        list_([this](bool begins) {
          observer_(begins ? Event::kStreamBegan : Event::kStreamEnded, "");
        }) {}

  void publish(v1beta1::ListAndWatchResponse devices) { list_.publish(std::move(devices)); }

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
    return list_.open();
  }

 private:
  static grpc::ServerUnaryReactor* finish(grpc::CallbackServerContext* context,
                                          const grpc::Status& status) {
    auto* const reactor = context->DefaultReactor();
    reactor->Finish(status);
    return reactor;
  }

  const std::string class_name_, resource_;
  const Observer observer_;
  Broadcast<v1beta1::ListAndWatchResponse> list_;
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
  api::keep_grpc();
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
