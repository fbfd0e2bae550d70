// A device of verbs without a daemon, for what is written on verbs: libibverbs' functions, defined
// by the test. Queue pairs reach each other by number; requests are executed when the test says so.
//
// It aborts on what no correct caller does: a key or an address that was never registered, an
// object that is freed while others use it, one that is freed twice, a page table that says
// something else than the process's mappings of a region that is shown to workers.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <set>
#include <span>
#include <vector>

#include "core/base/fd.h"
#include "core/ipc/export_state.h"

namespace vrdma::fake {

struct Region {
  uint64_t addr, length, iova;
  int access;
  bool shown = false;  // of Shortcuts::reg_shown_mr
};

struct Send {
  ibv_send_wr wr;
  std::vector<ibv_sge> sges;
};
struct Receive {
  uint64_t wr_id;
  std::vector<ibv_sge> sges;
};

struct Pd {
  ibv_pd ibv{};
  int users = 0;
};
struct Cq {
  ibv_cq ibv{};
  int users = 0;
  bool is_armed = false;
  std::deque<ibv_wc> ready;
};
struct Srq {
  ibv_srq ibv{};
  int users = 0;
  uint32_t max_wr = 0;
  std::deque<Receive> receives;
  ibv_srq_attr attr{};
};
struct Qp {
  ibv_qp ibv{};
  ibv_qp_init_attr init{};
  ibv_qp_attr attr{};
  std::deque<Send> sends;
  std::deque<Receive> receives;
};

// Behind ibv_reg_mr and its kin.
ibv_mr* make_mr(ibv_pd* pd, void* addr, size_t length, uint64_t iova, int access, bool shown);

class Verbs {
 public:
  Verbs();
  ~Verbs();

  // What the device has.
  std::vector<ibv_gid> gids;
  // Whether this process has such memory. What it does not have may be in regions on demand alone.
  std::function<bool(uint64_t addr, uint64_t length)> permits;
  uint32_t fail_after = UINT32_MAX;  // so many more objects can be made
  int view_error = 0;                // of Shortcuts::show_memory
  ipc::ExportState export_state;     // what operators see of the device
  size_t most_address_handles = SIZE_MAX;
  uint64_t posts = 0;  // requests and receives that were offered

  // Executes what was posted. The number of requests.
  size_t run();
  void event(ibv_event_type type, Qp* qp);

  [[nodiscard]] size_t objects() const { return made_; }  // that exist
  [[nodiscard]] size_t address_handles() const { return handles_; }
  [[nodiscard]] const std::map<uint32_t, Region>& regions() const { return regions_; }
  [[nodiscard]] Qp* find(uint32_t qpn) const;
  // The files that are shown to workers, the page table first; and how often they were told.
  [[nodiscard]] const std::vector<base::Fd>& shown() const { return shown_; }
  [[nodiscard]] size_t views() const { return views_; }
  // Entries of the page table.
  [[nodiscard]] static size_t entries_of(const base::Fd& page_table);

  // ---- behind the functions of libibverbs
  static Verbs* now;
  ibv_device device{};
  verbs_context extended{};
  ibv_context& context = extended.context;
  ibv_comp_channel channel{};
  std::deque<ibv_cq*> told;
  std::deque<ibv_async_event> events;
  [[nodiscard]] bool may_make();
  void unmake() { --made_; }
  void complete(ibv_cq* cq, const ibv_wc& wc);
  void flush(Qp* qp);
  uint32_t add_region(const Region& region);
  void remove_region(uint32_t key);
  [[nodiscard]] int show(std::span<const int> files);
  std::map<uint32_t, Qp*> qps;
  uint32_t next_qpn = 100;
  size_t handles_ = 0;

 private:
  void execute(Qp* qp, const Send& send);
  std::vector<uint8_t> gather(const std::vector<ibv_sge>& sges) const;
  uint32_t scatter(const std::vector<ibv_sge>& sges, const std::vector<uint8_t>& bytes) const;
  uint8_t* resolve(uint32_t key, uint64_t addr, uint64_t length, int access) const;
  [[nodiscard]] bool is_shown_right(uint64_t addr, uint64_t length) const;
  void deliver(Qp* from, Qp* to, const ibv_send_wr& wr, const std::vector<uint8_t>& bytes);
  std::map<uint32_t, Region> regions_;
  std::vector<base::Fd> shown_;
  size_t views_ = 0;
  uint32_t next_key_ = 0x1000;
  size_t made_ = 0;
};

}  // namespace vrdma::fake
