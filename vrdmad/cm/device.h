// A vdevice's part in rdma_cm: its endpoint at queue pair 1, its addresses, what it may use.
//
// Belongs to the control thread. Only QpNumbers are shared with the workers.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/rdma/qp_numbers.h"
#include "provisioning/ledger.h"
#include "qp1mux/endpoint.h"

namespace vrdma::vrdmad {

class Cm;
class RawGsi;

struct CmDeviceSetup {
  uint64_t id = 0;
  std::string name, tenant, fabric;
  uint64_t netns = 0;      // its cookie
  uint64_t node_guid = 0;  // big-endian
  std::shared_ptr<rdma::QpNumbers> qp_numbers;
  provisioning::Ledger ledger;  // of it the kinds cm_*
  std::shared_ptr<RawGsi> gsi;  // none: not allowed
};

// The destructor tells the ids of the vdevice that it has gone.
class CmDevice {
 public:
  ~CmDevice();
  CmDevice(const CmDevice&) = delete;
  CmDevice& operator=(const CmDevice&) = delete;

  // `gids` as its table has them, see gid/layout.h.
  void update(const std::vector<verbs::Gid>& gids, uint32_t roce_mtu);

  // As Ledger has them; check_limits() says whether set_limits() will succeed. A rate may be set to
  // anything at any time.
  [[nodiscard]] base::Result<void> check_limits(const std::vector<provisioning::Setting>& limits);
  [[nodiscard]] base::Result<void> set_limits(const std::vector<provisioning::Setting>& limits);
  // Of the kinds cm_*; the rest is unused.
  [[nodiscard]] std::vector<provisioning::Row> rows();
  // The right of an id to be bound to it.
  [[nodiscard]] base::Result<std::shared_ptr<void>> charge_id();
  // The right of an event about such an id to wait for its program.
  [[nodiscard]] base::Result<provisioning::Charge> charge_event() {
    return setup_.ledger.charge(provisioning::Kind::kCmEvents, 1);
  }

  // 0: it has no limit.
  [[nodiscard]] uint64_t rate(provisioning::Kind kind) const {
    return provisioning::bound(setup_.ledger, kind);
  }
  [[nodiscard]] const std::string& fabric() const { return setup_.fabric; }
  [[nodiscard]] uint64_t netns() const { return setup_.netns; }
  [[nodiscard]] uint64_t node_guid() const { return setup_.node_guid; }
  [[nodiscard]] const std::vector<verbs::Gid>& gids() const { return gids_; }
  // The first index of it; 0 if it has it not.
  [[nodiscard]] uint8_t sgid_index(const verbs::Gid& gid) const;
  [[nodiscard]] uint8_t path_mtu() const { return path_mtu_; }  // ibv_mtu
  [[nodiscard]] qp1mux::Endpoint& endpoint() { return endpoint_; }

 private:
  friend class Cm;
  CmDevice(Cm& cm, CmDeviceSetup setup, qp1mux::Endpoint endpoint);
  void apply_limits();
  void count_connections();

  Cm& cm_;
  CmDeviceSetup setup_;
  provisioning::Charge connections_;  // as many as the endpoint had when last counted
  qp1mux::Endpoint endpoint_;
  std::vector<verbs::Gid> gids_;   // each once
  std::vector<verbs::Gid> table_;  // by index
  uint8_t path_mtu_ = 3;
};

}  // namespace vrdma::vrdmad
