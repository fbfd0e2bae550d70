// Asserts that vrdma's constants equal those of <infiniband/verbs.h>.
#include <infiniband/verbs.h>

#include "core/ipc/layout.h"
#include "core/verbs/capabilities.h"
#include "core/verbs/types.h"

namespace vrdma::client {

using namespace verbs;  // NOLINT: the lines below are nothing but its names

template <class A, class B>
constexpr bool same(A a, B b) {
  return static_cast<int>(a) == static_cast<int>(b);
}

static_assert(same(QpType::kRc, IBV_QPT_RC) && same(QpType::kUc, IBV_QPT_UC) &&
              same(QpType::kUd, IBV_QPT_UD) && same(QpType::kRawPacket, IBV_QPT_RAW_PACKET) &&
              same(QpType::kXrcInitiator, IBV_QPT_XRC_SEND) &&
              same(QpType::kXrcTarget, IBV_QPT_XRC_RECV));
static_assert(same(QpState::kReset, IBV_QPS_RESET) && same(QpState::kInit, IBV_QPS_INIT) &&
              same(QpState::kRtr, IBV_QPS_RTR) && same(QpState::kRts, IBV_QPS_RTS) &&
              same(QpState::kSqd, IBV_QPS_SQD) && same(QpState::kSqe, IBV_QPS_SQE) &&
              same(QpState::kErr, IBV_QPS_ERR));
static_assert(same(Opcode::kRdmaWrite, IBV_WR_RDMA_WRITE) &&
              same(Opcode::kRdmaWriteWithImm, IBV_WR_RDMA_WRITE_WITH_IMM) &&
              same(Opcode::kSend, IBV_WR_SEND) &&
              same(Opcode::kSendWithImm, IBV_WR_SEND_WITH_IMM) &&
              same(Opcode::kRdmaRead, IBV_WR_RDMA_READ) &&
              same(Opcode::kCompareSwap, IBV_WR_ATOMIC_CMP_AND_SWP) &&
              same(Opcode::kFetchAdd, IBV_WR_ATOMIC_FETCH_AND_ADD) &&
              same(Opcode::kLocalInvalidate, IBV_WR_LOCAL_INV) &&
              same(Opcode::kBindWindow, IBV_WR_BIND_MW) &&
              same(Opcode::kSendWithInvalidate, IBV_WR_SEND_WITH_INV));
static_assert(same(WcStatus::kLocalLengthError, IBV_WC_LOC_LEN_ERR) &&
              same(WcStatus::kLocalQpOperationError, IBV_WC_LOC_QP_OP_ERR) &&
              same(WcStatus::kLocalProtectionError, IBV_WC_LOC_PROT_ERR) &&
              same(WcStatus::kFlushed, IBV_WC_WR_FLUSH_ERR) &&
              same(WcStatus::kWindowBindError, IBV_WC_MW_BIND_ERR) &&
              same(WcStatus::kRemoteInvalidRequest, IBV_WC_REM_INV_REQ_ERR) &&
              same(WcStatus::kRemoteAccessError, IBV_WC_REM_ACCESS_ERR) &&
              same(WcStatus::kRemoteOperationError, IBV_WC_REM_OP_ERR) &&
              same(WcStatus::kRetryExceeded, IBV_WC_RETRY_EXC_ERR) &&
              same(WcStatus::kRnrRetryExceeded, IBV_WC_RNR_RETRY_EXC_ERR));
static_assert(same(kLocalWrite, IBV_ACCESS_LOCAL_WRITE) &&
              same(kRemoteWrite, IBV_ACCESS_REMOTE_WRITE) &&
              same(kRemoteRead, IBV_ACCESS_REMOTE_READ) &&
              same(kRemoteAtomic, IBV_ACCESS_REMOTE_ATOMIC) && same(kMwBind, IBV_ACCESS_MW_BIND) &&
              same(kZeroBased, IBV_ACCESS_ZERO_BASED) && same(kOnDemand, IBV_ACCESS_ON_DEMAND) &&
              same(kHugePages, IBV_ACCESS_HUGETLB) &&
              same(kAccessOptional, IBV_ACCESS_OPTIONAL_RANGE));
static_assert(same(Event::kQpFatal, IBV_EVENT_QP_FATAL) &&
              same(Event::kQpRequestError, IBV_EVENT_QP_REQ_ERR) &&
              same(Event::kQpAccessError, IBV_EVENT_QP_ACCESS_ERR) &&
              same(Event::kSqDrained, IBV_EVENT_SQ_DRAINED) &&
              same(Event::kDeviceFatal, IBV_EVENT_DEVICE_FATAL) &&
              same(Event::kPortActive, IBV_EVENT_PORT_ACTIVE) &&
              same(Event::kPortError, IBV_EVENT_PORT_ERR) &&
              same(Event::kSrqLimitReached, IBV_EVENT_SRQ_LIMIT_REACHED) &&
              same(Event::kQpLastWqeReached, IBV_EVENT_QP_LAST_WQE_REACHED) &&
              same(Event::kGidChange, IBV_EVENT_GID_CHANGE));
static_assert(same(kQpState, IBV_QP_STATE) && same(kQpCurState, IBV_QP_CUR_STATE) &&
              same(kQpEnSqdAsyncNotify, IBV_QP_EN_SQD_ASYNC_NOTIFY) &&
              same(kQpAccessFlags, IBV_QP_ACCESS_FLAGS) && same(kQpPkeyIndex, IBV_QP_PKEY_INDEX) &&
              same(kQpPort, IBV_QP_PORT) && same(kQpQkey, IBV_QP_QKEY) && same(kQpAv, IBV_QP_AV) &&
              same(kQpPathMtu, IBV_QP_PATH_MTU) && same(kQpTimeout, IBV_QP_TIMEOUT) &&
              same(kQpRetryCnt, IBV_QP_RETRY_CNT) && same(kQpRnrRetry, IBV_QP_RNR_RETRY) &&
              same(kQpRqPsn, IBV_QP_RQ_PSN) && same(kQpMaxQpRdAtomic, IBV_QP_MAX_QP_RD_ATOMIC) &&
              same(kQpAltPath, IBV_QP_ALT_PATH) && same(kQpMinRnrTimer, IBV_QP_MIN_RNR_TIMER) &&
              same(kQpSqPsn, IBV_QP_SQ_PSN) &&
              same(kQpMaxDestRdAtomic, IBV_QP_MAX_DEST_RD_ATOMIC) &&
              same(kQpPathMigState, IBV_QP_PATH_MIG_STATE) && same(kQpCap, IBV_QP_CAP) &&
              same(kQpDestQpn, IBV_QP_DEST_QPN) && same(kQpRateLimit, IBV_QP_RATE_LIMIT));
static_assert(same(kUdAvPortEnforce, IBV_DEVICE_UD_AV_PORT_ENFORCE) &&
              same(kCurrentQpStateModify, IBV_DEVICE_CURR_QP_STATE_MOD) &&
              same(kPortActiveEvent, IBV_DEVICE_PORT_ACTIVE_EVENT) &&
              same(kSystemImageGuid, IBV_DEVICE_SYS_IMAGE_GUID) &&
              same(kRnrNakGeneration, IBV_DEVICE_RC_RNR_NAK_GEN) &&
              same(kMemoryWindows, IBV_DEVICE_MEM_WINDOW) && same(kXrc, IBV_DEVICE_XRC) &&
              same(kMemoryManagementExtensions, IBV_DEVICE_MEM_MGT_EXTENSIONS) &&
              same(kMemoryWindowsType2b, IBV_DEVICE_MEM_WINDOW_TYPE_2B) &&
              same(kManagedFlowSteering, IBV_DEVICE_MANAGED_FLOW_STEERING));
static_assert(same(AtomicScope::kNone, IBV_ATOMIC_NONE) &&
              same(AtomicScope::kDevice, IBV_ATOMIC_HCA) &&
              same(AtomicScope::kGlobal, IBV_ATOMIC_GLOB));
static_assert(same(kOdp, IBV_ODP_SUPPORT) && same(kOdpImplicit, IBV_ODP_SUPPORT_IMPLICIT) &&
              same(kOdpSend, IBV_ODP_SUPPORT_SEND) && same(kOdpReceive, IBV_ODP_SUPPORT_RECV) &&
              same(kOdpWrite, IBV_ODP_SUPPORT_WRITE) && same(kOdpRead, IBV_ODP_SUPPORT_READ) &&
              same(kOdpAtomic, IBV_ODP_SUPPORT_ATOMIC) &&
              same(kOdpSharedReceive, IBV_ODP_SUPPORT_SRQ_RECV));
static_assert(same(kPortCm, IBV_PORT_CM_SUP));
static_assert(same(kSrqMaxWr, IBV_SRQ_MAX_WR) && same(kSrqLimit, IBV_SRQ_LIMIT));

}  // namespace vrdma::client
