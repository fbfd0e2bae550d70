// RDMACM_1.4: address resolution by name with an event as its result, and events that the program
// writes.
//
// Such an event is kept at the channel (migrate.cc): it comes after earlier events, wakes a thread
// that waits on the channel, and migrates with its id.
#include "client/rdmacm/newer.h"

#include <netdb.h>

#include <cerrno>
#include <cstring>

#include "client/dial/export.h"
#include "client/dial/guard.h"
#include "client/rdmacm/objects.h"

namespace vrdma::client {

namespace {

// Flags of ai_flags that Debian 12's header lacks.
constexpr int kRaiSa = 0x10, kRaiDns = 0x20;

int write_event(Id* id, uint32_t type, int status, uint64_t argument) {
  if (id->base.channel == nullptr) return answer(EINVAL);
  EventSource& source = *Channel::of(id->base.channel)->source;
  ipc::CmEventMessage message;
  message.type = type;
  message.status = status;
  message.handle = id->handle;
  std::memcpy(message.param.data, &argument, sizeof argument);
  {
    const std::lock_guard lock(objects_mutex());
    source.kept.push_back(message);
  }
  nudge(source);
  return 0;
}

// Converts a result of rdma_getaddrinfo to an errno: its own -1, or an EAI_* of getaddrinfo(3).
int error_of(int result) {
  switch (result) {
    case -1:
    case EAI_SYSTEM:
      return errno;
    case EAI_MEMORY:
      return ENOMEM;
    case EAI_AGAIN:
      return EAGAIN;
    case EAI_FAMILY:
      return EAFNOSUPPORT;
    default:
      return ENOENT;  // no such name, or no such service
  }
}

int resolve(Id* id, const char* node, const char* service, const rdma_addrinfo* hints) {
  if (hints != nullptr && (hints->ai_flags & kRaiSa) != 0) return EOPNOTSUPP;  // there is no SA
  rdma_addrinfo wanted{};
  if (hints != nullptr) {
    wanted = *hints;
    wanted.ai_flags &= ~kRaiDns;
  }
  rdma_addrinfo* found = nullptr;
  const int result = rdma_getaddrinfo(node, service, hints != nullptr ? &wanted : nullptr, &found);
  if (result != 0) return error_of(result);
  const std::lock_guard lock(objects_mutex());
  id->info.reset(found);
  return 0;
}

int resolve_info(Id* id, const char* node, const char* service, const rdma_addrinfo* hints) {
  {
    const std::lock_guard lock(objects_mutex());
    if (id->resolving_info) return answer(EBUSY);
    id->resolving_info = true;
  }
  int error = resolve(id, node, service, hints);
  if (error == 0 && write_event(id, kAddrinfoResolved, 0, 0) != 0) error = errno;
  if (error == 0) return complete(id);
  const std::lock_guard lock(objects_mutex());
  id->resolving_info = false;
  id->info.reset();
  return answer(error);
}

// The program frees the list by rdma_freeaddrinfo.
int query_info(Id* id, rdma_addrinfo** info) {
  const std::lock_guard lock(objects_mutex());
  if (!id->resolving_info || id->info == nullptr) return answer(ENOENT);
  *info = id->info.release();
  id->resolving_info = false;
  return 0;
}

}  // namespace

bool fill_own(const ipc::CmEventMessage& message, rdma_cm_event* event) {
  if (message.type != kUserEvent && message.type != kAddrinfoResolved) return false;
  std::memcpy(&event->event, &message.type, sizeof event->event);
  std::memcpy(&event->param, message.param.data, sizeof(uint64_t));
  return true;
}

}  // namespace vrdma::client

using namespace vrdma::client;  // NOLINT: this part is nothing but the way from C

VRDMA_EXPORT int rdma_resolve_addrinfo(rdma_cm_id* id, const char* node, const char* service,
                                       const rdma_addrinfo* hints) try {
  VRDMA_PASS_ON(-1, rdma_resolve_addrinfo, id, node, service, hints)
  if (id == nullptr) return answer(EINVAL);
  return resolve_info(Id::of(id), node, service, hints);
}
VRDMA_OR_ENOMEM(-1)

VRDMA_EXPORT int rdma_query_addrinfo(rdma_cm_id* id, rdma_addrinfo** info) try {
  VRDMA_PASS_ON(-1, rdma_query_addrinfo, id, info)
  if (id == nullptr || info == nullptr) return answer(EINVAL);
  return query_info(Id::of(id), info);
}
VRDMA_OR_ENOMEM(-1)

VRDMA_EXPORT int rdma_write_cm_event(rdma_cm_id* id, rdma_cm_event_type event, int status,
                                     uint64_t arg) try {
  VRDMA_PASS_ON(-1, rdma_write_cm_event, id, event, status, arg)
  if (id == nullptr || static_cast<uint32_t>(event) != kUserEvent) return answer(EINVAL);
  return write_event(Id::of(id), kUserEvent, status, arg);
}
VRDMA_OR_ENOMEM(-1)
