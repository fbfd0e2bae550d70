// Names of enumeration values. The texts are part of the interface, because programs compare them.
// They equal those of libibverbs (tests/unit/client compares all of them).
#include <infiniband/verbs.h>

#include <cstddef>

#include "client/dial/export.h"
#include "client/verbs/private_abi.h"

namespace {

template <size_t kCount>
const char* text(const char* const (&texts)[kCount], int value) {
  const auto index = static_cast<size_t>(value);
  return value >= 0 && index < kCount && texts[index] != nullptr ? texts[index] : "unknown";
}

constexpr const char* kNodeTypes[] = {
    nullptr,  // 0 is not a type
    "InfiniBand channel adapter",
    "InfiniBand switch",
    "InfiniBand router",
    "iWARP NIC",
    "usNIC",
    "usNIC UDP",
    "unspecified",
};

constexpr const char* kPortStates[] = {
    "no state change (NOP)", "down", "init", "armed", "active", "active defer",
};

constexpr const char* kEventTypes[] = {
    "CQ error",
    "local work queue catastrophic error",
    "invalid request local work queue error",
    "local access violation work queue error",
    "communication established",
    "send queue drained",
    "path migrated",
    "path migration request error",
    "local catastrophic error",
    "port active",
    "port error",
    "LID change",
    "P_Key change",
    "SM change",
    "SRQ catastrophic error",
    "SRQ limit reached",
    "last WQE reached",
    "client reregistration",
    "GID table change",
    "WQ fatal",
    "Device link speed change",  // rdma-core 62
};

constexpr const char* kWrOpcodes[] = {
    "rdma-write",
    "rdma-write-with-imm",
    "send",
    "send-with-imm",
    "rdma-read",
    "atomic-cmp-and-swp",
    "atomic-fetch-and-add",
    "local-inv",
    "bind-mw",
    "send-with-inv",
    "tso",
    "driver1",
    nullptr,
    nullptr,
    "flush",
    "atomic-write",
};

constexpr const char* kWcStatuses[] = {
    "success",
    "local length error",
    "local QP operation error",
    "local EE context operation error",
    "local protection error",
    "Work Request Flushed Error",
    "memory management operation error",
    "bad response error",
    "local access error",
    "remote invalid request error",
    "remote access error",
    "remote operation error",
    "transport retry counter exceeded",
    "RNR retry counter exceeded",
    "local RDD violation error",
    "remote invalid RD request",
    "aborted error",
    "invalid EE context number",
    "invalid EE context state",
    "fatal error",
    "response timeout error",
    "general error",
    "TM error",
    "TM software rendezvous",
};

}  // namespace

VRDMA_EXPORT const char* ibv_node_type_str(ibv_node_type node_type) {
  return text(kNodeTypes, node_type);
}

VRDMA_EXPORT const char* ibv_port_state_str(ibv_port_state port_state) {
  return text(kPortStates, static_cast<int>(port_state));
}

VRDMA_EXPORT const char* ibv_event_type_str(ibv_event_type event) {
  return text(kEventTypes, static_cast<int>(event));
}

VRDMA_EXPORT const char* ibv_wc_status_str(ibv_wc_status status) {
  return text(kWcStatuses, static_cast<int>(status));
}

VRDMA_EXPORT const char* ibv_wr_opcode_str(ibv_wr_opcode opcode) {
  return text(kWrOpcodes, static_cast<int>(opcode));
}
