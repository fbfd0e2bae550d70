// Declarations in rdma_cma.h of rdma-core 60 to 65 that Debian 12's lacks (RDMACM_1.4), and their
// event types. The library itself queues these events on a channel; the daemon sends none.
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

// Values of rdma_cm_event_type that the installed header may lack.
constexpr uint32_t kAddrinfoResolved = 16, kUserEvent = 18;

// Fills an event of these types and returns true. Leaves other events unchanged and returns false.
bool fill_own(const ipc::CmEventMessage& message, rdma_cm_event* event);

}  // namespace vrdma::client
