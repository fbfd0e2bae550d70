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

// Bounds of what the driver is offered, which has tables of these lengths.
constexpr uint32_t kMostQps = 16384, kMostCqs = 1023, kMostSrqs = 4096, kMostSges = 32,
                   kMostEntries = 16384, kMostPds = 1u << 20, kMostMrs = 1u << 20;
constexpr uint64_t kMostMrBytes = uint64_t{1} << 30;
constexpr uint32_t kGidTable = 64;
// Which of the free handles is given. The driver and the library of rdma-core have tables of some
// kinds of objects, from which they remove one after the command that destroys it. Another
// processor may have made the next by then, so the handles of these kinds are given in turn.
enum class Order : uint8_t { kLowest, kInTurn };
// By handle, from 1 on: rdma-core takes 0 for none.
template <class Object>
class Table {
 public:
  // Handles are below `most`.
  explicit Table(uint32_t most = 0, Order order = Order::kLowest) : most_(most), order_(order) {}
  [[nodiscard]] bool is_full() const { return free() >= most_; }
  // Not when it is full.
  Object* add(std::unique_ptr<Object> one) {
    const size_t handle = free();
    if (handle >= all_.size()) all_.resize(handle + 1);
    one->handle = static_cast<uint32_t>(handle);
    all_[handle] = std::move(one);
    if (order_ == Order::kInTurn) next_ = handle + 1;
    return all_[handle].get();
  }
  [[nodiscard]] Object* find(uint32_t handle) const {
    return handle < all_.size() ? all_[handle].get() : nullptr;
  }
  void remove(uint32_t handle) { all_[handle].reset(); }
  // One that had this handle before. False: no object of this table has.
  [[nodiscard]] bool put_back(uint32_t handle, std::unique_ptr<Object> one) {
    if (handle == 0 || handle >= most_) return false;
    if (handle >= all_.size()) all_.resize(handle + 1);
    one->handle = handle;
    all_[handle] = std::move(one);
    return true;
  }
  // One for which `holds(*it)`, or nullptr.
  template <class Condition>
  [[nodiscard]] Object* find_if(Condition holds) const {
    for (const auto& one : all_)
      if (one != nullptr && holds(*one)) return one.get();
    return nullptr;
  }
  // The process before gave this handle last. 0: none.
  void go_on_after(uint32_t handle) {
    if (order_ == Order::kInTurn && handle < most_) next_ = size_t{handle} + 1;
  }
  template <class Visit>
  void each(Visit visit) const {
    for (const auto& one : all_)
      if (one != nullptr) visit(one.get());
  }

 private:
  // At least `most_`: none.
  [[nodiscard]] size_t free() const {
    const auto is_free = [this](size_t i) { return i >= all_.size() || all_[i] == nullptr; };
    for (size_t i = next_; i < most_; ++i)
      if (is_free(i)) return i;
    for (size_t i = 1; i < next_; ++i)
      if (is_free(i)) return i;
    return most_;
  }
  uint32_t most_;
  Order order_;
  size_t next_ = 1;  // from here on
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

// Lost are those that ended with the process before: the driver's handles are left, without an
// object of verbs. Nothing can be done with them but to destroy them; a queue pair flushes what was
// posted and what is posted. Verbs do not know what a lost queue pair names, so destroy_cq() and
// destroy_pd() look for it.

struct Mr {
  uint32_t handle = 0;
  std::optional<uint32_t> lost_key;  // that the guest still uses for it
  Pages pages;                       // none, if it is of all memory
  Owned<ibv_mr> verbs;               // before `pages` in its end
};

// A look at a ring or queue that must be taken: it is once in each list of the attachment, however
// often the guest asks for it.
struct Pending {
  bool is_due = false, waits = false;
};

// The end of a request, as the driver gets it.
struct Ended {
  CompletionEntry entry{};
  bool is_receive = false;
  uint32_t position = 0;  // in the ring: those before it have ended then
};

struct Cq {
  uint32_t handle = 0, context = 0;
  Pages pages;
  Outgoing<CompletionEntry> ring;
  bool is_armed = false;
  bool has_untold = false;  // entries for which nobody was interrupted
  // When it was armed while entries lay there of which the driver had been told.
  std::optional<std::chrono::steady_clock::time_point> armed_over;
  std::optional<Ended> held;  // for which the ring has no room
  Pending completions, reminder;
  bool is_settling = false;
  bool is_broken = false;
  Owned<ibv_cq> verbs;
};

struct Srq {
  uint32_t handle = 0, context = 0;
  uint32_t max_sge = 0;
  Pages pages;
  Incoming ring;
  Pending shared;
  bool is_broken = false;
  [[nodiscard]] bool is_lost() const { return verbs == nullptr; }
  Owned<ibv_srq> verbs;
};

// IBTA: queue pair 1; verbs.h has no name for it.
constexpr auto kGsiType = static_cast<ibv_qp_type>(1);

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
  Pending pending_sends, pending_receives;
  bool is_broken = false;
  bool all_signaled = false;
  // The position of the last request of which verbs have not told the end that they will tell.
  std::optional<uint32_t> awaited;
  // By the place in the ring of sends: the wr_id that the guest gave. Verbs get the position.
  std::vector<uint64_t> send_ids;
  std::vector<bool> send_is_told;  // its completion came out of order
  // Positions of the first requests that have not ended, as far as is known.
  uint32_t first_send = 0, first_receive = 0;
  [[nodiscard]] bool is_lost() const { return verbs == nullptr; }
  [[nodiscard]] Incoming& sends_or_receives(bool is_receive) {
    return is_receive ? receives : sends;
  }
  Owned<ibv_qp> verbs;
};

}  // namespace vrdma::pvrdma
