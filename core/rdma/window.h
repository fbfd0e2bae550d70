// Memory windows: a part of a memory region under a key of its own, bound and unbound by work
// requests.
//
// Type 1 is bound by ibv_bind_mw: every queue pair of its protection domain may use it, binding it
// again replaces what it was, binding it with length 0 unbinds it; who posts picks the new key.
// Type 2 is bound by IBV_WR_BIND_MW and of the kind 2B: only the queue pair by way of which it was
// bound may use it, and it must be unbound (LOCAL_INV, or SEND_WITH_INV of the peer) before it is
// bound again. A key's slot is the window's for life; the low 8 bits are the program's to choose.
// Rules: IBTA 10.6.7.2 (C10-72 .. C10-75, o10-36.2.2, o10-37.2.26 .. 40).
//
// What changes a key takes two steps, so that no access under the old key outlasts the request:
// the functions here change the entry, then the caller waits for KeyUsers.
#pragma once

#include <vector>

#include "core/rdma/device.h"

namespace vrdma::rdma {

// Whether the rules permit a BIND_WINDOW.
[[nodiscard]] bool may_bind(const Qp& qp, const ipc::SendWqe& wqe);
// Carries it out. kWindowBindError: the rules forbid it, nothing was changed.
[[nodiscard]] verbs::WcStatus bind_window(Qp& qp, const ipc::SendWqe& wqe);

// Whether `key` is one that a request on `qp` (LOCAL_INVALIDATE) or on its peer
// (SEND_WITH_INVALIDATE) may invalidate: that of a window of type 2 bound by way of `qp`.
[[nodiscard]] Mw* invalidatable(const Qp& qp, uint32_t key);

// Takes the key of `mw` away, if it is bound.
void unbind_window(Context& context, Mw& mw);

// How a window is bound: what another daemon needs.
struct Binding {
  uint32_t key = 0;  // also of a window that is not bound
  Mr* mr = nullptr;  // nullptr: it is not
  Qp* qp = nullptr;  // of type 2
  uint32_t access = 0;
  uint64_t addr = 0;  // virtual address
  uint64_t length = 0;
  uint64_t iova = 0;
};
[[nodiscard]] Binding binding_of(const Context& context, const Mw& mw);
// Binds `mw`, which is not bound, as a dead daemon had it. False: no request could have led there.
[[nodiscard]] bool restore_binding(Context& context, Mw& mw, const Binding& binding);

// The programs that were executing on direct links into a process when a key of it was changed:
// they may have found the key before, and still use its memory. (What a worker does under a key
// it does within one turn, or by jobs of Process::reach.)
class KeyUsers {
 public:
  // Those of now; `qp` nullptr: of all queue pairs of `context`.
  KeyUsers(const Context& context, const Qp* qp);
  // True once each has gone on, or has not for 100 ms: a stopped program is not waited for.
  [[nodiscard]] bool gone();

 private:
  struct User {
    std::weak_ptr<int> alive;
    const ipc::Word* busy;
    uint32_t mark;
  };
  void add(const Qp& qp);
  std::vector<User> users_;
  base::TimePoint until_;
};

}  // namespace vrdma::rdma
