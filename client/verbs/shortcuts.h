// Private calls of librdmacm and vrdma-pvrdma. The first: the state changes of verbs in fewer
// requests to the daemon; the second: memory that lies in files of a VMM, and what it says of it.
// They find the calls by verbs_context::priv. Another libibverbs uses that field for other
// purposes: librdmacm never sees its contexts, and vrdma-pvrdma is linked with ours.
//
// Errors and conventions as in virtual.h. Any thread.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <span>

#include "core/ipc/export_state.h"

namespace vrdma::client {

constexpr uint64_t kShortcuts = 0x3473747563747273;  // change it whenever the struct changes

struct Shortcuts {
  uint64_t magic = kShortcuts;
  // ibv_create_qp_ex, then ibv_modify_qp to INIT.
  ibv_qp* (*create_qp)(ibv_context* context, ibv_qp_init_attr_ex* attr, const ibv_qp_attr& init,
                       int init_mask);
  // ibv_modify_qp to RTR, then to RTS.
  int (*connect_qp)(ibv_qp* qp, const ibv_qp_attr& attr, int rtr_mask, int rts_mask);
  // ibv_modify_qp to ERR, without waiting for the daemon. A request posted before the transition
  // completes or is flushed.
  int (*fail_qp)(ibv_qp* qp);
  // True if the daemon ended the context or died, and none takes it over: its verbs fail with EIO.
  // Waits for a daemon as they do.
  bool (*is_lost)(ibv_context* context);
  // Shows these memory files, the page table first, in the place of what was shown before
  // (ipc::Call::kShowMemory). 0, or an errno: then all is as before.
  int (*show_memory)(ibv_context* context, std::span<const int> files);
  // ibv_reg_mr_iova of memory of which the page table knows each page: workers have it in place.
  ibv_mr* (*reg_shown_mr)(ibv_pd* pd, void* addr, size_t length, uint64_t iova,
                          unsigned int access);
  // What operators see of a virtual machine that the context's vdevice is shown to. As long as the
  // context.
  ipc::ExportState* (*export_state)(ibv_context* context);
};

[[nodiscard]] const Shortcuts* own_shortcuts();

// The shortcuts of a context; nullptr if another version of the library made it.
inline const Shortcuts* shortcuts_of(ibv_context* context) {
  verbs_context* all = verbs_get_ctx(context);
  const auto* its = all != nullptr ? reinterpret_cast<const Shortcuts*>(all->priv) : nullptr;
  return its != nullptr && its->magic == kShortcuts ? its : nullptr;
}

}  // namespace vrdma::client
