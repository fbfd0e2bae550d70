// Which changes of a queue pair's state are legal, and with which attributes.
//
// Table-driven from IBTA 10.3.1 and 11.2.5.2 (tables "QP State Transition Properties"); the same
// rules as the kernel's ib_modify_qp_is_ok (drivers/infiniband/core/verbs.c).
#pragma once

#include <cstdint>

#include "core/verbs/types.h"

namespace vrdma::rdma {

// True if a queue pair of `type` may go from `from` to `to` with exactly the attributes in `mask`
// (verbs::QpAttrMask; kQpState itself is ignored): all required ones and no others than optional.
[[nodiscard]] bool modify_is_legal(verbs::QpType type, verbs::QpState from, verbs::QpState to,
                                   uint32_t mask);

}  // namespace vrdma::rdma
