// The part of events and of object life that verbs.h lays open: public fields, the same for every
// device. A device uses it when it makes and destroys objects and when it hands events out.
//
// Rule of verbs: each event handed out must be acknowledged, and destroying a CQ, QP or SRQ waits
// until all of its events are. The device counts what it handed out, the public structs count what
// was acknowledged (comp_events_completed, async_events_completed, events_completed), under their
// mutex, with their cond.
#pragma once

#include "client/verbs/virtual.h"

namespace vrdma::client {

// Set the fields that do not depend on the device: context, user's context, linked objects, mutex
// and cond, counters. init_cq also takes a reference on `channel` (may be nullptr).
void init_cq(ibv_cq* cq, ibv_context* context, ibv_comp_channel* channel, void* cq_context);
void init_srq(ibv_srq* srq, ibv_context* context, ibv_pd* pd, void* srq_context);
void init_qp(ibv_qp* qp, ibv_context* context, const ibv_qp_init_attr_ex& attr);

// Wait until so many events as were handed out are acknowledged, then destroy mutex and cond and
// give the channel back. Called in destroy_*, after no further event can be handed out.
void finish_cq(ibv_cq* cq, uint32_t comp_events, uint32_t async_events);
void finish_srq(ibv_srq* srq, uint32_t events);
void finish_qp(ibv_qp* qp, uint32_t events);

// True if no CQ holds the channel; else EBUSY is the answer to destroying it.
bool channel_is_unused(ibv_comp_channel* channel);

// The context of the object that an event is about; nullptr if it is about a port or the device.
ibv_context* event_context(const ibv_async_event& event);

// ibv_ack_cq_events and ibv_ack_async_event of virtual objects.
void ack_cq_events(ibv_cq* cq, unsigned int count);
void ack_async_event(ibv_async_event* event);

}  // namespace vrdma::client
