// One resource of the node: the class behind it, its gRPC server, its socket in the kubelet's
// directory, and its registration. Joins what others decide; event loop's thread only.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "cli/kubernetes/kubelet/directory.h"
#include "cli/kubernetes/kubelet/register_call.h"
#include "cli/kubernetes/node/health.h"
#include "cli/kubernetes/plugin/devices.h"
#include "cli/kubernetes/plugin/registration.h"
#include "cli/kubernetes/plugin/service.h"
#include "cli/kubernetes/plugin/socket_file.h"
#include "core/base/event_loop.h"
#include "core/base/random.h"
#include "core/serve/acceptor.h"

namespace vrdma::cli::kubernetes {

// For metrics and probes.
struct ResourceStatus {
  std::string class_name;
  std::string resource;  // "vrdma.io/small"
  // Why containers cannot ask for it now; empty: it is registered, or another instance serves it.
  std::string not_ready;
  std::optional<Unhealthy> unhealthy;
  Offer offer;  // to the kubelet
  uint64_t allocations = 0;
  std::map<std::string, uint64_t> refusals;  // by Allocation.reason
  uint64_t registered = 0, refused = 0;      // answers to Register
  double stream_age = 0;                     // seconds; 0: no stream
};

class Resource {
 public:
  // `loop` and `directory` must outlive it.
  [[nodiscard]] static base::Result<std::unique_ptr<Resource>> create(
      base::EventLoop& loop, const KubeletDirectory& directory, const std::string& domain,
      const std::string& class_name);

  // What is known of the class, and why CDI cannot be used (judge()). Publishes and logs changes.
  void update(const ClassNews& news, const std::string& cdi);
  // Listens and registers where that is due. After each look of the directory.
  void look();
  // Logs a change of the registration. Once a second, so that it omits states that pass.
  void tell();

  [[nodiscard]] ResourceStatus status() const;

 private:
  Resource(base::EventLoop& loop, const KubeletDirectory& directory, const std::string& domain,
           const std::string& class_name);
  void on_event(Service::Event event, const std::string& reason);
  [[nodiscard]] std::string listen();

  base::EventLoop& loop_;
  const KubeletDirectory& directory_;
  const std::string stem_;
  ResourceStatus status_;
  Registration registration_;
  uint32_t next_socket_ = base::random32();  // kept until it is used, so that errors do not change
  std::string listen_error_;
  std::string told_;  // by tell()
  base::EventLoop::Timer next_look_;
  const std::shared_ptr<int> alive_ = std::make_shared<int>(0);  // for events that are posted

  std::unique_ptr<Service> service_;
  std::optional<SocketFile> socket_;
  std::unique_ptr<serve::Acceptor> acceptor_;  // of socket_
  std::optional<RegisterCall> call_;
};

}  // namespace vrdma::cli::kubernetes
