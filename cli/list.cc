#include "cli/list.h"

#include <libsmartcols.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <cstdlib>
#include <memory>
#include <new>
#include <sstream>

namespace vrdma::cli {

namespace {

constexpr char kNothing = '-';

// libsmartcols fails only without memory.
template <class T>
T* made(T* object) {
  if (object == nullptr) throw std::bad_alloc();
  return object;
}
void done(int status) {
  if (status != 0) throw std::bad_alloc();
}

const char* colour_of(const std::string& state) {
  if (state == "ACTIVE") return "green";
  if (state == "LOST") return "red";
  return state == "DOWN" || state == "PENDING" ? "yellow" : nullptr;
}

}  // namespace

Style Style::of_output() {
  Style style;
  if (::isatty(STDOUT_FILENO) == 0) return style;
  winsize size{};
  style.width =
      ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
  const char* const no = std::getenv("NO_COLOR");
  const char* const terminal = std::getenv("TERM");
  style.colours =
      (no == nullptr || *no == '\0') && terminal != nullptr && std::string(terminal) != "dumb";
  return style;
}

void List::add(std::vector<std::string> cells) {
  assert(cells.size() == columns_.size());
  for (auto& cell : cells)
    if (cell.empty()) cell.push_back(kNothing);
  rows_.push_back(std::move(cells));
}

std::vector<size_t> List::printed() const {
  if (!style_.columns.empty()) return *find_columns(columns_, style_.columns);
  std::vector<size_t> printed;
  for (size_t i = 0; i < columns_.size(); ++i) {
    const auto has_it = [i](const auto& row) { return row[i] != std::string(1, kNothing); };
    const unsigned flags = columns_[i].flags;
    if ((flags & Column::kExtra) != 0) continue;
    if ((flags & Column::kIfAny) == 0 || std::any_of(rows_.begin(), rows_.end(), has_it))
      printed.push_back(i);
  }
  return printed;
}

void List::print(std::ostream& out) const {
  const auto indices = printed();
  if (rows_.empty()) {  // of which the library prints nothing
    for (const size_t i : indices) out << (i == indices[0] ? "" : "  ") << columns_[i].name;
    out << '\n';
    return;
  }
  const std::unique_ptr<libscols_table, decltype(&scols_unref_table)> table(made(scols_new_table()),
                                                                            scols_unref_table);
  done(scols_table_set_column_separator(table.get(), "  "));
  // The text goes to a string, so the library cannot see a terminal.
  done(scols_table_set_termforce(
      table.get(), style_.width > 0 ? SCOLS_TERMFORCE_ALWAYS : SCOLS_TERMFORCE_NEVER));
  if (style_.width > 0) done(scols_table_set_termwidth(table.get(), style_.width));
  done(scols_table_enable_colors(table.get(), style_.colours ? 1 : 0));
  for (const size_t i : indices) {
    const unsigned flags = columns_[i].flags;
    made(scols_table_new_column(table.get(), columns_[i].name, 0,
                                ((flags & Column::kRight) != 0 ? SCOLS_FL_RIGHT : 0) |
                                    ((flags & Column::kCut) != 0 ? SCOLS_FL_TRUNC : 0)));
  }
  for (const auto& row : rows_) {
    libscols_line* const line = made(scols_table_new_line(table.get(), nullptr));
    for (size_t at = 0; at < indices.size(); ++at) {
      const std::string& cell = row[indices[at]];
      done(scols_line_set_data(line, at, cell.c_str()));
      const bool is_state = (columns_[indices[at]].flags & Column::kState) != 0;
      if (const char* const colour = is_state ? colour_of(cell) : nullptr)
        done(scols_cell_set_color(scols_line_get_cell(line, at), colour));
    }
  }
  char* text = nullptr;
  done(scols_print_table_to_string(table.get(), &text));
  const std::unique_ptr<char, decltype(&std::free)> owner(text, &std::free);
  std::istringstream lines(text != nullptr ? text : "");
  for (std::string line; std::getline(lines, line);) {
    line.erase(line.find_last_not_of(' ') + 1);
    out << line << '\n';
  }
}

}  // namespace vrdma::cli
