// Validates records of ids and connections that another daemon wrote, before they are used.
//
// A record is plain bytes in a file. A damaged record may contain undefined enumerators, flags
// other than 0 and 1, and times that overflow when they are added.
#pragma once

#include "qp1mux/cm_id.h"

namespace vrdma::qp1mux {

// Whether CmId::record() could have produced `record`, including its connection. Checks the range
// of every field that the code relies on. restore() checks whether ids, ports and addresses exist.
[[nodiscard]] bool is_sound(const CmIdRecord& record);

}  // namespace vrdma::qp1mux
