// How the next daemon makes a session from its journal.
#include <algorithm>
#include <cstring>

#include "core/ipc/bell.h"
#include "core/rdma/window.h"
#include "vrdmad/records/process_files.h"
#include "vrdmad/records/session_records.h"
#include "vrdmad/worker/calls.h"
#include "vrdmad/worker/session_journal.h"

namespace vrdma::vrdmad {

using base::fail;
using base::pass;
using base::Result;
using ipc::Call;

Result<Who> who_of(const SessionFile& file) {
  Who who{};
  if (const auto records = file.all(Stored::kWho); records.empty() || !records[0].read(&who))
    return fail(EINVAL, "nothing is known of it");
  who.name[sizeof who.name - 1] = '\0';
  return who;
}

std::optional<SessionSummary> summary_of(const SessionFile& file) {
  const auto who = who_of(file);
  if (!who) return {};
  return SessionSummary{who->vdevice, who->name,  who->netns,      who->node_guid,
                        who->session, who->epoch, who->process.pid};
}

void want_files(const SessionFile& file, WantedFiles* wanted) {
  const auto who = who_of(file);
  if (!who) return;
  for (const FileId& each : {who->arena, who->bells, who->memory})
    wanted->memory_files.insert(each.inode);
  wanted->eventfds.insert(who->doorbell);
  wanted->sockets.insert(who->events);
  for (const auto& record : file.all(Stored::kChannel))
    if (ChannelRecord channel{}; record.read(&channel)) wanted->sockets.insert(channel.write_end);
}

Result<void> SessionJournal::take_over(const ProcessFiles& files, uint32_t epoch) {
  auto who = who_of(*file_);
  if (!who) return pass(std::move(who).error());
  if (auto made = restore_channels(files); !made) return made;
  if (auto made = make_again(); !made) return made;

  context().epoch = epoch;
  auto& shared = context().arena->at<ipc::ArenaHeader>(0)->epoch;
  uint32_t before = shared.load();  // of a daemon that was killed in the middle of this, perhaps
  while (before != 0 && !shared.compare_exchange_weak(before, epoch)) {
  }
  if (before == 0) return fail(ETIMEDOUT, "its program waits no longer");
  who->epoch = epoch;
  file_->put(Stored::kWho, 0, &*who, sizeof *who);
  last_ = file_->last();
  return {};
}

Result<void> SessionJournal::restore_channels(const ProcessFiles& files) {
  for (const auto& record : file_->all(Stored::kChannel)) {
    ChannelRecord made{};
    if (!record.read(&made)) return fail(EINVAL, "its state is damaged");
    auto write_end = files.event_end(made.write_end);
    if (!write_end) {  // the answer did not reach the program, or it will be missed by a CQ
      file_->erase(Stored::kChannel, made.handle);
      continue;
    }
    auto channel = std::make_unique<rdma::Channel>();
    channel->write_end = std::move(*write_end);
    context().channels.add(std::move(channel), made.handle);
  }
  return {};
}

Result<void> SessionJournal::restore_state(rdma::Qp& qp, const SessionFile::Record& record) {
  QpRecord state{};
  if (!record.read(&state) || record.size != sizeof state + state.groups * sizeof(verbs::Gid))
    return fail(EINVAL, "its state is damaged");
  was_linked_[record.number] = {state.linked_out != 0, state.linked_in != 0, state.peer_outbox,
                                state.changes};
  if (qp.domain != nullptr && state.changes < qp.changes) return {};  // another session knows more
  qp.changes = state.changes;
  qp.attributes = state.attributes;
  qp.sgid = state.sgid;
  qp.link.out_made = state.out_made != 0;
  qp.link.in_made = state.in_made != 0;
  qp.link.maps_peer = state.maps_peer;
  qp.link.number = state.link;
  SessionObjects::restore_access(qp);
  if (qp.domain != nullptr) return {};
  qp.inbox_head = qp.inbox_taken_over = ipc::head_of(*qp.inbox, qp.inbox_depth);
  if (state.outbox != 0) {
    auto outbox = rdma::restore_outbox(*qp.context, state.outbox, state.outbox_depth);
    if (!outbox) return pass(std::move(outbox).error());
    qp.link.outbox = std::move(*outbox);
  }
  for (uint32_t i = 0; i < state.groups; ++i) {
    verbs::Gid group;
    std::memcpy(&group, record.data + sizeof state + i * sizeof group, sizeof group);
    (void)context().device->fabric->attach(qp, group);
  }
  return {};
}

Result<void> SessionJournal::restore_states() {
  for (const auto& record : file_->all(Stored::kQpState))  // else it was being made, or destroyed
    if (rdma::Qp* qp = context().find_qp(record.number); qp != nullptr)
      if (auto restored = restore_state(*qp, record); !restored) return restored;
  for (const auto& record : file_->all(Stored::kSrqSize)) {
    SrqSizeRecord size{};
    rdma::Srq* srq = context().srqs.find(record.number);
    if (srq == nullptr || !record.read(&size)) continue;
    if (const int error = objects_.resize_srq(*srq, size.max_wr); error != 0)
      return fail(error, "its shared receive queue cannot be made again");
  }
  return restore_bindings();
}

Result<void> SessionJournal::restore_bindings() {
  for (const auto& record : file_->all(Stored::kBinding)) {
    BindingRecord bound{};
    rdma::Mw* mw = context().mws.find(record.number);
    if (mw == nullptr) continue;
    const bool whole = record.read(&bound);
    const rdma::Binding binding{bound.key,
                                context().mrs.find(bound.mr),
                                context().qps.find(bound.qp),
                                bound.access,
                                bound.addr,
                                bound.length,
                                bound.iova};
    if (!whole || (bound.mr != 0 && binding.mr == nullptr) ||
        !rdma::restore_binding(context(), *mw, binding))
      return fail(EINVAL, "its memory window cannot be bound again");
  }
  return {};
}

// By the code that serves all, with the numbers that the answer gave.
Result<void> SessionJournal::serve_again(Stored kind, const SessionFile::Record& record) {
  const CallTraits& maker = maker_of(kind);
  if (record.size != maker.request + maker.reply) return fail(EINVAL, "its state is damaged");
  ipc::Request request;
  ipc::Reply wanted;
  request.call = maker.call;
  std::memcpy(request.bytes, record.data, maker.request);
  std::memcpy(wanted.bytes, record.data + maker.request, maker.reply);
  Answer answer;
  if (const int error = objects_.serve_as(request, wanted, &answer); error != 0)
    return fail(error, std::strerror(error));
  if (std::memcmp(answer.reply.bytes, wanted.bytes, maker.reply) != 0)
    return fail(EEXIST, std::strerror(EEXIST));
  return {};
}

Result<void> SessionJournal::make_again(Stored kind, const SessionFile::Record& record) {
  int error = EINVAL;
  switch (kind) {
    case Stored::kExporter:
      if (ExporterRecord of{}; record.read(&of)) {
        context().exporter = of.context;
        error = 0;
      }
      break;
    case Stored::kImportedPd:
      if (ImportedPdRecord pd{}; record.read(&pd))
        error = objects_.restore_imported_pd(record.number, pd.origin);
      break;
    case Stored::kImportedMr:
      if (ImportedMrRecord mr{}; record.read(&mr))
        error = objects_.restore_imported_mr(record.number, mr.key, mr.pd, mr.origin);
      break;
    case Stored::kXrcd:
      if (XrcdRecord xrcd{}; record.read(&xrcd))
        error = objects_.restore_xrcd(record.number, xrcd.file);
      break;
    case Stored::kTarget:
      if (TargetRecord target{}; record.read(&target))
        error = objects_.restore_target(record.number, target.xrcd, target.qpn);
      break;
    default:
      return serve_again(kind, record);
  }
  if (error != 0) return fail(error, std::strerror(error));
  return {};
}

Result<void> SessionJournal::make_again() {
  std::optional<std::pair<Stored, uint32_t>> unanswered;
  for (const auto kind :
       {Stored::kExporter, Stored::kPd, Stored::kImportedPd, Stored::kXrcd, Stored::kCq,
        Stored::kCqSize, Stored::kAh, Stored::kMr, Stored::kImportedMr, Stored::kMw, Stored::kSrq,
        Stored::kQp, Stored::kTarget, Stored::kFlow}) {
    for (const auto& record : file_->all(kind)) {
      if (auto made = make_again(kind, record); !made)
        return pass(std::move(made).error(), "what it had cannot be made again");
      if (!file_->is_answered(record)) unanswered.emplace(kind, record.number);
    }
  }
  if (auto made = restore_states(); !made) return made;
  if (!unanswered) return {};
  // The program will ask for another.
  const auto [kind, number] = *unanswered;
  if (kind == Stored::kExporter) {
    context().exporter = 0;
  } else {
    ipc::Request request;
    Answer answer;
    request.call = remover_of(kind).call;
    request.handle.handle = number;
    (void)objects_.serve(request, {}, &answer);
  }
  erase(handles_of(kind), number);
  return {};
}

void SessionJournal::restore_pairs() {
  if (context().exporter != 0 && !objects_.may_import()) {  // that session has ended
    context().exporter = 0;
    erase(Stored::kExporter, 0);
  }
  context().qps.each([this](rdma::Qp& qp) {
    context().device->fabric->restore_pair(qp, was_linked_[qp.handle].peer_outbox);
  });
}

// What a dead worker held is given back unless it was completed.
void SessionJournal::restore_claims() {
  for (const auto& record : file_->all(Stored::kClaim)) {
    ClaimRecord claim{};
    const uint32_t slot = record.number & (ipc::kMaxQueueDepth - 1);
    rdma::Srq* srq = context().srqs.find(record.number >> 15);
    const rdma::Qp* qp = record.read(&claim) ? context().qps.find(claim.qp) : nullptr;
    const auto completed_in = [slot](const ipc::RecvRing& ring, uint32_t depth, uint32_t from) {
      const uint32_t head = ipc::head_of(ring, depth);
      for (uint32_t i = head - std::min(head - from, depth); i != head; ++i)
        if (ring.entries()[i & (depth - 1)].slot == slot) return true;
      return false;
    };
    const bool completed = qp != nullptr
                               ? completed_in(*qp->inbox, qp->inbox_depth, claim.inbox) ||
                                     (qp->link.peer_outbox != nullptr &&
                                      completed_in(*qp->link.peer_outbox->ring,
                                                   qp->link.peer_outbox->depth, claim.peer_outbox))
                               : srq != nullptr && srq->inbox != nullptr &&
                                     completed_in(*srq->inbox, srq->depth, claim.inbox);
    if (srq != nullptr && slot < srq->depth && !completed &&
        (srq->receives.claims->words()[slot].load() == ipc::kClaimedByWorker ||
         srq->is_half_returned(slot)))
      srq->give_back(slot);
    file_->erase(Stored::kClaim, record.number);
  }
}

namespace {

// It was to go to ERR, or would have been brought there meanwhile.
bool has_failed(const rdma::Qp& qp) {
  if (verbs::is_connected(qp.type) && qp.can_receive() && !qp.context->device->owns(qp.sgid))
    return true;
  const uint32_t tail = qp.block->sq_tail.load(std::memory_order_acquire);
  return verbs::is_reliable(qp.type) && qp.results != nullptr && qp.can_send() && tail != 0 &&
         qp.results[(tail - 1) & (qp.sq_depth - 1)].status !=
             static_cast<uint32_t>(verbs::WcStatus::kSuccess);
}

}  // namespace

void SessionJournal::restore_links() {
  restore_claims();
  context().qps.each([this](rdma::Qp& qp) {
    const Linked& was = was_linked_[qp.handle];
    qp.link.peer_lost =
        !context().device->fabric->restore_link(qp, was.out, was.in) || has_failed(qp);
  });
  restore_target_links();
  was_linked_.clear();
}

// Of the sessions that have a target open, the one that knew of its last change tells.
void SessionJournal::restore_target_links() {
  context().targets.each([this](const rdma::Target& target) {
    const auto was = was_linked_.find(target.handle | ipc::kTargetHandle);
    rdma::Qp& qp = *target.qp;
    if (was == was_linked_.end() || was->second.changes != qp.changes) return;
    qp.link.peer_lost =
        !context().device->fabric->restore_link(qp, false, was->second.in) || has_failed(qp);
  });
}

// All sessions of the fabric are there, with their links: the work goes on.
void SessionJournal::go_on() {
  context().heap->wipe();
  context().claims_heap->wipe();
  write_down_changes();
  context().qps.each([this](rdma::Qp& qp) { go_on(qp); });
  context().targets.each([this](const rdma::Target& target) {
    rdma::Qp& qp = *target.qp;
    keep_state(qp, target.handle | ipc::kTargetHandle);
    qp.block->state.store(qp.attributes.state, std::memory_order_release);
    context().device->fabric->relink(qp);
  });
  // The dead daemon may have taken a program's request to be told, and not have told it.
  context().cqs.each([](rdma::Cq& cq) { cq.wake(); });
  const auto fail_if_lost = [](rdma::Qp& qp) {
    if (qp.link.peer_lost) qp.fail();
  };
  context().qps.each(fail_if_lost);
  context().targets.each([&](const rdma::Target& target) { fail_if_lost(*target.qp); });
}

void SessionJournal::go_on(rdma::Qp& qp) {
  qp.block->state.store(qp.attributes.state, std::memory_order_release);
  qp.note_drained();  // nothing is in hand
  keep_state(qp, qp.handle);
  if (verbs::is_connected(qp.type) && qp.state() > verbs::QpState::kInit) qp.choose_sender();
  if (qp.sender) qp.sender->adopted();
  // Before the program looks, as in Qp::fail().
  if (qp.sender && !qp.can_send()) qp.sender->link_changed();
  for (rdma::Cq* cq : {qp.send_cq, qp.recv_cq})
    if (cq != nullptr) ipc::announce(*cq->bell, qp.qpn);
  context().device->fabric->relink(qp);
  if (qp.link.out != nullptr && qp.sender) qp.sender->link_changed();
  if (qp.sender) qp.sender->kick();
}

// What it did not do is done, and the answer is as if it had lived.
bool SessionJournal::serve_repeated(const ipc::Request& request, Answer* answer) {
  if (request.sequence == 0) return false;
  const auto last = std::exchange(last_, {});
  if (last.begun == 0 || last.begun != request.sequence) return false;
  const bool answered = last.reply.sequence == request.sequence;
  const auto effect = traits_of(request.call).effect;
  if (request.call == Call::kModifyQp) {
    if (!objects_.modify_again(request.modify_qp, answered ? &last.reply : nullptr, answer))
      return false;
  } else if (answered) {
    // The descriptors of a channel were lost with the answer.
    if (request.call == Call::kCreateChannel) return false;
    answer->reply = last.reply;
  } else {
    if (effect != CallTraits::kRemoves && effect != CallTraits::kUndoes) return false;
    const int error = objects_.serve(request, {}, answer);
    answer->reply.error = error == EINVAL ? 0 : error;  // it was done
  }
  answer->reply.sequence = request.sequence;
  if (answer->reply.error == 0) remember(request, answer->reply);
  return true;
}

}  // namespace vrdma::vrdmad
