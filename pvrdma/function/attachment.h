// What the driver of a guest has, from the moment that it tells its shared region until it resets
// the device: rings, objects, GIDs. All of it goes with the attachment.
//
// Commands (commands_*.cc) make, change and destroy objects; a doorbell says where to look, and
// work() looks: it moves work requests from the guest's rings to verbs, and completions the other
// way (datapath.cc). A queue pair's number and a region's keys are those of the vdevice; handles
// are the driver's.
//
// Everything in guest memory is hostile: it is copied once, then checked. A wrong command fails. A
// wrong work request completes with IBV_WC_LOC_QP_OP_ERR and brings its queue pair to ERR. So does
// a ring whose index is none, of which the driver gets an event. A datagram for whose source the
// vdevice has no address now, or for whose destination no address handle, is lost as on a network:
// the guest's addresses come and go while its connection manager repeats its messages.
//
// One thread. The parameters of create() must outlive it.
#pragma once

#include <array>
#include <bit>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "pvrdma/device/adapter.h"
#include "pvrdma/device/guest_ram.h"
#include "pvrdma/encoding/commands.h"
#include "pvrdma/encoding/registers.h"
#include "pvrdma/encoding/shared_region.h"
#include "pvrdma/function/image.h"
#include "pvrdma/function/objects.h"

namespace vrdma::pvrdma {

// Whether a ring of `entries`, each of `stride` bytes, is one and fits into so many pages.
[[nodiscard]] constexpr bool fits(uint32_t entries, uint64_t stride, uint64_t pages) {
  return std::has_single_bit(entries) && entries <= kMostEntries &&
         entries * stride <= pages * kPageSize;
}
// What the driver reads in its shared region.
[[nodiscard]] Capabilities capabilities_of(const Adapter& adapter);

// Of each kind so many are in the log: a guest can cause as many as it likes.
constexpr uint64_t kMostComplaints = 100;

// Raises interrupts of the function.
class Interrupts {
 public:
  virtual ~Interrupts() = default;
  virtual void raise(uint32_t vector) = 0;
};

class Attachment final : AdapterEvents {
 public:
  // Looks at the shared region at `address` and writes there what the device can do. Calls `wake`
  // when there is work() that nobody has asked for.
  [[nodiscard]] static base::Result<std::unique_ptr<Attachment>> create(
      Adapter& adapter, GuestRam& ram, Interrupts& interrupts, Image& image, uint64_t address,
      std::function<void()> wake);
  ~Attachment() override;

  // Once, after create(): the process before had attached, and its objects ended with it. Programs,
  // GIDs, protection domains, completion queues, the region of all memory and queue pair 1 are
  // made again, as the driver knows them; other regions and queues are lost, and the driver gets
  // the event DEVICE_FATAL. `since`: the message that ended all objects before. An error leaves
  // nothing behind but the attachment, which is of no use.
  [[nodiscard]] base::Result<void> restore(uint64_t since);

  // Executes the command in its slot, and interrupts if it has an answer. `doorbells`:
  // where the guest has BAR 2. False: it failed, and there is no answer.
  [[nodiscard]] bool command(uint64_t doorbells);
  // A doorbell in `page` at `offset`. Receives are posted when it returns; the rest is done by
  // work().
  void doorbell(uint64_t page, uint64_t offset, uint32_t value);
  // What is left: nothing until the next call of the driver or of verbs; more; or what can be tried
  // again later.
  enum class Rest : uint8_t { kNothing, kMore, kLater };
  [[nodiscard]] Rest work();
  // As the guest says.
  [[nodiscard]] uint32_t driver_version() const { return driver_version_; }

 private:
  Attachment(Adapter& adapter, GuestRam& ram, Interrupts& interrupts, Image& image);

