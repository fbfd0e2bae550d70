// The gRPC server of one resource: DevicePlugin for the kubelet.
//
// gRPC's threads answer from the name of the class and from the list that publish() has set, so
// that the kubelet never waits for another thread or for vrdmad. They report what has happened to
// `observer`.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "cli/kubernetes/plugin/devices.h"
#include "core/base/error.h"
#include "core/base/fd.h"

namespace vrdma::cli::kubernetes {

class Service {
 public:
  enum class Event { kStreamBegan, kStreamEnded, kAllocated, kRefused };
  // Called on gRPC's threads, where it must not block. `reason`: of kRefused, as Allocation.reason.
  using Observer = std::function<void(Event event, const std::string& reason)>;

  // EAGAIN: gRPC cannot start.
  [[nodiscard]] static base::Result<std::unique_ptr<Service>> start(std::string class_name,
                                                                    std::string resource,
                                                                    Observer observer);
  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;
  ~Service();  // ends all calls and waits for them; streams end without another list

  // Any thread. `client` is a connected, non-blocking stream socket.
  void add_client(base::Fd client);
  // Any thread. The devices from now on; sent to the kubelet at once.
  void publish(v1beta1::ListAndWatchResponse devices);

 private:
  class Calls;
  explicit Service(std::unique_ptr<Calls> calls);
  struct Server;  // keeps gRPC's headers out of this one
  std::unique_ptr<Calls> calls_;
  std::unique_ptr<Server> server_;  // after calls_, which it uses
};

}  // namespace vrdma::cli::kubernetes
