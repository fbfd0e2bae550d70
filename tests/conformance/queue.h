// Verbs objects for tests. Constructors create the object or fail the test; destructors destroy it.
#pragma once

#include <infiniband/verbs.h>
#include <sys/mman.h>

#include <cstdint>
#include <vector>

#include "tests/conformance/side.h"

namespace conformance {

constexpr int kAllAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                           IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;

// A completion queue; with a channel if `events`, and then wait() sleeps on it.
class Cq {
 public:
  explicit Cq(const Side& side, bool events = false, int depth = 256);
  ~Cq();
  Cq(const Cq&) = delete;
  Cq& operator=(const Cq&) = delete;

  // The next completion; fails the test if there is none in time.
  [[nodiscard]] ibv_wc wait();
  // The next completion, which must have this `wr_id` and `status`.
  ibv_wc expect(uint64_t wr_id, ibv_wc_status status = IBV_WC_SUCCESS);
  // No completion within `milliseconds`.
  void expect_none(int milliseconds);
  // Sleeps in ibv_get_cq_event until the channel, armed before, has an event, and acknowledges it.
  void arm(bool solicited_only = false);
  void await_event();
  // Whether the channel has an event now or within `milliseconds`; does not take it.
  [[nodiscard]] bool has_event(int milliseconds) const;

  ibv_comp_channel* channel = nullptr;
  ibv_cq* cq = nullptr;
};

// Registered memory, page-aligned, zeroed. `mapping`: MAP_PRIVATE or MAP_SHARED.
class Buffer {
 public:
  Buffer(const Side& side, size_t size, int access = kAllAccess, ibv_pd* pd = nullptr,
         int mapping = MAP_PRIVATE);
  ~Buffer();
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  [[nodiscard]] ibv_sge sge(size_t offset, size_t length) const;
  [[nodiscard]] uint64_t address(size_t offset = 0) const {
    return reinterpret_cast<uint64_t>(data) + offset;
  }
  void deregister();

  uint8_t* data = nullptr;
  size_t size = 0;
  ibv_mr* mr = nullptr;
};

// A buffer as its peer addresses it.
struct Remote {
  uint64_t addr;
  uint64_t size;
  uint32_t rkey;
  uint32_t reserved;
};
[[nodiscard]] Remote remote_of(const Buffer& buffer);

struct Endpoint {
  ibv_gid gid;
  uint32_t qpn;
  uint32_t psn;
};

struct QpOptions {
  ibv_qp_type type = IBV_QPT_RC;
  uint32_t max_send_wr = 64, max_recv_wr = 64, max_sge = 16, max_inline = 256;
  bool sq_sig_all = false;
  int access = kAllAccess;
  uint8_t rnr_retry = 7, retry_cnt = 7, timeout = 14, min_rnr_timer = 12;
  uint8_t max_rd_atomic = 8, max_dest_rd_atomic = 8;
  uint32_t qkey = 0x11111111;
  ibv_srq* srq = nullptr;
  ibv_pd* pd = nullptr;      // default: the side's
  ibv_xrcd* xrcd = nullptr;  // of an XRC target
};

class Qp {
 public:
  Qp(const Side& side, Cq& send_cq, Cq& recv_cq, const QpOptions& wanted = {});
  Qp(const Side& side, Cq& cq, const QpOptions& wanted = {}) : Qp(side, cq, cq, wanted) {}
  ~Qp();
  Qp(const Qp&) = delete;
  Qp& operator=(const Qp&) = delete;

  // RESET -> INIT -> RTR -> RTS, step by step or together with the other side.
  void to_init();
  void to_rtr(const Endpoint& peer);
  void to_rts();
  void to(ibv_qp_state state);  // RESET or ERR
  void connect();               // exchanges endpoints; both are in RTS when it returns
  void reconnect();             // the same from any state, with new PSNs
  [[nodiscard]] Endpoint endpoint() const { return {side_.gid, qp->qp_num, psn_}; }
  [[nodiscard]] ibv_qp_state state() const;
  // Waits for this state within the test's patience.
  void await_state(ibv_qp_state state) const;

  // Each posts one signaled work request and returns the verb's result.
  [[nodiscard]] int try_send(ibv_send_wr wr, std::vector<ibv_sge> sges);
  [[nodiscard]] int try_receive(uint64_t wr_id, std::vector<ibv_sge> sges);
  void send(uint64_t wr_id, std::vector<ibv_sge> sges, unsigned flags = 0);
  void send_imm(uint64_t wr_id, uint32_t imm, std::vector<ibv_sge> sges, unsigned flags = 0);
  void write(uint64_t wr_id, std::vector<ibv_sge> sges, const Remote& to, size_t offset = 0);
  void write_imm(uint64_t wr_id, uint32_t imm, std::vector<ibv_sge> sges, const Remote& to,
                 size_t offset = 0);
  void read(uint64_t wr_id, std::vector<ibv_sge> sges, const Remote& from, size_t offset = 0);
  void fetch_add(uint64_t wr_id, const ibv_sge& sge, const Remote& at, size_t offset, uint64_t add);
  void compare_swap(uint64_t wr_id, const ibv_sge& sge, const Remote& at, size_t offset,
                    uint64_t compare, uint64_t swap);
  void receive(uint64_t wr_id, std::vector<ibv_sge> sges);

  ibv_qp* qp = nullptr;
  QpOptions options;
  ibv_qp_cap cap{};  // as granted

 private:
  const Side& side_;
  uint32_t psn_;
};

// A QP in ERR: what is posted to it completes at once. The caller destroys it.
[[nodiscard]] ibv_qp* failed_qp(const Side& side, ibv_cq* cq, uint32_t max_recv_wr);

class Srq {
 public:
  Srq(const Side& side, uint32_t max_wr, uint32_t max_sge = 16);
  ~Srq();
  Srq(const Srq&) = delete;
  Srq& operator=(const Srq&) = delete;
  [[nodiscard]] int try_receive(uint64_t wr_id, std::vector<ibv_sge> sges);
  void receive(uint64_t wr_id, std::vector<ibv_sge> sges);

  ibv_srq* srq = nullptr;
};

// The next asynchronous event, which must be `type`; other types fail the test, except `tolerated`.
// Acknowledges it and returns the object's pointer as void*, or nullptr.
void* expect_async_event(const Side& side, ibv_event_type type, int tolerated = -1);
void expect_no_async_event(const Side& side, int milliseconds);

// Bytes as a function of (key, position), for all tests of the library.
void fill(uint8_t* to, size_t size, uint64_t key, size_t position = 0);
void check_filled(const uint8_t* data, size_t size, uint64_t key, size_t position = 0);

}  // namespace conformance
