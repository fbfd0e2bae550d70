#include "vrdmad/worker/session_journal.h"

#include <cstring>

#include "vrdmad/records/process_files.h"
#include "vrdmad/records/session_records.h"
#include "vrdmad/worker/calls.h"

namespace vrdma::vrdmad {

void SessionJournal::will_serve(const ipc::Request& request) {
  if (request.sequence != 0 && traits_of(request.call).effect != CallTraits::kNone)
    file_->set_begun(request.sequence);
}

void SessionJournal::keep(Stored kind, const ipc::Request& request, const ipc::Reply& reply,
                          uint32_t sequence) {
  const CallTraits& maker = maker_of(kind);
  uint8_t record[sizeof request.bytes + sizeof reply.bytes];
  std::memcpy(record, request.bytes, maker.request);
  std::memcpy(record + maker.request, reply.bytes, maker.reply);
  file_->put(kind, reply.handle.handle, record, maker.request + maker.reply, sequence);
}

// A request was served: what has to be served again by another daemon is written down before the
// program learns of it.
void SessionJournal::remember(const ipc::Request& request, const ipc::Reply& reply) {
  const CallTraits& call = traits_of(request.call);
  if (call.effect == CallTraits::kNone) return;
  switch (call.effect) {
    case CallTraits::kNone:
      break;
    case CallTraits::kMakes:
      keep_made(request, reply);
      break;
    case CallTraits::kChanges:
    case CallTraits::kUndoes:
      if (call.stored) keep_changed(*call.stored, request, reply);
      break;
    case CallTraits::kRemoves:
      if (call.stored) erase(*call.stored, request.handle.handle);
      break;
    case CallTraits::kForeign:
      file_->forbid(call.foreign);
      break;
  }
  if (reply.sequence != 0) file_->set_answered(reply);
}

void SessionJournal::keep_made(const ipc::Request& request, const ipc::Reply& reply) {
  const Stored kind = *traits_of(request.call).stored;
  if (kind == Stored::kChannel) {  // which is known by its end, not by what was asked for
    const uint32_t made = reply.create_channel.handle;
    const ChannelRecord record{made, 0, file_id(context().channels.find(made)->write_end).inode};
    return file_->put(kind, made, &record, sizeof record, reply.sequence);
  }
  if (kind == Stored::kSrq && request.create_srq.xrcd != ipc::kNoObject) return;  // XRC: forbidden
  const auto type = static_cast<verbs::QpType>(request.create_qp.type);
  if (kind == Stored::kQp && type != verbs::QpType::kRc && type != verbs::QpType::kUc &&
      type != verbs::QpType::kUd)
    file_->forbid("it had XRC or raw packet queue pairs");
  keep(kind, request, reply, reply.sequence);
}

void SessionJournal::keep_changed(Stored kind, const ipc::Request& request,
                                  const ipc::Reply& reply) {
  const uint32_t handle = request.handle.handle;
  if (kind == Stored::kMr) {
    const rdma::Mr* mr = context().mrs.find(handle);
    ipc::Request as_made;
    ipc::Reply answer;
    as_made.reg_mr = request.rereg_mr.to;
    answer.reg_mr = {mr->handle, mr->key, mr->region.length};
    keep(kind, as_made, answer);
  } else if (kind == Stored::kSrqSize) {
    const SrqSizeRecord record{context().srqs.find(handle)->max_wr};
    file_->put(kind, handle, &record, sizeof record);
  } else if (kind == Stored::kQpState) {  // also when it changes by itself: on_qp_changed
    if (const rdma::Qp* qp = context().qps.find(handle); qp != nullptr) keep_state(*qp);
  } else {
    keep(kind, request, reply);
  }
}

// With what was changed of it, which goes first.
void SessionJournal::erase(Stored kind, uint32_t handle) {
  if (kind == Stored::kCq) file_->erase(Stored::kCqSize, handle);
  if (kind == Stored::kQp) file_->erase(Stored::kQpState, handle);
  if (kind == Stored::kSrq) file_->erase(Stored::kSrqSize, handle);
  file_->erase(kind, handle);
}

void SessionJournal::keep_state(const rdma::Qp& qp) {
  if (qp.handle == 0 || qp.domain != nullptr) return;
  QpRecord record{};
  record.attributes = qp.attributes;
  record.sgid = qp.sgid;
  record.outbox = qp.link.outbox != nullptr ? qp.link.outbox->range.offset() : 0;
  record.outbox_depth = qp.link.outbox != nullptr ? qp.link.outbox->depth : 0;
  record.peer_outbox = qp.link.peer_outbox != nullptr ? qp.link.peer_outbox->range.offset() : 0;
  record.maps_peer = qp.link.maps_peer;
  record.linked_out = qp.link.out != nullptr ? 1 : 0;
  record.linked_in = qp.link.in != nullptr || qp.link.peer_lost ? 1 : 0;
  record.out_made = qp.link.out_made ? 1 : 0;
  record.in_made = qp.link.in_made ? 1 : 0;
  record.link = qp.link.number;
  record.groups = static_cast<uint32_t>(qp.groups.size());
  std::vector<uint8_t> bytes(sizeof record + qp.groups.size() * sizeof(verbs::Gid));
  std::memcpy(bytes.data(), &record, sizeof record);
  if (!qp.groups.empty())
    std::memcpy(bytes.data() + sizeof record, qp.groups.data(), bytes.size() - sizeof record);
  file_->put(Stored::kQpState, qp.handle, bytes.data(), bytes.size());
}

// Before a worker holds it: so a receive is never lost with a worker, nor given to another message
// when it was completed. The rings that tell which are the program's and its peers'; what is
// written here they cannot change.
void SessionJournal::keep_claim(const rdma::Srq& srq, uint32_t slot, const rdma::Qp* receiver) {
  if (receiver == nullptr) return file_->erase(Stored::kClaim, claim_number(srq, slot));
  const auto& theirs = receiver->link.peer_outbox;
  const ClaimRecord record{receiver->handle, ipc::head_of(*receiver->inbox, receiver->inbox_depth),
                           theirs != nullptr ? ipc::head_of(*theirs->ring, theirs->depth) : 0};
  file_->put(Stored::kClaim, claim_number(srq, slot), &record, sizeof record);
}

void SessionJournal::write_down_changes() {
  context().on_qp_changed = [this](const rdma::Qp& qp) { keep_state(qp); };
  context().on_claim = [this](const rdma::Srq& srq, uint32_t slot, const rdma::Qp* receiver) {
    keep_claim(srq, slot, receiver);
  };
}

std::unique_ptr<SessionJournal> SessionJournal::begin(const std::string& path,
                                                      SessionObjects& objects,
                                                      const base::Fd& doorbell) {
  auto made = SessionFile::create(path);
  if (!made) return nullptr;
  const Vdevice& vdevice = objects.vdevice();
  const rdma::Context& context = objects.context();
  Who who{};
  who.vdevice = vdevice.id;
  vdevice.device.name.copy(who.name, sizeof who.name - 1);
  who.node_guid = vdevice.device.node_guid;
  who.netns = vdevice.netns;
  who.process = context.process->peer();
  who.session = context.id;
  who.epoch = context.epoch;
  who.arena = objects.arena_id();
  who.bells = file_id(context.bell_fd);
  who.memory = objects.memory_id();
  who.doorbell = eventfd_id(doorbell);
  who.events = file_id(context.events).inode;
  (*made)->put(Stored::kWho, 0, &who, sizeof who);
  auto journal = std::make_unique<SessionJournal>(std::move(*made), objects);
  journal->write_down_changes();
  return journal;
}

}  // namespace vrdma::vrdmad
