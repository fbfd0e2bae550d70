#include "gid/layout.h"

#include "core/base/printable.h"

namespace vrdma::gid {

base::Result<Layout> parse_layout(const std::string& text) {
  if (text.empty() || text == "dense") return Layout::kDense;
  if (text == "mlx5") return Layout::kMlx5;
  return base::fail(EINVAL, "'" + base::printable(text) +
                                "' is not a layout of a GID table: use 'dense' or 'mlx5'");
}

std::string text_of(Layout layout) { return layout == Layout::kMlx5 ? "mlx5" : "dense"; }

size_t room_of(Layout layout) {
  constexpr size_t kMlx5Spare = 2;  // index 2 is empty, index 3 repeats index 1
  return layout == Layout::kMlx5 ? verbs::kMaxGids - kMlx5Spare : verbs::kMaxGids;
}

std::vector<verbs::Gid> lay_out(const std::vector<verbs::Gid>& gids, Layout layout) {
  std::vector<verbs::Gid> table;
  auto next = gids.begin();
  if (next == gids.end()) return table;
  const bool starts_with_ipv4 = next->is_ipv4_mapped();
  table.push_back(*next);
  if (!starts_with_ipv4) ++next;
  if (layout == Layout::kMlx5) {
    const bool ipv4 = next != gids.end() && next->is_ipv4_mapped();
    const verbs::Gid first = ipv4 ? *next++ : verbs::Gid();
    table.insert(table.end(), {first, verbs::Gid(), first});
  }
  table.insert(table.end(), next, gids.end());
  if (table.size() > verbs::kMaxGids) table.resize(verbs::kMaxGids);
  while (table.back().is_unspecified()) table.pop_back();
  return table;
}

}  // namespace vrdma::gid
