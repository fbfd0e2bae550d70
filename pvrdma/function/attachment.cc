#include "pvrdma/function/attachment.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "core/base/log.h"

namespace vrdma::pvrdma {

namespace {

// The device of each of these numbers has at least `have`; the driver's tables end at `most`.
uint32_t at_most(int have, uint32_t most) {
  return std::min(have > 0 ? static_cast<uint32_t>(have) : 0, most);
}

constexpr uint32_t kRingPages = 4;  // of both rings of the shared region

// Commands that the driver sends without waiting for an answer.
bool is_answered(Command command) {
  switch (command) {
    case Command::kDestroyPd:
    case Command::kDestroyMr:
    case Command::kDestroyCq:
    case Command::kDestroyQp:
    case Command::kDestroyUc:
    case Command::kCreateBind:
    case Command::kDestroyBind:
    case Command::kModifySrq:
    case Command::kDestroySrq:
      return false;
    default:
      return true;
  }
}

}  // namespace

Capabilities capabilities_of(const Adapter& adapter) {
  const ibv_device_attr& can = adapter.attributes();
  Capabilities all{};
  all.fw_ver = uint64_t{1} << 32;
  all.node_guid = can.node_guid;
  all.sys_image_guid = can.sys_image_guid;
  all.max_mr_size = std::min<uint64_t>(can.max_mr_size, kMostMrBytes);
  all.page_size_cap = kPageSize;
  all.vendor_id = kVendor;
  all.vendor_part_id = kDeviceId;
  all.hw_ver = kInterfaceVersion;
  all.max_qp = at_most(can.max_qp, kMostQps);
  all.max_qp_wr = at_most(can.max_qp_wr, kMostEntries);
  all.max_sge = all.max_sge_rd = at_most(can.max_sge, kMostSges);
  all.max_cq = at_most(can.max_cq, kMostCqs);
  all.max_cqe = at_most(can.max_cqe, kMostEntries);
  all.max_mr = at_most(can.max_mr, kMostMrs);
  all.max_pd = at_most(can.max_pd, kMostPds);
  all.max_qp_rd_atom = all.max_res_rd_atom = all.max_qp_init_rd_atom =
      at_most(can.max_qp_rd_atom, 255);
  all.max_ah = at_most(can.max_ah, 1u << 20);
  all.max_srq = at_most(can.max_srq, kMostSrqs);
  all.max_srq_wr = at_most(can.max_srq_wr, kMostEntries);
  all.max_srq_sge = at_most(can.max_srq_sge, kMostSges);
  all.max_uar = kDoorbellPages;
  all.gid_tbl_len = kGidTable;
  all.max_pkeys = 1;
  all.local_ca_ack_delay = can.local_ca_ack_delay;
  all.phys_port_cnt = 1;
  all.atomic_ops = can.atomic_cap != IBV_ATOMIC_NONE ? kAtomicSwap | kAtomicAdd : 0;
  all.gid_types = kRoceV2;
  return all;
}

Attachment::Attachment(Adapter& adapter, GuestRam& ram, Interrupts& interrupts, Image& image)
    : adapter_(adapter),
      ram_(ram),
      interrupts_(interrupts),
      image_(image),
      counts_(image.counts),
      contexts_(kDoorbellPages),
      pds_(kMostPds),
      mrs_(kMostMrs) {
  const Capabilities can = capabilities_of(adapter);
  cqs_ = Table<Cq>(can.max_cq, Order::kInTurn);
  srqs_ = Table<Srq>(can.max_srq, Order::kInTurn);
  qps_ = Table<Qp>(can.max_qp, Order::kInTurn);
}

Attachment::~Attachment() { adapter_.set_events(nullptr); }

base::Result<std::unique_ptr<Attachment>> Attachment::create(Adapter& adapter, GuestRam& ram,
                                                             Interrupts& interrupts, Image& image,
                                                             uint64_t address,
                                                             std::function<void()> wake) {
  uint8_t* const at = address % 8 == 0 ? ram.at(address, sizeof(SharedRegion)) : nullptr;
  if (at == nullptr) return base::fail(EFAULT, "the shared region is not in the guest's memory");
  SharedRegion region;
  std::memcpy(&region, at, sizeof region);
  if (region.driver_version < kInterfaceVersion)
    return base::fail(EINVAL, "its interface is of version " +
                                  std::to_string(region.driver_version) +
                                  ", and the device needs " + std::to_string(kInterfaceVersion) +
                                  ", which Linux has from 5.5 on; update the guest's kernel");
  std::unique_ptr<Attachment> made(new Attachment(adapter, ram, interrupts, image));
  made->wake_ = std::move(wake);
  made->driver_version_ = region.driver_version;
  made->command_slot_ = region.command_slot;
  made->answer_slot_ = region.response_slot;
  const auto show = [&](const RingPages& ring) -> base::Result<Pages> {
    if (ring.pages != kRingPages)
      return base::fail(EINVAL, "a ring of the driver has " + std::to_string(ring.pages) +
                                    " pages, not " + std::to_string(kRingPages));
    return made->show_ring(ring.directory, kRingPages);
  };
  auto events = show(region.events);
  if (!events) return base::pass(std::move(events.error()), "the ring of events");
  auto completions = show(region.completions);
  if (!completions) return base::pass(std::move(completions.error()), "the ring of completions");
  made->event_pages_ = std::move(*events);
  made->completion_pages_ = std::move(*completions);
  uint8_t* const event_page = made->event_pages_.bytes();
  uint8_t* const completion_page = made->completion_pages_.bytes();
  made->events_ = {second_pair(event_page), event_page + kPageSize, kEventEntries};
  made->told_ = {second_pair(completion_page), completion_page + kPageSize, kCompletionEntries};
  const Capabilities can = capabilities_of(adapter);
  std::memcpy(at + offsetof(SharedRegion, capabilities), &can, sizeof can);
  adapter.set_events(made.get());
  return made;
}

base::Result<Pages> Attachment::show_ring(uint64_t directory, uint32_t pages) {
  const auto list = ram_.directory(directory, pages);
  if (!list) return base::pass(list.error());
  return ram_.show(*list, Pages::After::kZeros);
}

// --- commands ---

bool Attachment::command(uint64_t doorbells) {
  ++counts_.commands;
  CommandSlot slot;
  const uint8_t* const from = ram_.at(command_slot_, sizeof slot);
  if (from == nullptr) return false;
  std::memcpy(&slot, from, sizeof slot);
  AnswerSlot answer{};
  const Done done = execute(slot, doorbells, &answer);
  if (!done && ++counts_.commands_refused <= kMostComplaints)
    base::log_info("command " + std::to_string(slot.header.command) +
                   " of the guest is refused: " + done.error().message());
  const auto command = static_cast<Command>(slot.header.command);
  if (!is_answered(command)) return done.has_value();
  // Of others the driver reads no error in the answer.
  if (!done && command != Command::kModifyQp) return false;
  answer.header.key = slot.header.key;
  answer.header.answer = kAnswered | slot.header.command;
  answer.header.error =
      done ? uint8_t{0} : static_cast<uint8_t>(std::clamp(done.error().code(), 1, 255));
  uint8_t* const to = ram_.at(answer_slot_, sizeof answer);
  if (to == nullptr) return false;
  std::memcpy(to, &answer, sizeof answer);
  interrupts_.raise(kResponseVector);
  return true;
}

Attachment::Done Attachment::execute(const CommandSlot& command, uint64_t doorbells,
                                     AnswerSlot* answer) {
  switch (static_cast<Command>(command.header.command)) {
    case Command::kQueryPort:
      return query_port(&answer->port);
    case Command::kQueryPkey:
      answer->pkey.pkey = 0xffff;
      return {};
    case Command::kCreatePd:
      return create_pd(command.create_pd, &answer->made);
    case Command::kDestroyPd:
      return destroy_pd(command.destroy.handle);
    case Command::kCreateMr:
      return create_mr(command.create_mr, &answer->mr);
    case Command::kDestroyMr:
      return destroy_mr(command.destroy.handle);
    case Command::kCreateCq:
      return create_cq(command.create_cq, &answer->cq);
    case Command::kDestroyCq:
      return destroy_cq(command.destroy.handle);
    case Command::kCreateQp:
      return create_qp(command.create_qp, &answer->qp);
    case Command::kModifyQp:
      return modify_qp(command.modify_qp);
    case Command::kQueryQp:
      return query_qp(command.query_qp, &answer->attributes);
    case Command::kDestroyQp:
      return destroy_qp(command.destroy.handle);
    case Command::kCreateUc:
      return create_context(command.create_uc, doorbells, &answer->made);
    case Command::kDestroyUc:
      return destroy_context(command.destroy.handle);
    case Command::kCreateBind:
      return create_bind(command.create_bind);
    case Command::kDestroyBind:
      return destroy_bind(command.destroy_bind);
    case Command::kCreateSrq:
      return create_srq(command.create_srq, &answer->made);
    case Command::kModifySrq:
      return modify_srq(command.modify_srq);
    case Command::kQuerySrq:
      return query_srq(command.destroy.handle, &answer->srq);
    case Command::kDestroySrq:
      return destroy_srq(command.destroy.handle);
    default:
      return base::fail(EOPNOTSUPP, "there is no such command");
  }
}

// --- events ---

void Attachment::event(uint32_t type, uint32_t object) {
  if (events_.push({type, object}) != RingState::kReady) {
    ++counts_.events_lost;
    return;
  }
  interrupts_.raise(kEventVector);
}

void Attachment::on_event(const ibv_async_event& event) {
  const auto type = static_cast<uint32_t>(event.event_type);
  switch (event.event_type) {
    case IBV_EVENT_CQ_ERR:
      this->event(type, static_cast<const Cq*>(event.element.cq->cq_context)->handle);
      return;
    case IBV_EVENT_SRQ_ERR:
    case IBV_EVENT_SRQ_LIMIT_REACHED:
      this->event(type, static_cast<const Srq*>(event.element.srq->srq_context)->handle);
      return;
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
    case IBV_EVENT_COMM_EST:
    case IBV_EVENT_SQ_DRAINED:
    case IBV_EVENT_QP_LAST_WQE_REACHED:
      this->event(type, static_cast<const Qp*>(event.element.qp->qp_context)->handle);
      return;
    case IBV_EVENT_DEVICE_FATAL:
    case IBV_EVENT_PORT_ACTIVE:
    case IBV_EVENT_PORT_ERR:
      this->event(type, 1);
      return;
    default:  // of the vdevice's own GIDs and keys; the guest has its own
      return;
  }
}

}  // namespace vrdma::pvrdma
