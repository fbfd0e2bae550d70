// Assigns the indices of the GID table to a vdevice's GIDs.
//
// Programs and scripts select a GID by its index, so the first indices are a convention:
//
//   index   dense                              mlx5
//   0       link-local GID of the MAC          the same
//   1       first IPv4 GID                     the same, or empty
//   2       the next GID                       empty
//   3       the next GID                       first IPv4 GID again, or empty
//   4 ...   the next GIDs                      the next GIDs
//
// "mlx5" has the IPv4 GID where an mlx5 adapter has its RoCE v2 GID, for scripts that set
// NCCL_IB_GID_INDEX=3. In both layouts index 1 is the first IPv4 GID. A netdev without a MAC has no
// such link-local GID, so index 0 holds the first IPv4 GID too. Without IPv4 addresses, a dense
// table starts with the first GID that there is.
#pragma once

#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/verbs/gid.h"

namespace vrdma::gid {

enum class Layout { kDense, kMlx5 };

// "dense" or "mlx5"; empty text means dense. EINVAL for anything else.
[[nodiscard]] base::Result<Layout> parse_layout(const std::string& text);
[[nodiscard]] std::string text_of(Layout layout);

// How many different GIDs a table of that layout holds.
[[nodiscard]] size_t room_of(Layout layout);

// Builds the table, by index, from the GIDs of a gid::Table. The unspecified GID marks an empty
// entry. At most verbs::kMaxGids entries; the last one is never empty.
[[nodiscard]] std::vector<verbs::Gid> lay_out(const std::vector<verbs::Gid>& gids, Layout layout);

}  // namespace vrdma::gid
