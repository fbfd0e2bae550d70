// Between the structs of AdminBackend and the messages of vrdma.v1.
//
// A tenant chooses the names of its netdevs and cgroups, but protobuf requires UTF-8: one invalid
// name would make the whole reply unreadable. Such names go through base::printable(), also because
// they end on an operator's terminal.
#pragma once

#include <vrdma/v1/admin.pb.h>

#include <optional>
#include <string>
#include <vector>

#include "vrdmad/admin/backend.h"

namespace vrdma::vrdmad {

void fill(v1::Vdev& out, const VdevInfo& vdev);
void fill(v1::Budget& out, const BudgetInfo& budget);
void fill(v1::Fabric& out, const FabricInfo& fabric);
void fill(v1::WatchEvent& out, const WatchEvent& event);
void fill(v1::Connection& out, const ConnectionRow& row);
void fill(v1::Activity& out, const ActivityRow& row);
void fill(v1::QueuePair& out, const QueuePairRow& row);
void fill(v1::Export& out, const ExportRow& row);
void fill(v1::Parent& out, const ParentInfo& parent);
void fill(v1::Class& out, const ClassInfo& its);
void fill(v1::Claim& out, const ClaimInfo& info);
void fill(v1::ParkedProcess& out, const ParkedProcess& process);
[[nodiscard]] AttachedProcess process_of(const v1::ParkedProcess& process);
[[nodiscard]] ClaimSpec claim_of(const v1::Claim& claim);
template <class Rows>  // of v1::QuotaSetting
[[nodiscard]] std::vector<QuotaSetting> quota_of(const Rows& rows) {
  std::vector<QuotaSetting> quota;
  for (const auto& row : rows) quota.push_back({row.kind(), row.limit()});
  return quota;
}
void fill(v1::Event& out, const EventRow& event);
[[nodiscard]] EventRow::Time time_of_ms(int64_t ms);
// Events as bytes: a ListEventsResponse. Nothing: these are none.
[[nodiscard]] std::string bytes_of(const std::vector<EventRow>& events);
[[nodiscard]] std::optional<std::vector<EventRow>> events_of(const std::string& bytes);
[[nodiscard]] BudgetSpec::Scope scope_of(v1::Scope scope);

}  // namespace vrdma::vrdmad
