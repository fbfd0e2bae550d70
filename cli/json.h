// The JSON of everything that vrdmactl prints, as text without a final newline; see output.h. A
// separate file, because the JSON library is slow to compile.
#pragma once

#include <vrdma/v1/admin.pb.h>

#include <map>
#include <string>
#include <vector>

namespace vrdma::cli {

[[nodiscard]] std::string json_of(const v1::Vdev& vdev);
[[nodiscard]] std::string json_of(const std::vector<v1::Vdev>& vdevs);
// [{"vdev": NAME, "vdev_id": N, "netns": NETNS, "quota": [...]}]
[[nodiscard]] std::string json_of_quota(const std::vector<v1::Vdev>& vdevs);
// [{"vdev": NAME, "vdev_id": N, "netns": NETNS, "gids": [...]}]
[[nodiscard]] std::string json_of_gids(const std::vector<v1::Vdev>& vdevs);
[[nodiscard]] std::string json_of(const std::vector<v1::Parent>& parents);
[[nodiscard]] std::string json_of(const std::vector<v1::Class>& classes);
[[nodiscard]] std::string json_of(const std::vector<v1::Claim>& claims);
[[nodiscard]] std::string json_of(const std::vector<v1::Budget>& budgets);
[[nodiscard]] std::string json_of(const std::vector<v1::Fabric>& fabrics);
[[nodiscard]] std::string json_of(const std::vector<v1::CgroupUse>& uses);
[[nodiscard]] std::string json_of(const std::vector<v1::Counter>& counters);
[[nodiscard]] std::string json_of(const std::vector<v1::Connection>& connections);
[[nodiscard]] std::string json_of(const std::vector<v1::QueuePair>& queue_pairs);
// On a single line, so that a reader can split events by lines.
[[nodiscard]] std::string json_of(const v1::WatchEvent& event);
struct TopRow;
// On a single line.
[[nodiscard]] std::string json_of(const std::vector<TopRow>& rows, double seconds);
[[nodiscard]] std::string json_of(const std::string& own, const v1::VersionResponse& daemon);

// "added", "changed", "removed"
[[nodiscard]] std::string event_name(v1::WatchEvent::Type type);
// Sorted by key.
// NAMESPACE/NAME of the pod of Kubernetes that has it; empty: none.
[[nodiscard]] std::string pod_of(const v1::Vdev& vdev);
[[nodiscard]] std::map<std::string, std::string> sorted_labels(
    const google::protobuf::Map<std::string, std::string>& labels);

}  // namespace vrdma::cli
