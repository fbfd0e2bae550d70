// The JSON of everything that vrdmactl prints, as text without a final newline; see output.h. A
// separate file, because the JSON library is slow to compile.
#pragma once

#include <vrdma/v1/admin.pb.h>

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/error.h"

namespace vrdma::cli {

[[nodiscard]] std::string json_of(const v1::Vdev& vdev);
[[nodiscard]] std::string json_of(const std::vector<v1::Vdev>& vdevs);
// With "exports", which is null if they are not known.
[[nodiscard]] std::string json_of(const std::vector<v1::Vdev>& vdevs,
                                  const base::Result<std::vector<v1::Export>>& exports);
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
[[nodiscard]] std::string json_of(const std::vector<std::string>& texts);
// {"error": SENTENCE, "errno": N} on a single line.
[[nodiscard]] std::string json_of_error(const std::string& sentence, int code);

// "added", "changed", "removed"
[[nodiscard]] std::string event_name(v1::WatchEvent::Type type);

}  // namespace vrdma::cli
