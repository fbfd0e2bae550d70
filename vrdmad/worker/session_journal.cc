#include "vrdmad/worker/session_journal.h"

#include <sys/stat.h>

#include <cstring>
#include <initializer_list>

#include "core/rdma/window.h"
#include "vrdmad/worker/calls.h"

namespace vrdma::vrdmad {

// Of a socket.
uint64_t SessionJournal::inode_of(const base::Fd& fd) {
  struct stat status {};
  return ::fstat(fd.get(), &status) == 0 ? status.st_ino : 0;
}

uint32_t SessionJournal::known_as() const {
  const Anchor& of = anchors_->anchors().of;
  return of.known_as != 0 ? of.known_as : of.session;
}

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
      if (request.call == ipc::Call::kShowMemory) anchors_->put_shown(objects_.shown());
      break;
    case CallTraits::kRemoves:
      if (call.stored) erase(*call.stored, request.handle.handle);
      break;
  }
  if (reply.sequence != 0) file_->set_answered(reply);
}

// What was shown or found elsewhere is kept instead of what was asked for.
void SessionJournal::keep_made(const ipc::Request& request, const ipc::Reply& reply) {
  Stored kind = *traits_of(request.call).stored;
  if (kind == Stored::kQp &&
      static_cast<verbs::QpType>(request.create_qp.type) == verbs::QpType::kXrcTarget)
    kind = Stored::kTarget;
  const uint32_t made = reply.handle.handle;
  const auto put = [&](const auto& record) {
    file_->put(kind, made, &record, sizeof record, reply.sequence);
  };
  switch (kind) {
    case Stored::kChannel:
      anchors_->put_channel(made, inode_of(context().channels.find(made)->write_end));
      return file_->put(kind, made, nullptr, 0, reply.sequence);
    case Stored::kXrcd: {
      const FileId file = objects_.file_of(*context().xrcds.find(made));
      const bool named = file != FileId{};
      if (named) anchors_->put_domain(made, file);
      return put(XrcdRecord{named ? 1u : 0u});
    }
    case Stored::kImportedPd:
      return put(ImportedPdRecord{context().pds.find(made)->origin});
    case Stored::kImportedMr: {
      const rdma::Mr* mr = context().mrs.find(made);
      return put(ImportedMrRecord{mr->key, mr->pd->handle, mr->origin});
    }
    case Stored::kTarget: {
      const rdma::Target* target = context().targets.find(made & ~ipc::kTargetHandle);
      keep_state(*target->qp, made);
      return put(TargetRecord{target->xrcd->handle, target->qp->qpn});
    }
    case Stored::kQp:
      if (static_cast<verbs::QpType>(request.create_qp.type) == verbs::QpType::kRawPacket)
        anchors_->put_packet_socket();
      return keep(kind, request, reply, reply.sequence);
    default:
      return keep(kind, request, reply, reply.sequence);
  }
}

void SessionJournal::keep_region(const rdma::Mr& mr) {
  const rdma::Region& region = mr.region;
  ipc::Request as_made;
  ipc::Reply answer;
  as_made.reg_mr = {region.addr,
                    region.length,
                    region.iova,
                    region.pd,
                    region.access,
                    static_cast<uint32_t>(region.way),
                    0};
  answer.reg_mr = {mr.handle, mr.key, region.length};
  keep(Stored::kMr, as_made, answer);
}

void SessionJournal::keep_changed(Stored kind, const ipc::Request& request,
                                  const ipc::Reply& reply) {
  const uint32_t handle = request.handle.handle;
  if (request.call == ipc::Call::kReach) {
    for (const uint32_t changed : objects_.made_reached())
      keep_region(*context().mrs.find(changed));
  } else if (kind == Stored::kMr) {
    keep_region(*context().mrs.find(handle));
  } else if (kind == Stored::kSrqSize) {
    const SrqSizeRecord record{context().srqs.find(handle)->max_wr};
    file_->put(kind, handle, &record, sizeof record);
  } else if (kind == Stored::kQpState) {  // also when it changes by itself: on_qp_changed
    if (const rdma::Qp* qp = context().find_qp(handle); qp != nullptr) keep_state(*qp, handle);
  } else if (kind == Stored::kExporter) {
    const ExporterRecord record{context().exporter};
    file_->put(kind, 0, &record, sizeof record, reply.sequence);
  } else {
    keep(kind, request, reply);
  }
}

