// The public fields of objects in verbs.h that concern events and lifetime; they are the same for
// every device. A device calls these functions when it creates and destroys objects and delivers
// events.
//
// Rule of verbs (ibv_get_cq_event(3), ibv_get_async_event(3)): the program acknowledges each event,
// and destroying a CQ, QP or SRQ waits until all of its events are acknowledged. The device counts
// delivered events; the public structs count acknowledged ones (comp_events_completed,
// async_events_completed, events_completed) under their mutex and cond.
#pragma once

#include "client/verbs/virtual.h"

namespace vrdma::client {

// Set the fields that do not depend on the device: context, user's context, linked objects, mutex
// and cond, counters. init_cq also takes a reference on `channel` (may be nullptr).
void init_cq(ibv_cq* cq, ibv_context* context, ibv_comp_channel* channel, void* cq_context);
void init_srq(ibv_srq* srq, ibv_context* context, ibv_pd* pd, void* srq_context);
void init_qp(ibv_qp* qp, ibv_context* context, const ibv_qp_init_attr_ex& attr);

// Wait until the given number of events are acknowledged, then destroy mutex and cond and release
// the channel. Called in destroy_*, when no further event can be delivered.
void finish_cq(ibv_cq* cq, uint32_t comp_events, uint32_t async_events);
void finish_srq(ibv_srq* srq, uint32_t events);
void finish_qp(ibv_qp* qp, uint32_t events);

// True if no CQ uses the channel. If false, destroying it fails with EBUSY.
bool channel_is_unused(ibv_comp_channel* channel);

// The context of the event's object; nullptr for an event of a port or the device.
ibv_context* event_context(const ibv_async_event& event);

// ibv_ack_cq_events and ibv_ack_async_event for virtual objects.
void ack_cq_events(ibv_cq* cq, unsigned int count);
void ack_async_event(ibv_async_event* event);

}  // namespace vrdma::client
