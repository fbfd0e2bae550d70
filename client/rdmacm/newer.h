// What rdma_cma.h of rdma-core 60 to 65 declares and Debian 12's does not (RDMACM_1.4); and the
// events of it, which no daemon sends: the library puts them into the queue of a channel itself.
#pragma once

#include <rdma/rdma_cma.h>

#include <cstdint>

#include "core/ipc/cm_messages.h"

extern "C" {
int rdma_resolve_addrinfo(rdma_cm_id* id, const char* node, const char* service,
                          const rdma_addrinfo* hints);
int rdma_query_addrinfo(rdma_cm_id* id, rdma_addrinfo** info);
int rdma_write_cm_event(rdma_cm_id* id, rdma_cm_event_type event, int status, uint64_t arg);
}

namespace vrdma::client {

// Values of rdma_cm_event_type that this header's enumeration may not have.
constexpr uint32_t kAddrinfoResolved = 16, kUserEvent = 18;

// Fills an event of these types: true. Others are left alone.
bool fill_own(const ipc::CmEventMessage& message, rdma_cm_event* event);

}  // namespace vrdma::client
