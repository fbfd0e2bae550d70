#include "cli/kubernetes/dra/service.h"

#include <grpcpp/resource_quota.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <grpcpp/server_posix.h>
#include <kubelet/dra_v1.grpc.pb.h>
#include <kubelet/dra_v1beta1.grpc.pb.h>
#include <kubelet/health_v1.grpc.pb.h>
#include <kubelet/health_v1alpha1.grpc.pb.h>
#include <kubelet/health_v1beta1.grpc.pb.h>
#include <kubelet/pluginregistration.grpc.pb.h>

#include <chrono>
#include <mutex>

#include "api/keep_grpc.h"
#include "cli/kubernetes/kubelet/broadcast.h"

namespace vrdma::cli::kubernetes {

namespace {

namespace dra = k8s::io::kubelet::pkg::apis::dra;

constexpr int kMostThreads = 64;
// The kubelet uses the newest that it knows of each kind. These are names, not paths.
constexpr const char* kVersions[] = {"v1.DRAPlugin", "v1beta1.DRAPlugin", "v1.DRAResourceHealth",
                                     "v1beta1.DRAResourceHealth", "v1alpha1.DRAResourceHealth"};

ClaimName name_of(const kubelet::ClaimReference& claim) {
  return {claim.namespace_(), claim.name(), claim.uid()};
}

}  // namespace

struct DraService::Server {
  // `Version`: the generated class of the service.
  template <class Version>
  class ClaimCalls final : public Version::Service {
   public:
    explicit ClaimCalls(Claims& claims) : claims_(claims) {}

    grpc::Status NodePrepareResources(grpc::ServerContext*,
                                      const kubelet::NodePrepareResourcesRequest* request,
                                      kubelet::NodePrepareResourcesResponse* response) override {
      for (const auto& claim : request->claims())
        (*response->mutable_claims())[claim.uid()] = claims_.prepare(name_of(claim));
      return grpc::Status::OK;
    }
    grpc::Status NodeUnprepareResources(
        grpc::ServerContext*, const kubelet::NodeUnprepareResourcesRequest* request,
        kubelet::NodeUnprepareResourcesResponse* response) override {
      for (const auto& claim : request->claims())
        (*response->mutable_claims())[claim.uid()] = claims_.unprepare(name_of(claim));
      return grpc::Status::OK;
    }

   private:
    Claims& claims_;
  };

  using Health = Broadcast<kubelet::NodeWatchResourcesResponse>;

  template <class Version>
  class HealthCalls final : public Version::CallbackService {
   public:
    explicit HealthCalls(Health& health) : health_(health) {}

    grpc::ServerWriteReactor<kubelet::NodeWatchResourcesResponse>* NodeWatchResources(
        grpc::CallbackServerContext*, const kubelet::NodeWatchResourcesRequest*) override {
      return health_.open();
    }

   private:
    Health& health_;
  };

  class RegistrationCalls final : public pluginregistration::Registration::Service {
   public:
    RegistrationCalls(std::string driver, DraService::OnRegistered on_registered)
        : driver_(std::move(driver)), on_registered_(std::move(on_registered)) {}

    void set_endpoint(const std::string& path) {
      const std::lock_guard lock(mutex_);
      endpoint_ = path;
    }

    grpc::Status GetInfo(grpc::ServerContext*, const pluginregistration::InfoRequest*,
                         pluginregistration::PluginInfo* info) override {
      info->set_type("DRAPlugin");
      info->set_name(driver_);
      for (const char* const version : kVersions) info->add_supported_versions(version);
      const std::lock_guard lock(mutex_);
      info->set_endpoint(endpoint_);
      return grpc::Status::OK;
    }
    grpc::Status NotifyRegistrationStatus(
        grpc::ServerContext*, const pluginregistration::RegistrationStatus* status,
        pluginregistration::RegistrationStatusResponse*) override {
      on_registered_(status->plugin_registered() ? ""
                                                 : "the kubelet refuses it: " + status->error());
      return grpc::Status::OK;
    }

   private:
    const std::string driver_;
    const DraService::OnRegistered on_registered_;
    std::mutex mutex_;
    std::string endpoint_;
  };

  Server(Claims& claims, std::string driver, OnRegistered on_registered)
      : registration(std::move(driver), std::move(on_registered)),
        claims_v1(claims),
        claims_v1beta1(claims) {}

  Health health{[](bool) {}};
  RegistrationCalls registration;
  ClaimCalls<dra::v1::DRAPlugin> claims_v1;
  ClaimCalls<dra::v1beta1::DRAPlugin> claims_v1beta1;
  HealthCalls<::v1alpha1::DRAResourceHealth> health_v1alpha1{health};
  HealthCalls<::v1beta1::DRAResourceHealth> health_v1beta1{health};
  HealthCalls<::v1::DRAResourceHealth> health_v1{health};
  std::unique_ptr<grpc::Server> grpc;  // last: uses all members above
};

DraService::DraService(std::unique_ptr<Server> server) : server_(std::move(server)) {}

base::Result<std::unique_ptr<DraService>> DraService::start(Claims& claims, std::string driver,
                                                            OnRegistered on_registered) {
  auto server = std::make_unique<Server>(claims, std::move(driver), std::move(on_registered));
  api::keep_grpc();
  grpc::ResourceQuota quota;
  quota.SetMaxThreads(kMostThreads);
  grpc::ServerBuilder builder;
  builder.SetResourceQuota(quota);
  builder.SetSyncServerOption(grpc::ServerBuilder::SyncServerOption::NUM_CQS, 1);
  builder.SetSyncServerOption(grpc::ServerBuilder::SyncServerOption::MAX_POLLERS, 2);
  for (grpc::Service* const service : std::initializer_list<grpc::Service*>{
           &server->registration, &server->claims_v1, &server->claims_v1beta1,
           &server->health_v1alpha1, &server->health_v1beta1, &server->health_v1})
    builder.RegisterService(service);
  server->grpc = builder.BuildAndStart();  // without a listening port
  if (!server->grpc) return base::fail(EAGAIN, "gRPC cannot start a server");
  return std::unique_ptr<DraService>(new DraService(std::move(server)));
}

DraService::~DraService() {
  // A deadline in the past cancels calls at once instead of waiting for their ends.
  server_->grpc->Shutdown(std::chrono::system_clock::now());
}

void DraService::set_endpoint(const std::string& path) { server_->registration.set_endpoint(path); }

void DraService::add_client(base::Fd client) {
  grpc::AddInsecureChannelFromFd(server_->grpc.get(), client.release());
}

void DraService::publish(kubelet::NodeWatchResourcesResponse health) {
  server_->health.publish(std::move(health));
}

}  // namespace vrdma::cli::kubernetes
