// A vdevice's part in rdma_cm: its endpoint at queue pair 1, its addresses and its limits.
//
// Belongs to the control thread. A worker writes the table of queue pair numbers.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/rdma/qp_number_table.h"
#include "provisioning/ledger.h"
#include "qp1mux/endpoint.h"

namespace vrdma::vrdmad {

class Cm;
class GsiRelay;

struct CmDeviceSetup {
  uint64_t id = 0;
  std::string name, tenant, fabric;
  uint64_t netns = 0;      // its cookie
  uint64_t node_guid = 0;  // big-endian
  rdma::QpNumberReader qp_numbers;
  provisioning::Ledger ledger;    // only its kinds cm_* are used
  std::shared_ptr<GsiRelay> gsi;  // null: not allowed
  uint8_t ack_delay = 15;         // a code, as verbs::Capabilities::ack_delay
  uint32_t number = 0;            // of its session socket
};

// The destructor reports the removal to the ids bound to the vdevice.
class CmDevice {
 public:
  ~CmDevice();
  CmDevice(const CmDevice&) = delete;
  CmDevice& operator=(const CmDevice&) = delete;

  // `gids`: its GID table, see gid/layout.h.
  void update(const std::vector<verbs::Gid>& gids, uint32_t roce_mtu);

  // As in Ledger; check_limits() returns whether set_limits() will succeed. A rate may change to
  // any value at any time.
  [[nodiscard]] base::Result<void> check_limits(const std::vector<provisioning::Setting>& limits);
  [[nodiscard]] base::Result<void> set_limits(const std::vector<provisioning::Setting>& limits);
  // Only the kinds cm_* are used.
  [[nodiscard]] std::vector<provisioning::Row> rows();
  // Charges one id bound to the vdevice until the result is released.
  [[nodiscard]] base::Result<std::shared_ptr<void>> charge_id();
  // Charges one unread event of such an id.
  [[nodiscard]] base::Result<provisioning::Charge> charge_event() {
    return setup_.ledger.charge(provisioning::Kind::kCmEvents, 1);
  }

  // Whether its limits leave room for so many more of these, which come from elsewhere. ENOMEM.
  struct Arriving {
    uint32_t ids = 0, events = 0, connections = 0;
  };
  [[nodiscard]] base::Result<void> check_room(const Arriving& more) const;

  // 0: unlimited
  [[nodiscard]] uint64_t rate(provisioning::Kind kind) const {
    return provisioning::bound(setup_.ledger, kind);
  }
  // As qp1mux::Endpoint::set_island().
  void set_island(uint64_t island) { endpoint_.set_island(island); }

  [[nodiscard]] const std::string& fabric() const { return setup_.fabric; }
  [[nodiscard]] uint64_t netns() const { return setup_.netns; }
  [[nodiscard]] uint8_t ack_delay() const { return setup_.ack_delay; }
  [[nodiscard]] uint64_t node_guid() const { return setup_.node_guid; }
  [[nodiscard]] const std::string& name() const { return setup_.name; }
  [[nodiscard]] uint32_t number() const { return setup_.number; }
  [[nodiscard]] const std::vector<verbs::Gid>& gids() const { return gids_; }
  // Unspecified: none.
  [[nodiscard]] verbs::Gid gid_at(size_t index) const {
    return index < table_.size() ? table_[index] : verbs::Gid();
  }
  // The first index of `gid`, or 0 if it is not in the table.
  [[nodiscard]] uint8_t sgid_index(const verbs::Gid& gid) const;
  [[nodiscard]] uint8_t path_mtu() const { return path_mtu_; }  // as enum ibv_mtu
  [[nodiscard]] qp1mux::Endpoint& endpoint() { return endpoint_; }

 private:
  friend class Cm;
  CmDevice(Cm& cm, CmDeviceSetup setup, qp1mux::Endpoint endpoint);
  void apply_limits();
  void count_connections();

  Cm& cm_;
  CmDeviceSetup setup_;
  provisioning::Charge connections_;  // the number that the endpoint had at the last count
  qp1mux::Endpoint endpoint_;
  std::vector<verbs::Gid> gids_;   // without duplicates
  std::vector<verbs::Gid> table_;  // by index
  uint8_t path_mtu_ = 3;
};

}  // namespace vrdma::vrdmad
