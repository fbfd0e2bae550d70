// The columns of each table that vrdmactl prints, in the order of printing.
//
// A column has one name, which is its title and what `--columns` takes (in either case). Scripts
// read the columns that are printed by default, so these keep their place; a new one is kExtra.
#pragma once

#include <string>
#include <vector>

#include "core/base/error.h"

namespace vrdma::cli {

struct Column {
  enum Flag : unsigned {
    kRight = 1,   // aligned right: a number
    kIfAny = 2,   // by default only where a row has it
    kExtra = 4,   // not by default
    kCut = 8,     // it is cut where the terminal is too narrow
    kState = 16,  // coloured on a terminal
  };
  const char* name;
  unsigned flags = 0;
};
using Columns = std::vector<Column>;

extern const Columns kVdevColumns, kQuotaColumns, kCgroupColumns, kGidColumns, kClassColumns,
    kClaimColumns, kParentColumns, kBudgetColumns, kFabricColumns, kConnectionColumns,
    kQueuePairColumns, kCounterColumns, kTopColumns;

// "NAME, STATE, ..."
[[nodiscard]] std::string names_of(const Columns& columns);

// The indices of the columns of these names, in that order. EINVAL: there is no such column, or it
// is named twice.
[[nodiscard]] base::Result<std::vector<size_t>> find_columns(const Columns& columns,
                                                             const std::vector<std::string>& names);

}  // namespace vrdma::cli
