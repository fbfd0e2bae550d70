#include "cli/table.h"

#include <algorithm>
#include <cassert>

namespace vrdma::cli {

namespace {

constexpr char kNothing = '-';

}  // namespace

void Table::add(std::vector<std::string> cells) {
  assert(cells.size() == columns_.size());
  for (auto& cell : cells)
    if (cell.empty()) cell.push_back(kNothing);
  rows_.push_back(std::move(cells));
}

void Table::print(std::ostream& out) const {
  std::vector<size_t> widths, shown;
  std::vector<std::string> titles;
  for (size_t i = 0; i < columns_.size(); ++i) {
    const auto is_empty = [i](const auto& row) {
      return row[i].size() == 1 && row[i][0] == kNothing;
    };
    if (!columns_[i].if_any || !std::all_of(rows_.begin(), rows_.end(), is_empty))
      shown.push_back(i);
    size_t width = columns_[i].title.size();
    for (const auto& row : rows_) width = std::max(width, row[i].size());
    widths.push_back(width);
    titles.push_back(columns_[i].title);
  }
  const auto print_row = [&](const std::vector<std::string>& cells) {
    std::string line;
    for (const size_t i : shown) {
      const std::string blanks(widths[i] - cells[i].size(), ' ');
      line += i == 0 ? "" : "  ";
      line += columns_[i].align == Align::kRight ? blanks + cells[i] : cells[i] + blanks;
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out << line << '\n';
  };
  print_row(titles);
  for (const auto& row : rows_) print_row(row);
}

}  // namespace vrdma::cli
