/* The header is one of C: compiled as C11, pedantically, and all of it used. */
#include <vrdma/vrdma.h>

int vrdma_h_in_c(void);

int vrdma_h_in_c(void) {
  struct vrdma_vdevice_spec spec = VRDMA_VDEVICE_SPEC_INIT;
  struct vrdma_limit limit = {"qp", VRDMA_NO_LIMIT};
  spec.quota = &limit;
  spec.quota_count = 1;
  return spec.size == sizeof spec && spec.name == NULL && spec.quota->limit == UINT64_MAX &&
         VRDMA_VDEVICE_REMOVED == 3 && VRDMA_DEVICE_VIRTUAL != VRDMA_DEVICE_PHYSICAL;
}
