// A table for people: a header and rows; columns are as wide as their longest cell, two spaces
// apart.
#pragma once

#include <ostream>
#include <string>
#include <vector>

namespace vrdma::cli {

class Table {
 public:
  enum class Align { kLeft, kRight };  // kRight: for numbers
  struct Column {
    std::string title;
    Align align = Align::kLeft;
    bool if_any = false;  // it is not printed if all its cells are empty
  };

  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

  // `cells` has one entry per column. An empty cell is printed as "-", so that each line has the
  // same number of words for awk.
  void add(std::vector<std::string> cells);

  // Prints lines without trailing spaces.
  void print(std::ostream& out) const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace vrdma::cli
