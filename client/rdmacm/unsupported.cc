// Enhanced connection establishment (ECE), which vdevices do not support. If the process uses the
// system's library, its functions are called.
#include <rdma/rdma_cma.h>

#include <cerrno>

#include "client/dial/export.h"
#include "client/rdmacm/link.h"

namespace {

int unsupported() {
  errno = EOPNOTSUPP;
  return -1;
}

}  // namespace

#define VRDMA_UNSUPPORTED(type, name, parameters, ...)      \
  VRDMA_EXPORT type name parameters {                       \
    VRDMA_PASS_ON(static_cast<type>(-1), name, __VA_ARGS__) \
    return static_cast<type>(unsupported());                \
  }

VRDMA_UNSUPPORTED(int, rdma_set_local_ece, (rdma_cm_id * id, ibv_ece* ece), id, ece)
VRDMA_UNSUPPORTED(int, rdma_get_remote_ece, (rdma_cm_id * id, ibv_ece* ece), id, ece)