// With what was changed of it, which goes first.
void SessionJournal::erase(Stored kind, uint32_t handle) {
  const auto erase_all = [&](std::initializer_list<Stored> kinds) {
    for (const Stored each : kinds) file_->erase(each, handle);
  };
  switch (kind) {
    case Stored::kPd:
      return erase_all({Stored::kPd, Stored::kImportedPd});
    case Stored::kMr:
      return erase_all({Stored::kMr, Stored::kImportedMr});
    case Stored::kMw:
      return erase_all({Stored::kBinding, Stored::kMw});
    case Stored::kCq:
      return erase_all({Stored::kCqSize, Stored::kCq});
    case Stored::kSrq:
      return erase_all({Stored::kSrqSize, Stored::kSrq});
    case Stored::kQp:
      erase_notes(handle);
      return erase_all({Stored::kQpState, Stored::kQp, Stored::kTarget});
    case Stored::kChannel:
      file_->erase(kind, handle);
      return anchors_->erase_channel(handle);
    case Stored::kXrcd:
      file_->erase(kind, handle);
      return anchors_->erase_domain(handle);
    default:
      return file_->erase(kind, handle);
  }
}

void SessionJournal::keep_binding(const rdma::Mw& mw) {
  const auto [key, mr, qp, access, addr, length, iova] = rdma::binding_of(context(), mw);
  const BindingRecord record{
      key, mr != nullptr ? mr->handle : 0, qp != nullptr ? qp->handle : 0, access, addr, length,
      iova};
  file_->put(Stored::kBinding, mw.handle, &record, sizeof record);
}

void SessionJournal::keep_state(const rdma::Qp& qp, uint32_t handle) {
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
  record.remote = qp.link.remote ? 1 : 0;
  record.changes = qp.changes;
  record.groups = static_cast<uint32_t>(qp.groups.size());
  std::vector<uint8_t> bytes(sizeof record + qp.groups.size() * sizeof(verbs::Gid));
  std::memcpy(bytes.data(), &record, sizeof record);
  if (!qp.groups.empty())
    std::memcpy(bytes.data() + sizeof record, qp.groups.data(), bytes.size() - sizeof record);
  file_->put(Stored::kQpState, handle, bytes.data(), bytes.size());
  if (!qp.link.remote) erase_notes(handle);
}

void SessionJournal::put(const rdma::Qp& qp, uint32_t number, std::span<const uint8_t> bytes) {
  has_notes(qp.handle);
  file_->put_later(Stored::kNote, note_number(qp.handle, number), bytes.data(), bytes.size());
}

std::vector<uint8_t> SessionJournal::find(const rdma::Qp& qp, uint32_t number) const {
  const auto note = file_->find(Stored::kNote, note_number(qp.handle, number));
  if (!note) return {};
  return {note->data, note->data + note->size};
}

void SessionJournal::has_notes(uint32_t handle) {
  if (handle >= noted_.size()) noted_.resize(handle + 1);
  noted_[handle] = true;
}

void SessionJournal::erase_notes(uint32_t handle) {
  if (handle >= noted_.size() || !noted_[handle]) return;
  for (uint32_t number = 0; number < rdma::Notes::kMost; ++number)
    file_->erase_later(Stored::kNote, note_number(handle, number));
  file_->commit();
  noted_[handle] = false;
}

// Before a worker holds it: so a receive is never lost with a worker, nor given to another message
// when it was completed. The rings that tell which are the program's and its peers'; what is
// written here they cannot change.
void SessionJournal::keep_claim(const rdma::Srq& srq, uint32_t slot, const rdma::Qp* receiver) {
  if (receiver == nullptr) {
    const ClaimRecord record{0, ipc::head_of(*srq.inbox, srq.depth), 0};
    return file_->put(Stored::kClaim, claim_number(srq, slot), &record, sizeof record);
  }
  const auto& theirs = receiver->link.peer_outbox;
  const ClaimRecord record{receiver->handle, ipc::head_of(*receiver->inbox, receiver->inbox_depth),
                           theirs != nullptr ? ipc::head_of(*theirs->ring, theirs->depth) : 0};
  file_->put(Stored::kClaim, claim_number(srq, slot), &record, sizeof record);
}

void SessionJournal::write_down_changes() {
  context().notes = this;
  context().on_qp_changed = [this](const rdma::Qp& qp, uint32_t handle) { keep_state(qp, handle); };
  context().on_window_changed = [this](const rdma::Mw& mw) { keep_binding(mw); };
  context().on_claim = [this](const rdma::Srq& srq, uint32_t slot, const rdma::Qp* receiver) {
    keep_claim(srq, slot, receiver);
  };
  context().on_claim_over = [this](const rdma::Srq& srq, uint32_t slot) {
    file_->erase(Stored::kClaim, claim_number(srq, slot));
  };
}

SessionJournal::~SessionJournal() { file_->end(); }

}  // namespace vrdma::vrdmad
