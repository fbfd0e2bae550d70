// How the next daemon makes a session from its journal.
#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "core/ipc/bell.h"
#include "core/rdma/window.h"
#include "vrdmad/worker/calls.h"
#include "vrdmad/worker/session_journal.h"

namespace vrdma::vrdmad {

using base::fail;
using base::pass;
using base::Result;
using ipc::Call;

namespace {

base::Error not_made(int error) {
  return base::Error(error, std::strerror(error)).in("what it had cannot be made again");
}

// make(handle, object) of each; 0 or an errno.
template <class Objects, class Make>
int make_each(const Objects& objects, Make make) {
  for (const auto& [handle, object] : objects)
    if (const int error = make(handle, object.made); error != 0) return error;
  return 0;
}

}  // namespace

Result<void> SessionJournal::take_over(SessionImage image, std::map<uint32_t, base::Fd> channels,
                                       uint32_t epoch) {
  image_ = std::move(image);
  objects_.trust_packet_socket(anchors_->anchors().of.packet_socket != 0);
  restore_channels(std::move(channels));
  for (const auto& [number, note] : image_.notes) has_notes(number / rdma::Notes::kMost);
  if (const int error = make_again(); error != 0) return pass(not_made(error));
  remove_unanswered();

  context().epoch = epoch;
  auto& shared = context().arena->at<ipc::ArenaHeader>(0)->epoch;
  uint32_t before = shared.load();  // of a daemon that was killed in the middle of this, perhaps
  while (before != 0 && !shared.compare_exchange_weak(before, epoch)) {
  }
  if (before == 0) return fail(ETIMEDOUT, "its program waits no longer");
  anchors_->put_epoch(epoch);
  last_ = {image_.begun, image_.reply};
  return {};
}

void SessionJournal::restore_channels(std::map<uint32_t, base::Fd> channels) {
  for (const auto& [handle, object] : image_.channels) {
    auto write_end = channels.extract(handle);
    if (write_end.empty()) {  // the answer did not reach the program, or a CQ will miss it
      erase(Stored::kChannel, handle);
      continue;
    }
    auto channel = std::make_unique<rdma::Channel>();
    channel->write_end = std::move(write_end.mapped());
    context().channels.add(std::move(channel), handle);
  }
}

// In the order in which they need each other.
int SessionJournal::make_again() {
  for (const auto& [number, object] : image_.exporter) context().exporter = object.made.context;
  for (const Stored kind :
       {Stored::kPd, Stored::kImportedPd, Stored::kXrcd, Stored::kCq, Stored::kCqSize, Stored::kAh,
        Stored::kMr, Stored::kImportedMr, Stored::kMw, Stored::kSrq, Stored::kQp, Stored::kTarget,
        Stored::kFlow, Stored::kQpState, Stored::kSrqSize, Stored::kBinding})
    if (const int error = make_again(kind); error != 0) return error;
  return 0;
}

int SessionJournal::make_again(Stored kind) {
  switch (kind) {
    case Stored::kImportedPd:
      return make_each(image_.imported_pds, [this](uint32_t handle, const ImportedPdRecord& pd) {
        return objects_.restore_imported_pd(handle, pd.origin);
      });
    case Stored::kXrcd:
      return make_each(image_.xrcds, [this](uint32_t handle, const XrcdRecord& xrcd) {
        return restore_xrcd(handle, xrcd);
      });
    case Stored::kImportedMr:
      return make_each(image_.imported_mrs, [this](uint32_t handle, const ImportedMrRecord& mr) {
        return objects_.restore_imported_mr(handle, mr.key, mr.pd, mr.origin);
      });
    case Stored::kTarget:
      return make_each(image_.targets, [this](uint32_t handle, const TargetRecord& target) {
        return objects_.restore_target(handle, target.xrcd, target.qpn);
      });
    case Stored::kQpState:  // those that were being made, or destroyed, are not there
      return make_each(image_.qp_states, [this](uint32_t handle, const auto& state) {
        rdma::Qp* qp = context().find_qp(handle);
        return qp != nullptr ? restore_state(*qp, handle, state) : 0;
      });
    case Stored::kSrqSize:
      return make_each(image_.srq_sizes, [this](uint32_t handle, const SrqSizeRecord& size) {
        rdma::Srq* srq = context().srqs.find(handle);
        if (srq == nullptr) return 0;
        return size.max_wr <= srq->depth ? objects_.resize_srq(*srq, size.max_wr) : EINVAL;
      });
    case Stored::kBinding:
      return make_each(image_.bindings, [this](uint32_t handle, const BindingRecord& binding) {
        rdma::Mw* mw = context().mws.find(handle);
        return mw != nullptr ? restore_binding(*mw, binding) : 0;
      });
    default:
      return make_each(image_.served[kind], [this, kind](uint32_t, const auto& made) {
        return serve_again(kind, made);
      });
  }
}

// By the code that serves all, with the numbers that the answer gave.
int SessionJournal::serve_again(Stored kind, const SessionImage::Served& made) {
  Answer answer;
  if (const int error = objects_.serve_as(made.request, made.reply, &answer); error != 0)
    return error;
  return std::memcmp(answer.reply.bytes, made.reply.bytes, maker_of(kind).reply) == 0 ? 0 : EEXIST;
}

int SessionJournal::restore_xrcd(uint32_t handle, const XrcdRecord& record) {
  if (record.named == 0) return objects_.restore_xrcd(handle, {});
  const auto& files = anchors_->anchors().domains;
  const auto file = files.find(handle);
  return file != files.end() ? objects_.restore_xrcd(handle, file->second) : EBADF;
}

int SessionJournal::restore_binding(rdma::Mw& mw, const BindingRecord& bound) {
  rdma::Mr* const mr = context().mrs.find(bound.mr);
  if (bound.mr != 0 && mr == nullptr) return EINVAL;
  const rdma::Binding binding{bound.key,    mr,         context().qps.find(bound.qp),
                              bound.access, bound.addr, bound.length,
                              bound.iova};
  return rdma::restore_binding(context(), mw, binding) ? 0 : EINVAL;
}

int SessionJournal::restore_state(rdma::Qp& qp, uint32_t handle,
                                  const SessionImage::QpState& known) {
  const QpRecord& state = known.record;
  was_linked_[handle] = {state.linked_out != 0, state.linked_in != 0, state.peer_outbox,
                         state.changes};
  if (qp.domain != nullptr && state.changes < qp.changes) return 0;  // another session knows more
  qp.changes = state.changes;
  qp.attributes = state.attributes;
  qp.count_again();
  qp.sgid = state.sgid;
  qp.link.out_made = state.out_made != 0;
  qp.link.in_made = state.in_made != 0;
  qp.link.maps_peer = state.maps_peer;
  qp.link.number = state.link;
  if (state.remote != 0 && qp.can_receive())
    qp.link.remote = rdma::RemoteEnd{qp.dgid(), qp.attributes.dest_qpn, qp.attributes.sq_psn,
                                     qp.attributes.rq_psn};
  SessionObjects::restore_access(qp);
  if (qp.domain != nullptr) return 0;
  qp.inbox_head = qp.inbox_taken_over = ipc::head_of(*qp.inbox, qp.inbox_depth);
  if (state.outbox != 0) {
    auto outbox = rdma::restore_outbox(*qp.context, state.outbox, state.outbox_depth);
    if (!outbox) return outbox.error().code();
    qp.link.outbox = std::move(*outbox);
  }
  if (!known.groups.empty() && qp.type != verbs::QpType::kUd) return EINVAL;
  for (const verbs::Gid& group : known.groups) (void)context().device->fabric->attach(qp, group);
  return 0;
}

// The program does not know the object, and will ask for another.
void SessionJournal::remove_unanswered() {
  std::optional<std::pair<Stored, uint32_t>> unanswered;
  const auto look = [&](Stored kind, const auto& objects) {
    for (const auto& [number, object] : objects)
      if (!object.answered) unanswered.emplace(kind, number);
  };
  for (const auto& [kind, objects] : image_.served) look(kind, objects);
  look(Stored::kExporter, image_.exporter);
  look(Stored::kImportedPd, image_.imported_pds);
  look(Stored::kXrcd, image_.xrcds);
  look(Stored::kImportedMr, image_.imported_mrs);
  look(Stored::kTarget, image_.targets);
  if (!unanswered) return;
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

// What a dead worker held is given back unless it was completed, or a sender goes on with it.
void SessionJournal::restore_claims(bool remote) {
  for (const auto& [number, object] : image_.claims) {
    const ClaimRecord& claim = object.made;
    const uint32_t slot = number & (ipc::kMaxQueueDepth - 1);
    rdma::Srq* srq = context().srqs.find(number >> 15);
    const rdma::Qp* qp = context().qps.find(claim.qp);
    if ((qp != nullptr && qp->link.remote.has_value()) != remote) continue;
    if (remote && srq != nullptr && qp->sender && qp->sender->holds(*srq, slot)) continue;
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
    file_->erase(Stored::kClaim, number);
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
  restore_claims(false);
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
  restore_claims(true);
  image_ = {};
  context().targets.each([this](const rdma::Target& target) {
    rdma::Qp& qp = *target.qp;
    keep_state(qp, target.handle | ipc::kTargetHandle);
    qp.block->arriving.store(0, std::memory_order_relaxed);
    qp.block->state.store(qp.attributes.state, std::memory_order_release);
    context().device->fabric->relink(qp);
  });
  const auto fail_if_lost = [](rdma::Qp& qp) {
    if (qp.link.peer_lost) qp.fail();
  };
  context().qps.each(fail_if_lost);
  context().targets.each([&](const rdma::Target& target) { fail_if_lost(*target.qp); });
}

void SessionJournal::go_on(rdma::Qp& qp) {
  qp.block->arriving.store(0, std::memory_order_relaxed);  // the dead worker's jobs have ended
  qp.block->state.store(qp.attributes.state, std::memory_order_release);
  keep_state(qp, qp.handle);
  Vdevice& vdevice = objects_.vdevice();
  if (qp.link.remote && !vdevice.is_peer(qp.dgid())) qp.fail();  // the operator has taken it away
  vdevice.receive_datagrams(qp);
  if (verbs::is_connected(qp.type) && qp.state() > verbs::QpState::kInit) qp.choose_sender();
  if (qp.sender) qp.sender->adopted();
  if (!qp.sender || qp.sender->drained()) qp.note_drained();
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
