// The gRPC server of the DRA driver, for the kubelet: its registration, the claims (v1 and
// v1beta1), and the health of devices (v1alpha1, v1beta1 and v1). All versions of a service are one
// implementation.
//
// Calls about claims wait for the API server and vrdmad, each on a thread of gRPC, of which there
// are at most 64.
#pragma once

#include <kubelet/health.pb.h>

#include <functional>
#include <memory>
#include <string>

#include "cli/kubernetes/dra/claims.h"
#include "core/base/error.h"
#include "core/base/fd.h"

namespace vrdma::cli::kubernetes {

class DraService {
 public:
  // What the kubelet said of the registration: an empty text, or why it refuses it. Called on
  // gRPC's threads, where it must not block.
  using OnRegistered = std::function<void(const std::string& refusal)>;

  // EAGAIN: gRPC cannot start. `claims` must outlive the service.
  [[nodiscard]] static base::Result<std::unique_ptr<DraService>> start(Claims& claims,
                                                                       std::string driver,
                                                                       OnRegistered on_registered);
  DraService(const DraService&) = delete;
  DraService& operator=(const DraService&) = delete;
  ~DraService();  // ends all calls, and waits for those about claims

  // Where kubelets find the service: the absolute path of its socket. Before the first client.
  void set_endpoint(const std::string& path);
  // Any thread. `client` is a connected, non-blocking stream socket, of either socket.
  void add_client(base::Fd client);
  // Any thread. The health from now on; sent to the kubelet at once.
  void publish(kubelet::NodeWatchResourcesResponse health);

 private:
  struct Server;  // keeps gRPC's headers out of this one
  explicit DraService(std::unique_ptr<Server> server);
  std::unique_ptr<Server> server_;
};

}  // namespace vrdma::cli::kubernetes
