// Sessions outlive the daemon: how another one takes them over.
//
// The requests that made what there is (session_record.cc) are served again, by the code that
// serves all, with the numbers that their answers gave (forced_). Links are made again when all
// sessions of a fabric are there.
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "core/ipc/bell.h"
#include "core/rdma/qp_state.h"
#include "vrdmad/records/process_files.h"
#include "vrdmad/records/session_records.h"
#include "vrdmad/worker/calls.h"
#include "vrdmad/worker/session.h"

namespace vrdma::vrdmad {

using base::fail;
using base::Fd;
using base::pass;
using base::Result;
using ipc::Call;

std::optional<SessionSummary> summary_of(const SessionFile& file) {
  Who who{};
  const auto records = file.all(Stored::kWho);
  if (records.empty() || !read(records[0], &who)) return {};
  who.vdevice[sizeof who.vdevice - 1] = '\0';
  return SessionSummary{who.vdevice, who.netns, who.node_guid,
                        who.session, who.epoch, who.process.pid};
}

Result<std::unique_ptr<Session>> Session::adopt(std::unique_ptr<SessionFile> file,
                                                std::shared_ptr<Vdevice> vdevice, KnownFiles& known,
                                                transport::Runner& runner,
                                                const SessionSettings& settings,
                                                std::function<void(Session*)> ended) {
  std::unique_ptr<Session> session(
      new Session(Fd(), std::move(vdevice), runner, settings, std::move(ended)));
  session->goodbye_ = true;  // until it is taken over, nothing is told to peers
  if (auto made = session->take_over(*file, known); !made) {
    // What stands in the program's memory is its own, and nobody's after it.
    if (session->context_ != nullptr) session->context_->heap->leave();
    if (session->context_ != nullptr) session->context_->claims_heap->leave();
    return pass(std::move(made).error());
  }
  session->file_ = std::move(file);
  session->goodbye_ = false;
  return session;
}

Result<void> Session::take_over(SessionFile& file, KnownFiles& known) {
  if (const std::string reason = file.forbidden(); !reason.empty()) return fail(ENOTSUP, reason);
  Who who{};
  if (const auto records = file.all(Stored::kWho); records.empty() || !read(records[0], &who))
    return fail(EINVAL, "nothing is known of it");
  auto caller = settings_.identity->find(who.process);
  if (!caller) return pass(std::move(caller).error());
  caller_ = std::move(*caller);
  auto opened = caller_->open(false);
  if (!opened) return pass(std::move(opened).error());
  const auto process =
      rdma::Process::make(caller_->peer(), std::move(opened->pidfd), std::move(opened->memory));
  const pid_t pid = process->pid();
  auto looked = known.find(pid);
  if (looked == known.end()) {
    const auto found = std::make_shared<std::optional<Result<ProcessFiles>>>();
    if (!settings_.identity->look(who.process.netns_cookie,
                                  [found, pid, process, account = vdevice_->intake] {
                                    *found = ProcessFiles::of(pid, process->pidfd(), account);
                                  }))
      return fail(EAGAIN, "its process cannot be looked at now");
    looked = known.emplace(pid, std::move(**found)).first;
  }
  const auto& files = looked->second;
  if (!files) return fail(files.error().code(), files.error().message());
  auto arena = files->memory_file(who.arena, ipc::kQueueArenaSize);
  auto bells = files->memory_file(who.bells, ipc::kBellFileSize);
  auto memory = files->memory_file(who.memory, ipc::kMemoryArenaSize);
  auto doorbell = files->eventfd(who.doorbell);
  auto events = files->event_end(who.events);
  for (auto* each : {&arena, &bells, &memory, &doorbell, &events})
    if (!*each) return pass(std::move(*each).error());

  auto context = std::make_unique<rdma::Context>();
  attribute(*process);
  if (charge(provisioning::Kind::kContexts, 1, &context->charges) != 0)
    return fail(ENOMEM, "the vdevice has too many contexts");
  process->start_reach(loop(), vdevice_->reach_threads);
  auto death = loop().watch(process->pidfd(), EPOLLIN, [this](uint32_t) { end(false); });
  if (!death) return pass(std::move(death).error());
  context->process = process;
  context->id = who.session;
  context->events = std::move(*events);
  if (const int error = furnish(std::move(context), {std::move(*arena), std::move(*bells),
                                                     std::move(*memory), std::move(*doorbell)});
      error != 0)
    return fail(error, "map its memory: " + std::string(std::strerror(error)));
  death_watch_ = std::move(*death);
  if (auto again = serve_again(file, *files); !again) return again;

  context_->epoch = settings_.epoch;
  auto& epoch = context_->arena.at<ipc::ArenaHeader>(0)->epoch;
  uint32_t before = epoch.load();  // of a daemon that was killed in the middle of this, perhaps
  while (before != 0 && !epoch.compare_exchange_weak(before, settings_.epoch)) {
  }
  if (before == 0) return fail(ETIMEDOUT, "its program waits no longer");
  who.epoch = settings_.epoch;
  file.put(Stored::kWho, 0, &who, sizeof who);
  last_ = file.last();
  return {};
}

Result<void> Session::serve_again(SessionFile& file, const ProcessFiles& files) {
  for (const auto& record : file.all(Stored::kChannel)) {
    ChannelRecord made{};
    if (!read(record, &made)) return fail(EINVAL, "its state is damaged");
    auto write_end = files.event_end(made.write_end);
    if (!write_end) {  // the answer did not reach the program, or it will be missed by a CQ
      file.erase(Stored::kChannel, made.handle);
      continue;
    }
    auto channel = std::make_unique<rdma::Channel>();
    channel->write_end = std::move(*write_end);
    context_->channels.add(std::move(channel), made.handle);
  }
  std::optional<std::pair<Stored, uint32_t>> unanswered;
  for (const auto kind : {Stored::kPd, Stored::kCq, Stored::kCqSize, Stored::kAh, Stored::kMr,
                          Stored::kSrq, Stored::kQp}) {
    const CallTraits& maker = maker_of(kind);
    for (const auto& record : file.all(kind)) {
      if (record.size != maker.request + maker.reply) return fail(EINVAL, "its state is damaged");
      ipc::Request request;
      ipc::Reply wanted;
      request.call = maker.call;
      std::memcpy(request.bytes, record.data, maker.request);
      std::memcpy(wanted.bytes, record.data + maker.request, maker.reply);
      Answer answer;
      forced_ = &wanted;
      const int error = dispatch(request, {}, &answer);
      forced_ = nullptr;
      if (error != 0 || std::memcmp(answer.reply.bytes, wanted.bytes, maker.reply) != 0)
        return fail(error != 0 ? error : EEXIST,
                    "what it had cannot be made again: " +
                        std::string(std::strerror(error != 0 ? error : EEXIST)));
      if (!record.answered) unanswered.emplace(kind, record.number);
    }
  }
  for (const auto& record : file.all(Stored::kQpState)) {
    QpRecord state{};
    rdma::Qp* qp = context_->qps.find(record.number);
    if (qp == nullptr) continue;  // it was being made, or destroyed
    if (!read(record, &state) || record.size != sizeof state + state.groups * sizeof(verbs::Gid))
      return fail(EINVAL, "its state is damaged");
    qp->attributes = state.attributes;
    qp->sgid = state.sgid;
    qp->out_used = state.out_used != 0;
    qp->in_used = state.in_used != 0;
    qp->maps_peer_id = state.maps_peer;
    qp->link = state.link;
    qp->peer_outbox_at = state.peer_outbox;
    qp->inbox_head = qp->inbox_taken_over = ipc::head_of(*qp->inbox, qp->inbox_depth);
    if (state.outbox != 0) {
      auto outbox = rdma::restore_outbox(*qp->context, state.outbox, state.outbox_depth);
      if (!outbox) return pass(std::move(outbox).error());
      qp->outbox = std::move(*outbox);
    }
    for (uint32_t i = 0; i < state.groups; ++i) {
      verbs::Gid group;
      std::memcpy(&group, record.data + sizeof state + i * sizeof group, sizeof group);
      (void)context_->device->fabric->attach(*qp, group);
    }
    was_linked_[qp->handle] = {state.linked_out != 0, state.linked_in != 0};
  }
  for (const auto& record : file.all(Stored::kSrqSize)) {
    SrqSizeRecord size{};
    rdma::Srq* srq = context_->srqs.find(record.number);
    if (srq == nullptr || !read(record, &size)) continue;
    if (const int error = resize_srq(*srq, size.max_wr); error != 0)
      return fail(error, "its shared receive queue cannot be made again");
  }
  if (unanswered) {  // the program will ask for another
    ipc::Request request;
    Answer answer;
    request.call = remover_of(unanswered->first).call;
    request.handle.handle = unanswered->second;
    (void)dispatch(request, {}, &answer);
    file.erase(unanswered->first, unanswered->second);
    if (unanswered->first == Stored::kQp) file.erase(Stored::kQpState, unanswered->second);
  }
  return {};
}

void Session::restore_pairs() {
  context_->qps.each([this](rdma::Qp& qp) { context_->device->fabric->restore_pair(qp); });
}

// What a dead worker held is given back unless it was completed.
void Session::restore_claims() {
  for (const auto& record : file_->all(Stored::kClaim)) {
    ClaimRecord claim{};
    const uint32_t slot = record.number & (ipc::kMaxQueueDepth - 1);
    rdma::Srq* srq = context_->srqs.find(record.number >> 15);
    const rdma::Qp* qp = read(record, &claim) ? context_->qps.find(claim.qp) : nullptr;
    const auto completed_in = [slot](const ipc::RecvRing& ring, uint32_t depth, uint32_t from) {
      const uint32_t head = ipc::head_of(ring, depth);
      for (uint32_t i = head - std::min(head - from, depth); i != head; ++i)
        if (ring.entries()[i & (depth - 1)].slot == slot) return true;
      return false;
    };
    const bool completed =
        qp != nullptr &&
        (completed_in(*qp->inbox, qp->inbox_depth, claim.inbox) ||
         (qp->peer_outbox != nullptr &&
          completed_in(*qp->peer_outbox->ring, qp->peer_outbox->depth, claim.peer_outbox)));
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
  return verbs::is_reliable(qp.type) && qp.can_send() && tail != 0 &&
         qp.results[(tail - 1) & (qp.sq_depth - 1)].status !=
             static_cast<uint32_t>(verbs::WcStatus::kSuccess);
}

}  // namespace

void Session::restore_links() {
  restore_claims();
  context_->qps.each([this](rdma::Qp& qp) {
    const auto [out, in] = was_linked_[qp.handle];
    qp.bereaved = !context_->device->fabric->restore_link(qp, out, in) || has_failed(qp);
  });
  was_linked_.clear();
}

// All sessions of the fabric are there, with their links: the work goes on.
void Session::go_on() {
  context_->heap->wipe();
  context_->claims_heap->wipe();
  write_down_changes();
  context_->qps.each([this](rdma::Qp& qp) {
    qp.block->state.store(qp.attributes.state, std::memory_order_release);
    qp.note_drained();  // nothing is in hand
    keep_state(qp);
    qp.sender->adopted();
    if (!qp.can_send()) qp.sender->link_changed();  // before the program looks, as in Qp::fail()
    for (rdma::Cq* cq : {qp.send_cq, qp.recv_cq})
      if (cq != nullptr) ipc::announce(*cq->bell, qp.qpn);
    context_->device->fabric->relink(qp);
    if (qp.out != nullptr) qp.sender->link_changed();
    qp.sender->kick();
  });
  // The dead daemon may have taken a program's request to be told, and not have told it.
  context_->cqs.each([](rdma::Cq& cq) { cq.wake(); });
  context_->qps.each([](rdma::Qp& qp) {
    if (qp.bereaved) qp.fail();
  });
}

// kResume, said on a connection of its own, which becomes that of the session that it names.
int Session::resume(const ipc::Request& request) {
  if (auto who = caller_->check(sender_); !who) return refuse_caller(who.error());
  for (const auto& other : vdevice_->sessions) {
    if (other->context_ == nullptr || other->over_ || other->file_ == nullptr ||
        other->context_->id != request.resume.session ||
        other->context_->process->peer() != caller_->peer())
      continue;
    socket_watch_.reset();
    other->attach(std::move(socket_), request.sequence);
    return 0;
  }
  return vdevice_->awaits_others ? EAGAIN : ESTALE;
}

void Session::attach(Fd socket, uint32_t sequence) {
  socket_watch_.reset();
  handed_over_.reset();
  with_intake_ = false;
  close_connection(vdevice_->intake, std::exchange(socket_, std::move(socket)));
  auto watch = loop().watch(socket_.get(), EPOLLIN | EPOLLRDHUP | EPOLLET,
                            [this](uint32_t) { on_socket(); });
  if (!watch) return end(false);
  socket_watch_ = std::move(*watch);
  sequence_ = sequence;
  Answer answer;
  answer.reply.resume.epoch = settings_.epoch;
  answer.reply.resume.grace_ms = settings_.grace_ms;
  send_answer(std::move(answer));
}

// A request that the dead daemon had served, or had begun to serve: what it did not do is done, and
// the answer is as if it had lived.
bool Session::serve_repeated(const ipc::Request& request, Answer* answer) {
  if (request.sequence == 0) return false;
  const auto last = std::exchange(last_, {});
  if (last.begun == 0 || last.begun != request.sequence) return false;
  rdma::Qp* qp = context_->find_qp(request.handle.handle);
  const auto& modify = request.modify_qp;
  const auto to = (modify.mask & verbs::kQpState) != 0 || qp == nullptr
                      ? static_cast<verbs::QpState>(modify.attributes.state)
                      : qp->state();
  // What may be done from where it leads to is done once more: the dead daemon may have died
  // within.
  if (request.call == Call::kModifyQp &&
      (qp == nullptr ||
       (modify.rts_mask == 0 && rdma::modify_is_legal(qp->type, qp->state(), to, modify.mask))))
    return false;
  if (last.reply.sequence == request.sequence) {
    // The descriptors of a channel were lost with the answer.
    if (request.call == Call::kCreateChannel) return false;
    answer->reply = last.reply;
  } else if (request.call == Call::kModifyQp) {
    const bool half = modify.rts_mask != 0 && to == verbs::QpState::kRtr && qp->state() == to;
    const bool whole =
        modify.rts_mask != 0 ? qp->state() == verbs::QpState::kRts : qp->state() == to;
    if (half) {  // it is the program's, and checked like any other
      if (!rdma::modify_is_legal(qp->type, to, verbs::QpState::kRts, modify.rts_mask) ||
          !are_valid(modify.attributes, modify.mask | modify.rts_mask))
        return false;
      answer->reply.error = change_qp(*qp, verbs::QpState::kRts, modify.rts_mask, modify, answer);
    } else if (!whole) {
      return false;
    }
    answer->reply.modify_qp.state = qp->attributes.state;
    answer->reply.modify_qp.direct = to == verbs::QpState::kRtr && qp->outbox != nullptr ? 1 : 0;
  } else {
    if (const auto effect = traits_of(request.call).effect;
        effect != CallTraits::kRemoves && effect != CallTraits::kUndoes)
      return false;
    const int error = dispatch(request, {}, answer);
    answer->reply.error = error == EINVAL ? 0 : error;  // it was done
  }
  if (request.call == Call::kModifyQp && qp != nullptr && answer->reply.modify_qp.direct != 0) {
    rdma::Qp* peer = context_->device->fabric->pair(*qp);
    answer->reply.modify_qp.direct = 0;
    if (peer != nullptr) answer->reply.error = tell_direct(*qp, *peer, request.modify_qp, answer);
  }
  answer->reply.sequence = sequence_;
  if (answer->reply.error == 0) remember(request, answer->reply);
  return true;
}

}  // namespace vrdma::vrdmad
