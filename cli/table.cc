#include "cli/table.h"

#include <algorithm>
#include <cassert>

namespace vrdma::cli {

void Table::add(std::vector<std::string> cells) {
  assert(cells.size() == columns_.size());
  for (auto& cell : cells)
    if (cell.empty()) cell.push_back('-');
  rows_.push_back(std::move(cells));
}

void Table::print(std::ostream& out) const {
  std::vector<size_t> widths;
  std::vector<std::string> titles;
  for (size_t i = 0; i < columns_.size(); ++i) {
    size_t width = columns_[i].title.size();
    for (const auto& row : rows_) width = std::max(width, row[i].size());
    widths.push_back(width);
    titles.push_back(columns_[i].title);
  }
  const auto print_row = [&](const std::vector<std::string>& cells) {
    std::string line;
    for (size_t i = 0; i < cells.size(); ++i) {
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
