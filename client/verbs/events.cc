#include "client/verbs/events.h"

namespace vrdma::client {
namespace {

// std::lock_guard for the public structs' pthread_mutex_t.
class Locked {
 public:
  explicit Locked(pthread_mutex_t* mutex) : mutex_(mutex) { ::pthread_mutex_lock(mutex_); }
  Locked(const Locked&) = delete;
  Locked& operator=(const Locked&) = delete;
  ~Locked() { ::pthread_mutex_unlock(mutex_); }

 private:
  pthread_mutex_t* mutex_;
};

template <class Object>
void init_lock(Object* object) {
  ::pthread_mutex_init(&object->mutex, nullptr);
  ::pthread_cond_init(&object->cond, nullptr);
}

template <class Object>
void destroy_lock(Object* object) {
  ::pthread_cond_destroy(&object->cond);
  ::pthread_mutex_destroy(&object->mutex);
}

template <class Object>
void acknowledge(Object* object, uint32_t Object::*counter, uint32_t count) {
  const Locked lock(&object->mutex);
  object->*counter += count;
  ::pthread_cond_signal(&object->cond);
}

template <class Object>
void wait_and_destroy_lock(Object* object, uint32_t events) {
  {
    const Locked lock(&object->mutex);
    while (object->events_completed != events) ::pthread_cond_wait(&object->cond, &object->mutex);
  }
  destroy_lock(object);
}

}  // namespace

void init_cq(ibv_cq* cq, ibv_context* context, ibv_comp_channel* channel, void* cq_context) {
  cq->context = context;
  cq->channel = channel;
  cq->cq_context = cq_context;
  cq->comp_events_completed = 0;
  cq->async_events_completed = 0;
  init_lock(cq);
  if (channel != nullptr) {
    const Locked lock(&context->mutex);
    ++channel->refcnt;
  }
}

void init_srq(ibv_srq* srq, ibv_context* context, ibv_pd* pd, void* srq_context) {
  srq->context = context;
  srq->pd = pd;
  srq->srq_context = srq_context;
  srq->events_completed = 0;
  init_lock(srq);
}

void init_qp(ibv_qp* qp, ibv_context* context, const ibv_qp_init_attr_ex& attr) {
  qp->context = context;
  qp->qp_context = attr.qp_context;
  qp->pd = attr.pd;
  qp->send_cq = attr.send_cq;
  qp->recv_cq = attr.recv_cq;
  qp->srq = attr.srq;
  qp->qp_type = attr.qp_type;
  qp->state = IBV_QPS_RESET;
  qp->events_completed = 0;
  init_lock(qp);
}

void finish_cq(ibv_cq* cq, uint32_t comp_events, uint32_t async_events) {
  {
    const Locked lock(&cq->mutex);
    while (cq->comp_events_completed != comp_events || cq->async_events_completed != async_events)
      ::pthread_cond_wait(&cq->cond, &cq->mutex);
  }
  destroy_lock(cq);
  if (cq->channel != nullptr) {
    const Locked lock(&cq->context->mutex);
    --cq->channel->refcnt;
  }
}

void finish_srq(ibv_srq* srq, uint32_t events) { wait_and_destroy_lock(srq, events); }

void finish_qp(ibv_qp* qp, uint32_t events) { wait_and_destroy_lock(qp, events); }

bool channel_is_unused(ibv_comp_channel* channel) {
  const Locked lock(&channel->context->mutex);
  return channel->refcnt == 0;
}

ibv_context* event_context(const ibv_async_event& event) {
  switch (event.event_type) {
    case IBV_EVENT_CQ_ERR:
      return event.element.cq->context;
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
    case IBV_EVENT_COMM_EST:
    case IBV_EVENT_SQ_DRAINED:
    case IBV_EVENT_PATH_MIG:
    case IBV_EVENT_PATH_MIG_ERR:
    case IBV_EVENT_QP_LAST_WQE_REACHED:
      return event.element.qp->context;
    case IBV_EVENT_SRQ_ERR:
    case IBV_EVENT_SRQ_LIMIT_REACHED:
      return event.element.srq->context;
    case IBV_EVENT_WQ_FATAL:
      return event.element.wq->context;
    default:
      return nullptr;
  }
}

void ack_cq_events(ibv_cq* cq, unsigned int count) {
  acknowledge(cq, &ibv_cq::comp_events_completed, count);
}

void ack_async_event(ibv_async_event* event) {
  switch (event->event_type) {
    case IBV_EVENT_CQ_ERR:
      acknowledge(event->element.cq, &ibv_cq::async_events_completed, 1);
      break;
    case IBV_EVENT_SRQ_ERR:
    case IBV_EVENT_SRQ_LIMIT_REACHED:
      acknowledge(event->element.srq, &ibv_srq::events_completed, 1);
      break;
    case IBV_EVENT_WQ_FATAL:
      acknowledge(event->element.wq, &ibv_wq::events_completed, 1);
      break;
    default:
      if (event_context(*event) != nullptr)
        acknowledge(event->element.qp, &ibv_qp::events_completed, 1);
  }
}

}  // namespace vrdma::client
