// The vdevice that a guest gets, as any program sees it: an open verbs device.
//
// One thread, that of the loop. All objects of verbs that are made with context() must be gone
// before it is.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/base/event_loop.h"
#include "core/ipc/export_state.h"
#include "pvrdma/device/shown_memory.h"

namespace vrdma::pvrdma {

// What of it happens between calls.
class AdapterEvents {
 public:
  virtual ~AdapterEvents() = default;
  // The CQ has told its channel; the event is acknowledged, and the CQ not armed.
  virtual void on_completions(ibv_cq* cq) = 0;
  // Acknowledged after the call.
  virtual void on_event(const ibv_async_event& event) = 0;
};

// Frees an object of verbs. 0, or the errno of verbs.
struct Destroy {
  int operator()(ibv_context* one) const { return ::ibv_close_device(one); }
  int operator()(ibv_comp_channel* one) const { return ::ibv_destroy_comp_channel(one); }
  int operator()(ibv_pd* one) const { return ::ibv_dealloc_pd(one); }
  int operator()(ibv_mr* one) const { return ::ibv_dereg_mr(one); }
  int operator()(ibv_cq* one) const { return ::ibv_destroy_cq(one); }
  int operator()(ibv_qp* one) const { return ::ibv_destroy_qp(one); }
  int operator()(ibv_srq* one) const { return ::ibv_destroy_srq(one); }
  int operator()(ibv_ah* one) const { return ::ibv_destroy_ah(one); }
};
template <class Object>
using Owned = std::unique_ptr<Object, Destroy>;

class Adapter : public MemoryViewer {
 public:
  // `name` as ibv_devices(1) prints it. Empty: the only one.
  [[nodiscard]] static base::Result<std::unique_ptr<Adapter>> open(base::EventLoop& loop,
                                                                   const std::string& name);
  ~Adapter() override = default;
  Adapter(const Adapter&) = delete;
  Adapter& operator=(const Adapter&) = delete;

  // nullptr: nobody; what happens then is acknowledged and forgotten.
  void set_events(AdapterEvents* events) { events_ = events; }

  // 0, or an errno. ENOTSUP: the library is another one.
  [[nodiscard]] int view(std::span<const int> files) override;
  // ibv_reg_mr_iova. `shown`: view() shows all of it.
  [[nodiscard]] ibv_mr* reg_mr(ibv_pd* pd, uint8_t* addr, uint64_t length, uint64_t iova,
                               unsigned int access, bool shown) const;

  [[nodiscard]] ibv_context* context() const { return context_.get(); }
  [[nodiscard]] ibv_comp_channel* channel() const { return channel_.get(); }
  [[nodiscard]] const ibv_device_attr& attributes() const { return attributes_; }
  // What operators see. If the library is another one, nobody does.
  [[nodiscard]] ipc::ExportState& export_state() { return *export_state_; }
  [[nodiscard]] std::optional<ibv_port_attr> port() const;

  // The entry of the vdevice's table that has this GID.
  [[nodiscard]] std::optional<uint8_t> index_of(const ibv_gid& gid);
  [[nodiscard]] std::optional<ibv_gid> gid(uint8_t index);

 private:
  Adapter() = default;
  void read_gids();
  void take_completions();
  void take_events();

  Owned<ibv_context> context_;
  Owned<ibv_comp_channel> channel_;
  ibv_device_attr attributes_{};
  ipc::ExportState unseen_;
  ipc::ExportState* export_state_ = &unseen_;
  std::vector<ibv_gid> gids_;
  bool gids_known_ = false;
  AdapterEvents* events_ = nullptr;
  base::EventLoop::Watch completions_watch_, events_watch_;
};

// Address handles of one PD, made when they are first needed and kept while they are used.
class AddressHandles {
 public:
  explicit AddressHandles(ibv_pd* pd) : pd_(pd) {}
  // nullptr: none can be made, and errno says why.
  [[nodiscard]] ibv_ah* find(const ibv_ah_attr& attr);
  [[nodiscard]] bool empty() const { return entries_.empty(); }
  // A datagram that was posted has its address with it.
  void evict_oldest() { entries_.pop_back(); }

 private:
  static constexpr size_t kMost = 64;
  struct Entry {
    ibv_ah_attr attr;
    Owned<ibv_ah> ah;
  };
  ibv_pd* pd_;
  std::list<Entry> entries_;  // the last used first
};

}  // namespace vrdma::pvrdma
