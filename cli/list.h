// A table for people, printed by libsmartcols: a header and rows, columns two spaces apart.
//
// On a terminal, states have a colour (not if NO_COLOR is set, see no-color.org), and columns that
// may be cut make room for the others. Elsewhere every cell is whole.
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "cli/columns.h"

namespace vrdma::cli {

// How tables look.
struct Style {
  std::vector<std::string> columns = {};  // those to print; empty: the default ones
  bool exact = false;                     // sizes in bytes instead of 16G
  unsigned width = 0;                     // characters of the terminal; 0: it is none
  bool colours = false;

  // Of standard output.
  [[nodiscard]] static Style of_output();
};

class List {
 public:
  // `style.columns` must be names of `columns`. References both.
  List(const Columns& columns, const Style& style) : columns_(columns), style_(style) {}

  // `cells` has one entry per column, also for those that are not printed. An empty cell is printed
  // as "-", so that each line has the same number of words for awk.
  void add(std::vector<std::string> cells);

  // Prints lines without trailing spaces.
  void print(std::ostream& out) const;

 private:
  [[nodiscard]] std::vector<size_t> printed() const;  // indices

  const Columns& columns_;
  const Style& style_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace vrdma::cli
