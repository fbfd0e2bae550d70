// The synchronous calls: address resolution by name, and ids that wait for their events.
#include <netdb.h>
#include <rdma/rdma_verbs.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "client/dial/export.h"
#include "client/dial/guard.h"
#include "client/rdmacm/objects.h"

namespace vrdma::client {
namespace {

sockaddr* copy(const sockaddr* from, socklen_t length) {
  auto* to = static_cast<sockaddr*>(std::malloc(length));
  if (to != nullptr) std::memcpy(to, from, length);
  return to;
}

void free_info(rdma_addrinfo* info) {
  while (info != nullptr) {
    rdma_addrinfo* next = info->ai_next;
    for (void* part :
         {static_cast<void*>(info->ai_src_addr), static_cast<void*>(info->ai_dst_addr),
          static_cast<void*>(info->ai_src_canonname), static_cast<void*>(info->ai_dst_canonname),
          info->ai_route, info->ai_connect, static_cast<void*>(info)})
      std::free(part);
    info = next;
  }
}

ibv_qp_type type_of(int port_space) {
  return port_space == RDMA_PS_UDP || port_space == RDMA_PS_IPOIB ? IBV_QPT_UD : IBV_QPT_RC;
}

// The result of getaddrinfo(3), or -1 and errno.
int resolve(const char* node, const char* service, const rdma_addrinfo* hints,
            rdma_addrinfo* info) {
  addrinfo wanted{};
  if ((info->ai_flags & RAI_PASSIVE) != 0) wanted.ai_flags |= AI_PASSIVE;
  if ((info->ai_flags & RAI_NUMERICHOST) != 0) wanted.ai_flags |= AI_NUMERICHOST;
  if (hints != nullptr && (hints->ai_flags & RAI_FAMILY) != 0) wanted.ai_family = hints->ai_family;
  wanted.ai_socktype = info->ai_qp_type == IBV_QPT_UD ? SOCK_DGRAM : SOCK_STREAM;
  addrinfo* found = nullptr;
  if (node != nullptr || service != nullptr) {
    if (const int error = ::getaddrinfo(node, service, &wanted, &found); error != 0) return error;
    const bool passive = (info->ai_flags & RAI_PASSIVE) != 0;
    info->ai_family = found->ai_family;
    sockaddr* address = copy(found->ai_addr, found->ai_addrlen);
    (passive ? info->ai_src_addr : info->ai_dst_addr) = address;
    (passive ? info->ai_src_len : info->ai_dst_len) = found->ai_addrlen;
    ::freeaddrinfo(found);
    if (address == nullptr) return answer(ENOMEM);
  } else if (hints->ai_dst_len != 0) {
    info->ai_dst_addr = copy(hints->ai_dst_addr, hints->ai_dst_len);
    info->ai_dst_len = hints->ai_dst_len;
    info->ai_family = hints->ai_dst_addr->sa_family;
  }
  if (info->ai_src_addr == nullptr && hints != nullptr && hints->ai_src_len != 0) {
    info->ai_src_addr = copy(hints->ai_src_addr, hints->ai_src_len);
    info->ai_src_len = hints->ai_src_len;
    if (info->ai_family == 0) info->ai_family = hints->ai_src_addr->sa_family;
  }
  return 0;
}

int get_info(const char* node, const char* service, const rdma_addrinfo* hints,
             rdma_addrinfo** result) {
  if (node == nullptr && service == nullptr && hints == nullptr) return answer(EINVAL);
  auto* info = static_cast<rdma_addrinfo*>(std::calloc(1, sizeof(rdma_addrinfo)));
  if (info == nullptr) return answer(ENOMEM);
  if (hints != nullptr) {
    info->ai_flags = hints->ai_flags;
    info->ai_port_space = hints->ai_port_space;
    info->ai_qp_type = hints->ai_qp_type;
  }
  if (info->ai_port_space == 0)
    info->ai_port_space = info->ai_qp_type == IBV_QPT_UD ? RDMA_PS_UDP : RDMA_PS_TCP;
  if (info->ai_qp_type == 0) info->ai_qp_type = type_of(info->ai_port_space);
  if (const int error = resolve(node, service, hints, info); error != 0) {
    free_info(info);
    return error;
  }
  *result = info;
  return 0;
}

int listen_side(Id* id, const rdma_addrinfo& info, ibv_pd* pd, ibv_qp_init_attr* attr) {
  if (rdma_bind_addr(&id->base, info.ai_src_addr) != 0) return -1;
  if (pd != nullptr) id->base.pd = pd;
  if (attr == nullptr) return 0;
  id->wanted = std::make_unique<ibv_qp_init_attr>(*attr);
  id->wanted->qp_type = static_cast<ibv_qp_type>(info.ai_qp_type);
  return 0;
}

int connect_side(Id* id, const rdma_addrinfo& info, ibv_pd* pd, ibv_qp_init_attr* attr) {
  constexpr int kTimeout = 2000;  // ms
  if (rdma_resolve_addr(&id->base, info.ai_src_addr, info.ai_dst_addr, kTimeout) != 0) return -1;
  if (rdma_resolve_route(&id->base, kTimeout) != 0) return -1;
  if (attr != nullptr) {
    attr->qp_type = static_cast<ibv_qp_type>(info.ai_qp_type);
    if (rdma_create_qp(&id->base, pd, attr) != 0) return -1;
  }
  if (info.ai_connect_len != 0) {
    const auto* data = static_cast<const uint8_t*>(info.ai_connect);
    id->connect_data.assign(data, data + info.ai_connect_len);
  }
  return 0;
}

void destroy_endpoint(rdma_cm_id* id) {
  if (id->qp != nullptr) rdma_destroy_qp(id);
  if (id->srq != nullptr) rdma_destroy_srq(id);
  free_id(Id::of(id));
}

int create_endpoint(rdma_cm_id** made, const rdma_addrinfo& info, ibv_pd* pd,
                    ibv_qp_init_attr* attr) {
  rdma_cm_id* id = nullptr;
  if (create_id(nullptr, &id, nullptr, static_cast<rdma_port_space>(info.ai_port_space),
                static_cast<ibv_qp_type>(info.ai_qp_type)) != 0)
    return -1;
  const bool passive = (info.ai_flags & RAI_PASSIVE) != 0;
  const int result =
      passive ? listen_side(Id::of(id), info, pd, attr) : connect_side(Id::of(id), info, pd, attr);
  if (result != 0) {
    const int why = errno;
    destroy_endpoint(id);
    return answer(why);
  }
  *made = id;
  return 0;
}

int get_request(Id* listener, rdma_cm_id** made) {
  if (!listener->sync) return answer(EINVAL);
  if (listener->base.event != nullptr) acknowledge(std::exchange(listener->base.event, nullptr));
  rdma_cm_event* event = nullptr;
  if (next_event(listener->base.channel, &event) != 0) return -1;
  int error = event->status < 0 ? -event->status : event->status;
  if (error == 0 && event->event != RDMA_CM_EVENT_CONNECT_REQUEST) error = EINVAL;
  rdma_cm_id* id = event->id;
  if (error == 0 && listener->wanted != nullptr) {
    ibv_qp_init_attr attr = *listener->wanted;
    if (rdma_create_qp(id, listener->base.pd, &attr) != 0) error = errno;
  }
  if (error != 0) {
    const bool request = event->event == RDMA_CM_EVENT_CONNECT_REQUEST;
    listener->base.event = event;
    if (request) destroy_endpoint(id);
    return answer(error);
  }
  id->event = event;
  *made = id;
  return 0;
}

}  // namespace
}  // namespace vrdma::client

