// Which index of the GID table each GID of a vdevice has.
//
// Programs and scripts name a GID by its index, so the first indices are a convention:
//
//   index   dense                              mlx5
//   0       link-local GID of the MAC          the same
//   1       first IPv4 GID                     the same, or empty
//   2       the next GID                       empty
//   3       the next GID                       first IPv4 GID again, or empty
//   4 ...   the next GIDs                      the next GIDs
//
// "mlx5" has the IPv4 GID where an mlx5 adapter has its RoCE v2 one, for scripts that say
// NCCL_IB_GID_INDEX=3. In both layouts index 1 is the first IPv4 GID. A netdev without a MAC has no
// link-local GID of one: index 0 holds the first IPv4 GID as well. Without any IPv4 address a
// dense table begins with what there is.
#pragma once

#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/verbs/gid.h"

namespace vrdma::gid {

enum class Layout { kDense, kMlx5 };

// "dense", "mlx5"; empty text is dense. EINVAL: no layout.
[[nodiscard]] base::Result<Layout> parse_layout(const std::string& text);
[[nodiscard]] std::string text_of(Layout layout);

// How many GIDs a table of that layout holds.
[[nodiscard]] size_t room_of(Layout layout);

// The table by index, of what gid::Table holds. The unspecified GID marks an empty entry. At most
// verbs::kMaxGids entries, and the last one is never empty.
[[nodiscard]] std::vector<verbs::Gid> lay_out(const std::vector<verbs::Gid>& gids, Layout layout);

}  // namespace vrdma::gid
