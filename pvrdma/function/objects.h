// What a driver has made, each with its object of verbs, and the tables in which
// their handles are found.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "pvrdma/device/adapter.h"
#include "pvrdma/device/guest_ram.h"
#include "pvrdma/encoding/entries.h"
#include "pvrdma/encoding/rings.h"

namespace vrdma::pvrdma {

// By handle, from 1 on: rdma-core takes 0 for none. The lowest one that is free is given.
template <class Object>
class Table {
 public:
  explicit Table(uint32_t most = 0) : most_(most) {}  // handles are below `most`
  [[nodiscard]] bool is_full() const { return free() >= most_; }
  // Not when it is full.
  Object* add(std::unique_ptr<Object> one) {
    const size_t handle = free();
    if (handle >= all_.size()) all_.resize(handle + 1);
    one->handle = static_cast<uint32_t>(handle);
    all_[handle] = std::move(one);
    return all_[handle].get();
  }
  [[nodiscard]] Object* find(uint32_t handle) const {
    return handle < all_.size() ? all_[handle].get() : nullptr;
  }
  void remove(uint32_t handle) { all_[handle].reset(); }

 private:
  [[nodiscard]] size_t free() const {
    for (size_t i = 1; i < all_.size(); ++i)
      if (all_[i] == nullptr) return i;
    return all_.empty() ? 1 : all_.size();
  }
  uint32_t most_;
  std::vector<std::unique_ptr<Object>> all_;
};

// A program of the guest that has the device open. The guest's kernel is context 0, page 0.
struct Context {
  uint32_t handle = 0;
  uint32_t page = 0;  // of doorbells
};

struct Pd {
  Pd(uint32_t owner, Owned<ibv_pd> made)
      : context(owner), verbs(std::move(made)), addresses(verbs.get()) {}
  uint32_t handle = 0, context;
  Owned<ibv_pd> verbs;
  AddressHandles addresses;  // before `verbs` in its end
};

struct Mr {
  uint32_t handle = 0;
  Pages pages;          // none, if it is of all memory
  Owned<ibv_mr> verbs;  // before `pages` in its end
};

struct Cq {
  uint32_t handle = 0, context = 0;
  Pages pages;
  Outgoing<CompletionEntry> ring;
  bool is_armed = false;
  bool has_untold = false;  // entries for which nobody was interrupted
  // When it was armed while entries lay there of which the driver had been told.
  std::optional<std::chrono::steady_clock::time_point> armed_over;
  std::optional<ibv_wc> held;  // for which the ring has no room
  bool waits = false, reminds = false, is_settling = false;
  bool is_broken = false;
  Owned<ibv_cq> verbs;
};

struct Srq {
  uint32_t handle = 0, context = 0;
  uint32_t max_sge = 0;
  Pages pages;
  Incoming ring;
  bool waits = false;  // as Qp's
  bool is_broken = false;
  Owned<ibv_srq> verbs;
};

struct Qp {
  uint32_t handle = 0, context = 0;
  Pd* pd = nullptr;
  Cq* send_cq = nullptr;
  Cq* recv_cq = nullptr;
  ibv_qp_type type{};
  uint32_t max_send_sge = 0, max_recv_sge = 0;
  Pages pages;
  Incoming sends, receives;
  ibv_qp_state state = IBV_QPS_RESET;  // that the driver has asked for
  // Entries wait for which verbs had no room.
  bool sends_wait = false, receives_wait = false;
  bool is_broken = false;
  Owned<ibv_qp> verbs;
};

}  // namespace vrdma::pvrdma