using namespace vrdma::client;  // NOLINT: this part is nothing but the way from C

VRDMA_EXPORT int rdma_getaddrinfo(const char* node, const char* service, const rdma_addrinfo* hints,
                                  rdma_addrinfo** res) try {
  VRDMA_PASS_ON(-1, rdma_getaddrinfo, node, service, hints, res)
  return get_info(node, service, hints, res);
}
VRDMA_OR_ENOMEM(-1)

VRDMA_EXPORT void rdma_freeaddrinfo(rdma_addrinfo* res) try {
  VRDMA_PASS_ON(, rdma_freeaddrinfo, res)
  free_info(res);
}
VRDMA_OR_ENOMEM()

VRDMA_EXPORT int rdma_create_ep(rdma_cm_id** id, rdma_addrinfo* res, ibv_pd* pd,
                                ibv_qp_init_attr* qp_init_attr) try {
  VRDMA_PASS_ON(-1, rdma_create_ep, id, res, pd, qp_init_attr)
  return create_endpoint(id, *res, pd, qp_init_attr);
}
VRDMA_OR_ENOMEM(-1)

VRDMA_EXPORT void rdma_destroy_ep(rdma_cm_id* id) try {
  VRDMA_PASS_ON(, rdma_destroy_ep, id)
  destroy_endpoint(id);
}
VRDMA_OR_ENOMEM()

VRDMA_EXPORT int rdma_get_request(rdma_cm_id* listen, rdma_cm_id** id) try {
  VRDMA_PASS_ON(-1, rdma_get_request, listen, id)
  return get_request(Id::of(listen), id);
}
VRDMA_OR_ENOMEM(-1)