  // ---- commands: each fails with a sentence, or has filled its answer
  using Done = base::Result<void>;
  [[nodiscard]] Done execute(const CommandSlot& command, uint64_t doorbells, AnswerSlot* answer);
  [[nodiscard]] Done query_port(PortAttributes* answer);
  [[nodiscard]] Done create_context(const CreateUc& wish, uint64_t doorbells, Handle* answer);
  [[nodiscard]] Done destroy_context(uint32_t handle);
  [[nodiscard]] Done create_bind(const CreateBind& wish);
  [[nodiscard]] Done destroy_bind(const DestroyBind& wish);
  [[nodiscard]] Done create_pd(const CreatePd& wish, Handle* answer);
  [[nodiscard]] Done destroy_pd(uint32_t handle);
  [[nodiscard]] Done create_mr(const CreateMr& wish, MrAnswer* answer);
  [[nodiscard]] Done register_pages(const CreateMr& wish, const Pd& pd, Mr* mr);
  [[nodiscard]] Done destroy_mr(uint32_t handle);
  [[nodiscard]] Done create_cq(const CreateCq& wish, CqAnswer* answer);
  [[nodiscard]] Done destroy_cq(uint32_t handle);
  [[nodiscard]] Done create_srq(const CreateSrq& wish, Handle* answer);
  [[nodiscard]] Done modify_srq(const ModifySrq& wish);
  [[nodiscard]] Done query_srq(uint32_t handle, SrqAttributes* answer);
  [[nodiscard]] Done destroy_srq(uint32_t handle);
  [[nodiscard]] Done create_qp(const CreateQp& wish, QpAnswer* answer);
  [[nodiscard]] Done make_queues(const CreateQp& wish, Qp* qp);
  [[nodiscard]] Done modify_qp(const ModifyQp& wish);
  [[nodiscard]] Done query_qp(const QueryQp& wish, QpAttributes* answer);
  [[nodiscard]] Done destroy_qp(uint32_t handle);
  [[nodiscard]] Done make_cq(const CreateCq& wish, Cq* cq);
  [[nodiscard]] Done make_verbs(const CreateQp& wish, Srq* srq, Qp* qp);
  [[nodiscard]] Done make_region_of_all(const Pd& pd, Mr* mr);
  [[nodiscard]] Done restore_qp(const ImagedQp& from, Qp* qp);
  [[nodiscard]] Done restore_gsi(const ImagedQp& from, Qp* qp);
  [[nodiscard]] Done restore_memory(uint64_t since);
  [[nodiscard]] Done restore_queues(uint64_t since);
  void settle_pushed(const Cq& cq, uint32_t handle, uint64_t word);
  void forget_pushed(const Qp& qp);
  [[nodiscard]] base::Result<Pages> show_ring(uint64_t directory, uint32_t pages);
  // Context 0 is the guest's kernel.
  [[nodiscard]] bool has_context(uint32_t handle) const {
    return handle == 0 || contexts_.find(handle) != nullptr;
  }

  // The vdevice's table has other entries than the guest's.
  [[nodiscard]] std::optional<uint8_t> to_adapter(uint8_t index) const;
  [[nodiscard]] uint8_t to_guest(uint8_t index) const;

  // ---- work
  struct Due {  // where to look
    enum class What : uint8_t { kSends, kReceives, kShared, kCompletions, kReminder } what;
    uint32_t handle;
  };
  // Of an object that exists; otherwise nullptr.
  [[nodiscard]] Pending* pending(const Due& due) const;
  void look(const Due& due);
  void wait(const Due& due);
  void look_again();
  void forget(std::initializer_list<Due::What> whats, uint32_t handle);
  void send(Qp* qp);
  void receive(Qp* qp);
  void receive(Srq* srq);
  template <class Post>
  RingState move_receives(Incoming* ring, uint32_t max_sge, bool* has_room, Post post);
  enum class Fate : uint8_t { kPosted, kLost, kRefused };
  [[nodiscard]] Fate translate(const SendEntry& entry, Qp* qp, ibv_send_wr* wr);
  [[nodiscard]] ibv_ah* address(Pd* pd, const ibv_ah_attr& attr) const;
  [[nodiscard]] bool may_end(const Qp& qp);
  void read_elements(const Incoming& ring, size_t header, uint32_t count,
                     std::array<ibv_sge, kMostSges>* to) const;
  void bring_to_error(Qp* qp);
  void fail(Qp* qp);
  void end_here(Qp* qp, uint64_t wr_id, ibv_wc_status status);
  void complete(Cq* cq);
  [[nodiscard]] std::optional<Ended> end_of(const ibv_wc& wc) const;
  void push_end(Cq* cq, const Ended& ended);
  void drop_held(uint32_t qp);
  void note_first(Qp* qp, bool is_receive, uint32_t position);
  void flush(Qp* qp, bool is_receive);
  void announce(Cq* cq);
  void remind(Cq* cq);
  void settle_sends(Cq* cq, std::span<const ibv_wc> received);
  void tell(Cq* cq);
  void event(uint32_t type, uint32_t object);
  void on_completions(ibv_cq* cq) override;
  void on_event(const ibv_async_event& event) override;

  Adapter& adapter_;
  GuestRam& ram_;
  Interrupts& interrupts_;
  Image& image_;
  Counts& counts_;
  std::function<void()> wake_;

  uint32_t driver_version_ = 0;
  uint64_t command_slot_ = 0, answer_slot_ = 0;
  Pages event_pages_, completion_pages_;
  Outgoing<EventEntry> events_;
  Outgoing<uint32_t> told_;  // handles of CQs that have something

  std::array<ibv_gid, kGidTable> gids_{};  // the guest's
  std::array<bool, kGidTable> has_gid_{};
  // In the order in which they depend on each other.
  Table<Context> contexts_;
  Table<Pd> pds_;
  Table<Mr> mrs_;
  Table<Cq> cqs_;
  Table<Srq> srqs_;
  Table<Qp> qps_;
  std::unordered_map<uint32_t, Qp*> by_number_;
  // Keys that the guest knows of regions that were made again, and theirs.
  std::unordered_map<uint32_t, uint32_t> keys_;

  // Each has an object, whose Pending says that it is there.
  std::vector<Due> due_;      // in the next work()
  bool holds_ = false;        // some of them for what the driver does without a word
  std::vector<Due> waiting_;  // for room, which a completion makes, or the driver
};

}  // namespace vrdma::pvrdma
