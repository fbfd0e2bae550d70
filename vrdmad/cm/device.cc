#include "vrdmad/cm/device.h"

#include <algorithm>

#include "core/verbs/mtu.h"
#include "vrdmad/cm/cm.h"
#include "vrdmad/cm/gsi_relay.h"

namespace vrdma::vrdmad {

using base::Result;
using provisioning::Kind;
using verbs::Gid;

CmDevice::CmDevice(Cm& cm, CmDeviceSetup setup, qp1mux::Endpoint endpoint)
    : cm_(cm), setup_(std::move(setup)), endpoint_(std::move(endpoint)) {
  apply_limits();
  if (setup_.gsi != nullptr) setup_.gsi->attach(&endpoint_);
}

CmDevice::~CmDevice() {
  if (setup_.gsi != nullptr) setup_.gsi->attach(nullptr);
  cm_.gone(*this);
}

void CmDevice::update(const std::vector<Gid>& gids, uint32_t roce_mtu) {
  path_mtu_ = verbs::mtu_code(roce_mtu);
  if (gids == table_) return;
  std::vector<Gid> own;
  for (const Gid& gid : gids)
    if (!gid.is_unspecified() && std::find(own.begin(), own.end(), gid) == own.end())
      own.push_back(gid);
  if (!endpoint_.set_gids(own)) return;
  table_ = gids;
  gids_ = std::move(own);
}

uint8_t CmDevice::sgid_index(const Gid& gid) const {
  const auto it = std::find(table_.begin(), table_.end(), gid);
  return it == table_.end() ? 0 : static_cast<uint8_t>(it - table_.begin());
}

void CmDevice::apply_limits() {
  qp1mux::Limits limits;
  limits.requests_per_second = static_cast<uint32_t>(setup_.ledger.limit(Kind::kCmRate));
  limits.burst = limits.requests_per_second;
  limits.early = static_cast<uint32_t>(setup_.ledger.limit(Kind::kCmEarly));
  // To the endpoint, a rate of 0 means unlimited.
  if (limits.requests_per_second > 0)
    limits.connections = static_cast<uint32_t>(setup_.ledger.limit(Kind::kCmConns));
  else
    limits.connections = 0;
  limits.pending = limits.connections;
  constexpr uint64_t kShare = 4;  // of the queue pairs
  limits.unproven =
      static_cast<uint32_t>(std::max<uint64_t>(setup_.ledger.limit(Kind::kQp) / kShare, 1));
  endpoint_.set_limits(limits);
}

// The endpoint enforces the limit; the ledger needs the number for checks and for display.
void CmDevice::count_connections() {
  connections_.reset();
  if (auto all = setup_.ledger.charge(Kind::kCmConns, endpoint_.use().connections))
    connections_ = std::move(*all);
}

Result<void> CmDevice::check_limits(const std::vector<provisioning::Setting>& limits) {
  count_connections();
  return setup_.ledger.check_limits(limits);
}

Result<void> CmDevice::set_limits(const std::vector<provisioning::Setting>& limits) {
  count_connections();
  if (auto ok = setup_.ledger.set_limits(limits); !ok) return ok;
  apply_limits();
  cm_.set_rates(netns());
  return {};
}

std::vector<provisioning::Row> CmDevice::rows() {
  count_connections();
  const qp1mux::Counters& counters = endpoint_.counters();
  auto rows = setup_.ledger.rows();
  for (auto& row : rows) {
    if (row.kind == Kind::kCmConns) row.refused = counters.crowded;
    if (row.kind == Kind::kCmEarly) {
      row.used = endpoint_.use().early;
      row.refused = counters.impatient;
    }
    if (row.kind != Kind::kCmRate) continue;
    row.used = endpoint_.use().requests;
    row.refused = counters.over_rate;
  }
  return rows;
}

Result<void> CmDevice::check_room(const Arriving& more) const {
  const auto lacks = [this](Kind kind, uint64_t used, uint64_t wanted) {
    return used + wanted > setup_.ledger.limit(kind);
  };
  const auto beyond = [](Kind kind) {
    return base::fail(
        ENOMEM, "its connections exceed the limit " + std::string(provisioning::traits(kind).name));
  };
  if (lacks(Kind::kCmIds, setup_.ledger.used(Kind::kCmIds), more.ids)) return beyond(Kind::kCmIds);
  if (lacks(Kind::kCmEvents, setup_.ledger.used(Kind::kCmEvents), more.events))
    return beyond(Kind::kCmEvents);
  if (lacks(Kind::kCmConns, endpoint_.use().connections, more.connections))
    return beyond(Kind::kCmConns);
  return {};
}

Result<std::shared_ptr<void>> CmDevice::charge_id() {
  auto charge = setup_.ledger.charge(Kind::kCmIds, 1);
  if (!charge) return base::pass(std::move(charge.error()));
  return std::make_shared<provisioning::Charge>(std::move(*charge));
}

}  // namespace vrdma::vrdmad
