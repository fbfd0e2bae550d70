// Checks of what another daemon wrote about ids and connections, before any of it is used.
//
// A record is plain bytes in a file. A damaged one may hold enumerators that do not exist, flags
// that are neither true nor false, and times that overflow when they are added up.
#pragma once

#include "qp1mux/cm_id.h"

namespace vrdma::qp1mux {

// Whether CmId::record() could have made `record`, its connection included. Every field is in the
// range that the code relies on; whether ids, ports and addresses exist is for restore() to find
// out.
[[nodiscard]] bool is_sound(const CmIdRecord& record);

}  // namespace vrdma::qp1mux
