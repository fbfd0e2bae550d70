// The commands of the driver and their answers, as they lie in the two slots.
// Source: pvrdma_dev_api.h and pvrdma_verbs.h of Linux 6.1. Fields that nobody reads have no name.
#pragma once

#include <cstddef>
#include <cstdint>

namespace vrdma::pvrdma {

enum class Command : uint32_t {
  kQueryPort,
  kQueryPkey,
  kCreatePd,
  kDestroyPd,
  kCreateMr,
  kDestroyMr,
  kCreateCq,
  kResizeCq,
  kDestroyCq,
  kCreateQp,
  kModifyQp,
  kQueryQp,
  kDestroyQp,
  kCreateUc,
  kDestroyUc,
  kCreateBind,
  kDestroyBind,
  kCreateSrq,
  kModifySrq,
  kQuerySrq,
  kDestroySrq,
  kCount
};
constexpr uint32_t kAnswered = 1u << 31;  // with the command: of an answer

struct CommandHeader {
  uint64_t key;  // echoed
  uint32_t command;
  uint32_t reserved;
};
struct AnswerHeader {
  uint64_t key;
  uint32_t answer;  // kAnswered | command
  uint8_t error;    // the driver reads it of kModifyQp alone
  uint8_t reserved[3];
};

struct QueryPort {
  uint8_t port;
};
struct PortAttributes {
  uint32_t state, max_mtu, active_mtu, gid_tbl_len, port_cap_flags, max_msg_sz, bad_pkey_cntr,
      qkey_viol_cntr;
  uint16_t pkey_tbl_len, lid, sm_lid;
  uint8_t lmc, max_vl_num, sm_sl, subnet_timeout, init_type_reply, active_width, active_speed,
      phys_state;
  uint8_t reserved[2];
};
static_assert(sizeof(PortAttributes) == 48);
struct PkeyAnswer {
  uint16_t pkey;
};

struct CreatePd {
  uint32_t context;  // 0: the guest kernel's
};
struct Handle {  // of all commands that destroy, and of answers
  uint32_t handle;
};

struct CreateMr {
  uint64_t start, length;
  uint64_t directory;
  uint32_t pd, access, flags, pages;
};
constexpr uint32_t kMrOfAllMemory = 1, kMrOfFastRegistration = 2;  // flags
struct MrAnswer {
  uint32_t handle, lkey, rkey;
};

struct CreateCq {
  uint64_t directory;
  uint32_t context, cqe, pages;
};
struct CqAnswer {
  uint32_t handle, cqe;
};

struct CreateQp {
  uint64_t directory;
  uint32_t pd, send_cq, recv_cq, srq;
  uint32_t max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, max_inline;
  uint32_t lkey, access;
  uint16_t pages, send_pages;  // all with the page of indices; those of the send queue
  uint16_t max_atomic_arg;
  uint8_t sq_sig_all, qp_type, is_srq;
};
static_assert(offsetof(CreateQp, pages) == 52 && offsetof(CreateQp, is_srq) == 60);
struct QpAnswer {
  uint32_t qpn, handle;
  uint32_t max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, max_inline;
};

struct Address {
  uint8_t dgid[16];
  uint32_t flow_label;
  uint8_t sgid_index, hop_limit, traffic_class, reserved;
  uint16_t dlid, vlan;
  uint8_t sl, src_path_bits, static_rate, flags, port;
  uint8_t dmac[6];
  uint8_t reserved2;
};
static_assert(sizeof(Address) == 40);

struct QpAttributes {
  uint32_t qp_state, cur_qp_state, path_mtu, path_mig_state, qkey, rq_psn, sq_psn, dest_qp_num,
      access_flags;
  uint16_t pkey_index, alt_pkey_index;
  uint8_t en_sqd_async, sq_draining, max_rd_atomic, max_dest_rd_atomic, min_rnr_timer, port,
      timeout, retry_cnt, rnr_retry, alt_port, alt_timeout, reserved[5];
  uint32_t max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, max_inline, reserved2;
  Address address, alternate;
};
static_assert(sizeof(QpAttributes) == 160 && offsetof(QpAttributes, pkey_index) == 36 &&
              offsetof(QpAttributes, rnr_retry) == 48 && offsetof(QpAttributes, address) == 80);

struct ModifyQp {
  uint32_t handle, mask;  // mask: of ibv_modify_qp(3)
  QpAttributes attributes;
};
struct QueryQp {
  uint32_t handle, mask;
};

struct CreateUc {
  uint64_t frame;  // of its page of doorbells
};

struct CreateBind {
  uint32_t mtu, vlan, index;
  uint8_t gid[16];
  uint8_t type;
};
struct DestroyBind {
  uint32_t index;
  uint8_t gid[16];
};

struct SrqAttributes {
  uint32_t max_wr, max_sge, limit, reserved;
};
struct CreateSrq {
  uint64_t directory;
  uint32_t pd, pages;
  SrqAttributes attributes;
  uint8_t type;
};
struct ModifySrq {
  uint32_t handle, mask;  // mask: of ibv_modify_srq(3)
  SrqAttributes attributes;
};

struct CommandSlot {
  CommandHeader header;
  union {
    QueryPort query_port;
    CreatePd create_pd;
    Handle destroy;
    CreateMr create_mr;
    CreateCq create_cq;
    CreateQp create_qp;
    ModifyQp modify_qp;
    QueryQp query_qp;
    CreateUc create_uc;
    CreateBind create_bind;
    DestroyBind destroy_bind;
    CreateSrq create_srq;
    ModifySrq modify_srq;
  };
};
static_assert(sizeof(CommandSlot) == 184);

struct AnswerSlot {
  AnswerHeader header;
  union {
    PortAttributes port;
    PkeyAnswer pkey;
    Handle made;  // a PD, a context, an SRQ
    MrAnswer mr;
    CqAnswer cq;
    QpAnswer qp;
    QpAttributes attributes;
    SrqAttributes srq;
  };
};
static_assert(sizeof(AnswerSlot) == 176);

}  // namespace vrdma::pvrdma
