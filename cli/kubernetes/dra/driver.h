// The DRA driver of a node: a device for each class of vrdmad, which claims share. Begin here.
//
// Joins what the others do. The event loop's thread describes the devices, and looks after the
// sockets; slice_keeper.h and claim_keeper.h have a thread each, and calls of the kubelet are on
// threads of gRPC (service.h). Nothing is remembered across a restart.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/kubernetes/dra/api_server.h"
#include "cli/kubernetes/dra/claim_keeper.h"
#include "cli/kubernetes/dra/claims.h"
#include "cli/kubernetes/dra/service.h"
#include "cli/kubernetes/dra/slice_keeper.h"
#include "cli/kubernetes/node/cdi_file.h"
#include "cli/kubernetes/node/class_table.h"
#include "cli/kubernetes/node/class_watch.h"
#include "cli/kubernetes/node/directory_watch.h"
#include "cli/kubernetes/plugin/socket_file.h"
#include "core/base/event_loop.h"
#include "core/serve/acceptor.h"

namespace vrdma::cli::kubernetes {

struct DriverStatus {
  std::string not_ready;  // why pods cannot get a device, or not each; empty: they can
  std::map<std::string, Unhealthy> unhealthy;  // by class
  SliceKeeper::Status slices;
  const Claims::Counts* claims = nullptr;  // of the driver
  uint64_t registered = 0, refused = 0;    // answers of the kubelet
};

class Driver {
 public:
  struct Places {
    std::string run_dir, cdi, domain;  // as Plugin::Places; domain: the driver's name
    std::string kubelet_root;          // "/var/lib/kubelet"
    std::string claims_dir;            // of CDI files: "/var/run/cdi"
    std::string node;                  // its name in the cluster
    ApiServer::Places api;
  };
  // `loop` must outlive the driver.
  [[nodiscard]] static base::Result<std::unique_ptr<Driver>> start(base::EventLoop& loop,
                                                                   const Places& places);
  Driver(const Driver&) = delete;
  Driver& operator=(const Driver&) = delete;
  ~Driver();

  [[nodiscard]] DriverStatus status();

 private:
  // A socket of the service, in the directory of the kubelet.
  struct Door {
    SocketFile file;
    std::unique_ptr<serve::Acceptor> acceptor;
  };
  Driver(base::EventLoop& loop, const Places& places);
  [[nodiscard]] base::Result<Door> open_door(const std::string& directory, const std::string& stem);
  [[nodiscard]] base::Result<void> open_doors();
  void tick();
  void look_after_doors();
  void update();
  void publish_health();
  void on_registered(const std::string& refusal);

  base::EventLoop& loop_;
  const Places places_;
  const std::string registry_, directory_;  // of the two sockets
  CdiFile cdi_;
  ClassTable classes_;
  struct Device {
    PoolDevice offered;
    std::optional<Unhealthy> unhealthy;
    bool operator==(const Device&) const = default;
  };
  std::map<std::string, Device> devices_;  // by class
  base::TimePoint health_sent_{};
  std::string door_error_, registration_ = "the kubelet has not registered it";
  uint64_t registered_ = 0, refused_ = 0;
  std::unique_ptr<DirectoryWatch> claim_files_;
  base::EventLoop::Timer timer_;
  const std::shared_ptr<int> alive_ = std::make_shared<int>(0);  // for what is posted

  ApiServer server_;
  Claims claims_;
  std::unique_ptr<DraService> service_;
  std::optional<Door> endpoint_, registrar_;  // registrar_ last, because it leads to the other
  std::unique_ptr<SliceKeeper> slice_keeper_;
  std::unique_ptr<ClaimKeeper> claim_keeper_;
  std::unique_ptr<ClassWatch> watch_;  // last: calls the driver
};

}  // namespace vrdma::cli::kubernetes
