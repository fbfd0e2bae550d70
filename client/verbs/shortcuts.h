// What librdmacm asks of our queue pairs besides verbs: the same changes in fewer questions to the
// daemon. It finds them by verbs_context::priv, in which a libibverbs of other makers keeps what is
// its own; but contexts of those never come to our librdmacm.
//
// Errors and conventions as in virtual.h. Any thread.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

namespace vrdma::client {

constexpr uint64_t kShortcuts = 0x3173747563747273;  // another one whenever the struct changes

struct Shortcuts {
  uint64_t magic = kShortcuts;
  // ibv_create_qp_ex and ibv_modify_qp to INIT.
  ibv_qp* (*create_qp)(ibv_context* context, ibv_qp_init_attr_ex* attr, const ibv_qp_attr& init,
                       int init_mask);
  // ibv_modify_qp to RTR and to RTS.
  int (*connect_qp)(ibv_qp* qp, const ibv_qp_attr& attr, int rtr_mask, int rts_mask);
  // ibv_modify_qp to ERR, without waiting: what is posted before it has come about completes, or is
  // flushed.
  int (*fail_qp)(ibv_qp* qp);
};

[[nodiscard]] const Shortcuts* own_shortcuts();

// Those of a context, or nullptr: of another version of the library.
inline const Shortcuts* shortcuts_of(ibv_context* context) {
  verbs_context* all = verbs_get_ctx(context);
  const auto* its = all != nullptr ? reinterpret_cast<const Shortcuts*>(all->priv) : nullptr;
  return its != nullptr && its->magic == kShortcuts ? its : nullptr;
}

}  // namespace vrdma::client
