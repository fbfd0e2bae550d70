// Work requests of the guest's rings go to verbs, completions come back.
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

#include "core/base/log.h"
#include "pvrdma/function/attachment.h"

namespace vrdma::pvrdma {

namespace {

constexpr int kBatch = 32;  // completions that are polled at once
// Of one ring in a turn, so that a guest that posts without end does not keep others waiting.
constexpr int kTurn = 256;
// In which a program fetches what it was told of, also in a slow guest.
constexpr auto kMoment = std::chrono::milliseconds(50);

uint32_t flags_of(uint32_t flags) {
  uint32_t verbs = 0;
  if ((flags & kFence) != 0) verbs |= IBV_SEND_FENCE;
  if ((flags & kSignaled) != 0) verbs |= IBV_SEND_SIGNALED;
  if ((flags & kSolicited) != 0) verbs |= IBV_SEND_SOLICITED;
  return verbs;
}

}  // namespace

// --- doorbells ---

void Attachment::doorbell(uint64_t page, uint64_t offset, uint32_t value) {
  ++counts_.doorbells;
  const uint32_t handle = value & kHandleMask;
  // A program may write any handle into its page.
  const auto is_of_page = [&](uint32_t context) {
    if (context == 0) return page == 0;
    const Context* const owner = contexts_.find(context);
    return owner != nullptr && owner->page == page;
  };
  const auto find = [&](const auto& table) {
    auto* const found = table.find(handle);
    return found != nullptr && is_of_page(found->context) ? found : nullptr;
  };
  // Receives are posted before the guest goes on: it may tell its peer that they are.
  if (Qp* const qp = offset == kQpDoorbell ? find(qps_) : nullptr; qp != nullptr) {
    if ((value & kQpReceive) != 0) receive(qp);
    if ((value & kQpSend) != 0) look({Due::What::kSends, handle});
  } else if (Cq* const cq = offset == kCqDoorbell ? find(cqs_) : nullptr; cq != nullptr) {
    if ((value & (kCqArm | kCqArmSolicited)) != 0) {
      // Verbs do not tell which completion is solicited, so one too many is told.
      cq->is_armed = true;
      if (cq->ring.standing().value_or(0) > 0) {
        if (cq->has_untold) tell(cq);
        // What the driver was told of before it fetches now, or leaves: see remind().
        if (cq->is_armed) cq->armed_over = std::chrono::steady_clock::now();
        remind(cq);
      }
    }
    if (cq->held) look({Due::What::kCompletions, handle});
  } else if (Srq* const srq = offset == kSrqDoorbell ? find(srqs_) : nullptr; srq != nullptr) {
    if ((value & kSrqReceive) != 0) receive(srq);
  } else {
    ++counts_.doorbells_refused;
  }
}

Attachment::Rest Attachment::work() {
  if (std::exchange(holds_, false)) look_again();
  const std::vector<Due> due = std::exchange(due_, {});
  for (const Due& one : due) {
    Pending* const pending = this->pending(one);
    if (pending == nullptr) continue;
    pending->is_due = false;
    switch (one.what) {
      case Due::What::kSends:
        if (Qp* const qp = qps_.find(one.handle); qp != nullptr) send(qp);
        break;
      case Due::What::kReceives:
        if (Qp* const qp = qps_.find(one.handle); qp != nullptr) receive(qp);
        break;
      case Due::What::kShared:
        if (Srq* const srq = srqs_.find(one.handle); srq != nullptr) receive(srq);
        break;
      case Due::What::kCompletions:
        if (Cq* const cq = cqs_.find(one.handle); cq != nullptr) complete(cq);
        break;
      case Due::What::kReminder:
        if (Cq* const cq = cqs_.find(one.handle); cq != nullptr) remind(cq);
        break;
    }
  }
  if (!due_.empty()) return Rest::kMore;
  return holds_ ? Rest::kLater : Rest::kNothing;
}

// --- from the guest's rings to verbs ---

// Keys and addresses are the guest's as they are: the regions of this process show nothing but the
// guest's memory. Only a region that was made again has another key than the guest knows.

// The elements of the entry at the head of `ring`, behind `header` bytes.
void Attachment::read_elements(const Incoming& ring, size_t header, uint32_t count,
                               std::array<ibv_sge, kMostSges>* to) const {
  std::array<Element, kMostSges> elements;
  ring.copy(elements.data(), header, count * sizeof(Element));
  for (uint32_t i = 0; i < count; ++i)
    (*to)[i] = {elements[i].addr, elements[i].length, elements[i].lkey};
  if (keys_.empty()) return;
  for (uint32_t i = 0; i < count; ++i)
    if (const auto found = keys_.find((*to)[i].lkey); found != keys_.end())
      (*to)[i].lkey = found->second;
}

// An address handle. If the quota of them is used, those go of which the use is longest ago.
ibv_ah* Attachment::address(Pd* pd, const ibv_ah_attr& attr) const {
  for (;;) {
    if (ibv_ah* const found = pd->addresses.find(attr); found != nullptr || errno != ENOMEM)
      return found;
    const auto has_some = [](const Pd& one) { return !one.addresses.empty(); };
    Pd* const from = has_some(*pd) ? pd : pds_.find_if(has_some);
    if (from == nullptr) return nullptr;
    from->addresses.evict_oldest();
  }
}

Attachment::Fate Attachment::translate(const SendEntry& entry, Qp* qp, ibv_send_wr* wr) {
  wr->opcode = static_cast<ibv_wr_opcode>(entry.opcode);
  wr->send_flags = flags_of(entry.flags);
  const auto opcode = static_cast<SendOpcode>(entry.opcode);
  if (opcode == SendOpcode::kWriteImmediate || opcode == SendOpcode::kSendImmediate)
    wr->imm_data = entry.immediate;
  if (qp->type != IBV_QPT_RC) {
    if (opcode != SendOpcode::kSend && opcode != SendOpcode::kSendImmediate) return Fate::kRefused;
    const AddressEntry& to = entry.ud.address;
    const auto source = to_adapter(to.gid_index);
    if (!source) return Fate::kLost;
    ibv_ah_attr attr{};
    std::memcpy(attr.grh.dgid.raw, to.dgid, sizeof to.dgid);
    attr.grh.flow_label = to.class_flow & 0xfffff;
    attr.grh.traffic_class = static_cast<uint8_t>(to.class_flow >> 20);
    attr.grh.sgid_index = *source;
    attr.grh.hop_limit = to.hop_limit;
    attr.is_global = 1;
    attr.port_num = 1;
    wr->wr.ud.ah = address(qp->pd, attr);
    wr->wr.ud.remote_qpn = entry.ud.qpn;
    wr->wr.ud.remote_qkey = entry.ud.qkey;
    return wr->wr.ud.ah != nullptr ? Fate::kPosted : Fate::kLost;
  }
  switch (opcode) {
    case SendOpcode::kSend:
    case SendOpcode::kSendImmediate:
      return Fate::kPosted;
    case SendOpcode::kWrite:
    case SendOpcode::kWriteImmediate:
    case SendOpcode::kRead:
      wr->wr.rdma.remote_addr = entry.rdma.remote_addr;
      wr->wr.rdma.rkey = entry.rdma.rkey;
      return Fate::kPosted;
    case SendOpcode::kSwap:
    case SendOpcode::kAdd:
      wr->wr.atomic.remote_addr = entry.atomic.remote_addr;
      wr->wr.atomic.compare_add = entry.atomic.compare_add;
      wr->wr.atomic.swap = entry.atomic.swap;
      wr->wr.atomic.rkey = entry.atomic.rkey;
      return Fate::kPosted;
  }
  return Fate::kRefused;
}

void Attachment::send(Qp* qp) {
  // Before that the driver may have posted, but nothing is sent.
  if (qp->is_broken || qp->state < IBV_QPS_RTS) return;
  if (qp->is_lost()) {
    flush(qp, false);
    return;
  }
  for (int i = 0; i < kTurn; ++i) {
    const RingState state = qp->sends.look();
    if (state == RingState::kNotReady) return;
    if (state == RingState::kBroken) {
      fail(qp);
      return;
    }
    SendEntry entry;
    qp->sends.copy(&entry, 0, sizeof entry);
    ibv_send_wr wr{}, *bad = nullptr;
    std::array<ibv_sge, kMostSges> sges;
    Fate fate = entry.elements <= qp->max_send_sge ? translate(entry, qp, &wr) : Fate::kRefused;
    if (fate == Fate::kPosted) {
      read_elements(qp->sends, sizeof entry, entry.elements, &sges);
      wr.wr_id = qp->sends.position();
      wr.sg_list = sges.data();
      wr.num_sge = static_cast<int>(entry.elements);
      const int error = ::ibv_post_send(qp->verbs.get(), &wr, &bad);
      if (error == ENOMEM) {  // a completion makes room
        wait({Due::What::kSends, qp->handle});
        return;
      }
      if (error != 0) fate = Fate::kRefused;
    }
    const bool is_signaled = qp->all_signaled || (wr.send_flags & IBV_SEND_SIGNALED) != 0;
    const bool is_flushed = qp->state == IBV_QPS_ERR;  // whatever it is
    const bool ends_here =
        fate == Fate::kRefused || (fate == Fate::kLost && (is_signaled || is_flushed));
    if (ends_here && !may_end(*qp)) {
      wait({Due::What::kSends, qp->handle});
      return;
    }
    // A ring full of requests since: the first has ended without a completion.
    if (qp->sends.since(qp->first_send) == qp->sends.entries())
      note_first(qp, false, qp->sends.after(qp->first_send));
    const uint32_t position = qp->sends.position(), place = position & (qp->sends.entries() - 1);
    qp->send_ids[place] = entry.wr_id;
    qp->send_is_told[place] = fate != Fate::kPosted;
    qp->sends.advance();
    if (fate == Fate::kPosted) {
      if (is_signaled) qp->awaited = position;
      ++counts_.sends;
      continue;
    }
    if (++counts_.requests_refused <= kMostComplaints && fate == Fate::kLost)
      base::log_info(
          "a datagram of the guest is lost: the vdevice does not have its source address, or no "
          "address handle for its destination");
    if (ends_here)
      end_here(qp, entry.wr_id,
               is_flushed            ? IBV_WC_WR_FLUSH_ERR
               : fate == Fate::kLost ? IBV_WC_SUCCESS
                                     : IBV_WC_LOC_QP_OP_ERR);
    if (fate == Fate::kRefused) {
      bring_to_error(qp);
      look({Due::What::kSends, qp->handle});
      look({Due::What::kReceives, qp->handle});
      return;
    }
  }
  look({Due::What::kSends, qp->handle});
}

// Moves receives to `post`, which returns 0, ENOMEM or another errno. What stopped it: kNotReady,
// if nothing lies there; kReady, if there is no room or the turn is over; kBroken.
template <class Post>
RingState Attachment::move_receives(Incoming* ring, uint32_t max_sge, bool* has_room, Post post) {
  *has_room = true;
  for (int i = 0; i < kTurn; ++i) {
    const RingState state = ring->look();
    if (state != RingState::kReady) return state;
    ReceiveEntry entry;
    ring->copy(&entry, 0, sizeof entry);
    if (entry.elements > max_sge) return RingState::kBroken;
    std::array<ibv_sge, kMostSges> sges;
    read_elements(*ring, sizeof entry, entry.elements, &sges);
    ibv_recv_wr wr{};
    wr.wr_id = entry.wr_id;
    wr.sg_list = sges.data();
    wr.num_sge = static_cast<int>(entry.elements);
    const int error = post(&wr);
    if (error == ENOMEM) {
      *has_room = false;
      return RingState::kReady;
    }
    if (error != 0) return RingState::kBroken;
    ring->advance();
    ++counts_.receives;
  }
  return RingState::kReady;
}

void Attachment::receive(Qp* qp) {
  if (qp->is_broken || !qp->receives.valid() || qp->state == IBV_QPS_RESET) return;
  if (qp->is_lost()) {
    flush(qp, true);
    return;
  }
  bool has_room = true;
  const RingState state =
      move_receives(&qp->receives, qp->max_recv_sge, &has_room, [&](ibv_recv_wr* wr) {
        ibv_recv_wr* bad = nullptr;
        return ::ibv_post_recv(qp->verbs.get(), wr, &bad);
      });
  if (state == RingState::kBroken)
    fail(qp);
  else if (!has_room)
    wait({Due::What::kReceives, qp->handle});
  else if (state == RingState::kReady)
    look({Due::What::kReceives, qp->handle});
}

void Attachment::receive(Srq* srq) {
  if (srq->is_broken || srq->is_lost()) return;
  bool has_room = true;
  const RingState state = move_receives(&srq->ring, srq->max_sge, &has_room, [&](ibv_recv_wr* wr) {
    ibv_recv_wr* bad = nullptr;
    return ::ibv_post_srq_recv(srq->verbs.get(), wr, &bad);
  });
  if (state == RingState::kBroken) {
    srq->is_broken = true;
    event(IBV_EVENT_SRQ_ERR, srq->handle);
  } else if (!has_room) {
    wait({Due::What::kShared, srq->handle});
  } else if (state == RingState::kReady) {
    look({Due::What::kShared, srq->handle});
  }
}

// --- ends ---

void Attachment::bring_to_error(Qp* qp) {
  ibv_qp_attr attr{};
  attr.qp_state = qp->state = IBV_QPS_ERR;
  if (!qp->is_lost()) (void)::ibv_modify_qp(qp->verbs.get(), &attr, IBV_QP_STATE);
}

void Attachment::fail(Qp* qp) {
  qp->is_broken = true;
  bring_to_error(qp);
  event(IBV_EVENT_QP_FATAL, qp->handle);
}

// Whether the driver can get the end of a request that verbs do not get: there must be room for it,
// and it comes after those ends that verbs tell of requests before it.
bool Attachment::may_end(const Qp& qp) {
  const Cq& cq = *qp.send_cq;
  if (qp.awaited) return false;  // whose completion calls for another look
  const auto standing = cq.ring.standing();
  if (cq.is_broken || !standing || (!cq.held && *standing < cq.ring.entries())) return true;
  holds_ = true;
  return false;
}

// The end of the request that was taken last: of one that verbs refuse, or that is none, after
// which the queue pair fails and what the driver posted behind it is flushed; or of a lost
// datagram.
void Attachment::end_here(Qp* qp, uint64_t wr_id, ibv_wc_status status) {
  Ended ended;
  ended.entry.wr_id = wr_id;
  ended.entry.qp = qp->handle;
  ended.entry.status = status;
  ended.entry.port = 1;
  const uint32_t before = (qp->sends.position() - 1) & (2 * qp->sends.entries() - 1);
  // Behind others without a completion, of which nobody knows whether they have ended.
  ended.position =
      status == IBV_WC_SUCCESS || qp->first_send == before ? qp->sends.position() : qp->first_send;
  push_end(qp->send_cq, ended);
  announce(qp->send_cq);
}

// --- completions ---

void Attachment::on_completions(ibv_cq* cq) {
  look({Due::What::kCompletions, static_cast<const Cq*>(cq->cq_context)->handle});
  wake_();
}

// What the driver gets for it. Of a queue pair that has ended: nothing.
std::optional<Ended> Attachment::end_of(const ibv_wc& wc) const {
  const auto found = by_number_.find(wc.qp_num);
  if (found == by_number_.end()) return std::nullopt;
  Qp* const qp = found->second;
  Ended ended;
  ended.is_receive = (wc.opcode & IBV_WC_RECV) != 0;
  CompletionEntry& entry = ended.entry;
  entry.wr_id = ended.is_receive ? wc.wr_id : qp->send_ids[wc.wr_id & (qp->sends.entries() - 1)];
  entry.qp = qp->handle;
  entry.status = wc.status;
  entry.vendor_err = wc.vendor_err;
  entry.port = 1;
  if (wc.status == IBV_WC_SUCCESS) {
    entry.opcode = static_cast<uint32_t>(wc.opcode);
    entry.byte_len = wc.byte_len;
    entry.flags = ((wc.wc_flags & IBV_WC_GRH) != 0 ? kHasGrh : 0) |
                  ((wc.wc_flags & IBV_WC_WITH_IMM) != 0 ? kHasImmediate : 0);
    entry.immediate = wc.imm_data;
    entry.src_qp = wc.src_qp;
    entry.pkey_index = wc.pkey_index;
  }
  if (!ended.is_receive)
    ended.position = qp->sends.after(static_cast<uint32_t>(wc.wr_id));
  else  // those of a shared queue end in any order
    ended.position = qp->receives.valid() ? qp->receives.after(qp->first_receive) : 0;
  return ended;
}

// The completion of a request.
void Attachment::push_end(Cq* cq, const Ended& ended) {
  Qp* const qp = qps_.find(static_cast<uint32_t>(ended.entry.qp));
  image_.cqs.all[cq->handle].pushed =
      Pushed{cq->ring.next(), qp->handle, ended.position, ended.is_receive}.word();
  if (cq->ring.push(ended.entry) != RingState::kReady) ++counts_.events_lost;
  if (!ended.is_receive && qp->awaited && qp->sends.after(*qp->awaited) == ended.position)
    qp->awaited.reset();
  note_first(qp, ended.is_receive, ended.position);
}

// The queue pair ends, or begins anew: the driver takes none of its completions any more.
void Attachment::drop_held(uint32_t qp) {
  cqs_.each([qp](Cq* cq) {
    if (cq->held && cq->held->entry.qp == qp) cq->held.reset();
  });
}

void Attachment::note_first(Qp* qp, bool is_receive, uint32_t position) {
  ImagedQp& imaged = image_.qps.all[qp->handle];
  if (is_receive) {
    imaged.receives_ended = qp->first_receive = position;
    return;
  }
  const Incoming& sends = qp->sends;
  while (position != sends.position() && qp->send_is_told[position & (sends.entries() - 1)])
    position = sends.after(position);
  imaged.sends_ended = qp->first_send = position;
}

// What lies in a ring of a lost queue pair.
void Attachment::flush(Qp* qp, bool is_receive) {
  Incoming& ring = qp->sends_or_receives(is_receive);
  Cq* const cq = is_receive ? qp->recv_cq : qp->send_cq;
  const Due again{is_receive ? Due::What::kReceives : Due::What::kSends, qp->handle};
  for (int i = 0; i < kTurn; ++i) {
    const RingState state = ring.look();
    if (state == RingState::kNotReady) return;
    const auto standing = cq->ring.standing();
    if (state == RingState::kBroken || !standing) {
      fail(qp);
      return;
    }
    if (*standing == cq->ring.entries()) {  // until the driver takes some
      holds_ = true;
      wait(again);
      return;
    }
    Ended ended;
    static_assert(offsetof(SendEntry, wr_id) == 0 && offsetof(ReceiveEntry, wr_id) == 0);
    ring.copy(&ended.entry.wr_id, 0, sizeof ended.entry.wr_id);
    ended.entry.qp = qp->handle;
    ended.entry.status = IBV_WC_WR_FLUSH_ERR;
    ended.entry.port = 1;
    ended.is_receive = is_receive;
    ring.advance();
    ended.position = ring.position();
    push_end(cq, ended);
    announce(cq);
  }
  look(again);
}

// Until nothing lies there, and what comes from then on is told. A completion for which the ring
// has no room is held: the driver has posted more than its queue can take.
void Attachment::complete(Cq* cq) {
  bool any = false, armed = false;
  for (int left = kTurn; !cq->is_broken;) {
    const auto standing = cq->ring.standing();
    if (!standing) {
      cq->is_broken = true;
      event(IBV_EVENT_CQ_ERR, cq->handle);
      break;
    }
    uint32_t room = cq->ring.entries() - *standing;
    if (cq->held && room > 0) {
      push_end(cq, *std::exchange(cq->held, std::nullopt));
      any = true;
      --room;
    }
    if (cq->held) {
      holds_ = true;
      wait({Due::What::kCompletions, cq->handle});
      break;
    }
    if (left <= 0) {
      look({Due::What::kCompletions, cq->handle});
      break;
    }
    ibv_wc wcs[kBatch];
    const int most = static_cast<int>(std::min<uint32_t>(room + 1, kBatch));
    const int count = ::ibv_poll_cq(cq->verbs.get(), most, wcs);
    if (count > 0) {
      settle_sends(cq, std::span(wcs, static_cast<size_t>(count)));
      for (const ibv_wc& wc : std::span(wcs, static_cast<size_t>(count))) {
        const auto ended = end_of(wc);
        if (!ended) continue;
        if (room == 0) {
          cq->held = ended;
          break;  // there is no other
        }
        push_end(cq, *ended);
        --room;
      }
      counts_.completions += static_cast<uint64_t>(count);
      left -= count;
      any = true;
      armed = false;
      continue;
    }
    if (armed) break;
    // What comes between the last look and this one is found by another look.
    if (::ibv_req_notify_cq(cq->verbs.get(), 0) != 0) break;
    armed = true;
  }
  if (!any) return;
  announce(cq);
  look_again();
}

// A receive must not reach the driver before the send that it answers, also if these have queues of
// their own: the send's completion lies there by then, and comes first.
void Attachment::settle_sends(Cq* cq, std::span<const ibv_wc> received) {
  if (std::exchange(cq->is_settling, true)) return;
  for (const ibv_wc& wc : received) {
    const auto found = by_number_.find(wc.qp_num);
    if (found == by_number_.end() || wc.status != IBV_WC_SUCCESS || (wc.opcode & IBV_WC_RECV) == 0)
      continue;
    Cq* const sends = found->second->send_cq;
    if (sends != cq && !sends->is_settling) complete(sends);
  }
  cq->is_settling = false;
}

// A program that takes a few completions for each event relies on the next event for the others,
// which lay there when it armed the queue. Adapters report them again, and the driver does not
// say what it takes, so it has a moment for that.
void Attachment::remind(Cq* cq) {
  if (!cq->armed_over || !cq->is_armed) return;
  if (cq->ring.standing().value_or(0) == 0) {
    cq->armed_over.reset();
  } else if (std::chrono::steady_clock::now() - *cq->armed_over >= kMoment) {
    tell(cq);
  } else {
    holds_ = true;
    wait({Due::What::kReminder, cq->handle});
  }
}

// Its ring has something new.
void Attachment::announce(Cq* cq) {
  cq->has_untold = true;
  if (cq->is_armed) tell(cq);
}

void Attachment::tell(Cq* cq) {
  cq->is_armed = cq->has_untold = false;
  cq->armed_over.reset();
  if (told_.push(cq->handle) != RingState::kReady) {
    ++counts_.events_lost;
    return;
  }
  interrupts_.raise(kCompletionVector);
}

}  // namespace vrdma::pvrdma
