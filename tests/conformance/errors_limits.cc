// The device's declared limits hold: queue pairs and SRQs, and changes of them.
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <ctime>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "tests/conformance/errors.h"

namespace conformance {

namespace {

ibv_device_attr_ex device_of(const Side& side) {
  ibv_device_attr_ex attr{};
  CHECK_EQ(ibv_query_device_ex(side.context, nullptr, &attr), 0);
  return attr;
}

int modify(Qp& qp, const std::function<void(ibv_qp_attr*)>& fill_in, int mask) {
  ibv_qp_attr attr{};
  fill_in(&attr);
  return ibv_modify_qp(qp.qp, &attr, mask);
}

ibv_qp_attr query(const Qp& qp) {
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  CHECK_EQ(ibv_query_qp(qp.qp, &attr, IBV_QP_STATE, &init), 0);
  return attr;
}

int modify_srq(const Srq& srq, uint32_t max_wr, uint32_t limit, int mask) {
  ibv_srq_attr attr{};
  attr.max_wr = max_wr;
  attr.srq_limit = limit;
  return ibv_modify_srq(srq.srq, &attr, mask);
}

}  // namespace

CONFORMANCE_TEST(errors, device_is_whole) {
  const ibv_device_attr_ex device = device_of(side);
  const ibv_device_attr& orig = device.orig_attr;
  CHECK(orig.max_qp > 0 && orig.max_qp_wr > 0 && orig.max_sge > 0 && orig.max_cq > 0);
  CHECK(orig.max_srq > 0 && orig.max_srq_wr > 0 && orig.max_srq_sge > 0 && orig.max_ah > 0);
  CHECK(orig.max_qp_rd_atom > 0 && orig.max_qp_init_rd_atom > 0);
  CHECK_EQ(device.phys_port_cnt_ex, uint32_t{orig.phys_port_cnt});
  CHECK_EQ(static_cast<uint32_t>(device.device_cap_flags_ex), orig.device_cap_flags);
  // Features that are not implemented are not offered.
  CHECK_EQ(device.tso_caps.max_tso, 0u);
  CHECK_EQ(device.raw_packet_caps, 0u);
  CHECK_EQ(device.rss_caps.supported_qpts, 0u);
  CHECK_EQ(device.packet_pacing_caps.supported_qpts, 0u);
  CHECK_EQ(device.tm_caps.flags, 0u);
  CHECK_EQ(orig.device_cap_flags & IBV_DEVICE_AUTO_PATH_MIG, 0u);
}

// Completions use the clock that can be queried.
CONFORMANCE_TEST(errors, clocks) {
  const ibv_device_attr_ex device = device_of(side);
  if (device.completion_timestamp_mask == 0) skip("completions have no time");
  CHECK(device.hca_core_clock > 0);
  ibv_cq_init_attr_ex init{};
  init.cqe = 16;
  init.wc_flags = uint64_t{IBV_WC_STANDARD_FLAGS} | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP |
                  IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK;
  ibv_cq_ex* cq = ibv_create_cq_ex(side.context, &init);
  CHECK(cq != nullptr);
  const auto ticks = [&] {
    ibv_values_ex values{};
    values.comp_mask = IBV_VALUES_MASK_RAW_CLOCK;
    CHECK_EQ(ibv_query_rt_values_ex(side.context, &values), 0);
    CHECK_EQ(values.comp_mask, uint32_t{IBV_VALUES_MASK_RAW_CLOCK});
    return static_cast<uint64_t>(values.raw_clock.tv_sec) * 1'000'000'000 +
           static_cast<uint64_t>(values.raw_clock.tv_nsec);
  };
  {
    Cq plain(side);
    ibv_qp* qp = failed_qp(side, ibv_cq_ex_to_cq(cq), 1);
    const uint64_t before = ticks();
    ibv_recv_wr wr{}, *bad = nullptr;
    wr.wr_id = 7;
    CHECK_EQ(ibv_post_recv(qp, &wr, &bad), 0);
    ibv_poll_cq_attr poll{};
    CHECK_EQ(ibv_start_poll(cq, &poll), 0);
    CHECK_EQ(cq->wr_id, 7u);
    CHECK_EQ(static_cast<int>(cq->status), static_cast<int>(IBV_WC_WR_FLUSH_ERR));
    const uint64_t stamp = ibv_wc_read_completion_ts(cq);
    CHECK(ibv_wc_read_completion_wallclock_ns(cq) / 1'000'000'000 > 1'000'000'000);
    CHECK_EQ(ibv_next_poll(cq), ENOENT);
    ibv_end_poll(cq);
    CHECK(before <= stamp && stamp <= ticks());
    CHECK_EQ(ibv_destroy_qp(qp), 0);
  }
  CHECK_EQ(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)), 0);
}

// From ibv_start_poll to ibv_end_poll the completion belongs to the polling thread.
CONFORMANCE_TEST(errors, extended_polling_by_two) {
  ibv_cq_init_attr_ex init{};
  init.cqe = 16;
  init.wc_flags = IBV_WC_STANDARD_FLAGS;
  ibv_cq_ex* cq = ibv_create_cq_ex(side.context, &init);
  CHECK(cq != nullptr);
  ibv_qp* qp = failed_qp(side, ibv_cq_ex_to_cq(cq), 64);
  constexpr uint64_t kCount = 50;
  for (uint64_t id = 0; id < kCount; ++id) {
    ibv_recv_wr wr{}, *bad = nullptr;
    wr.wr_id = id;
    CHECK_EQ(ibv_post_recv(qp, &wr, &bad), 0);
  }
  std::atomic<uint64_t> seen = 0, count = 0;
  const auto poll_all = [&] {
    ibv_poll_cq_attr poll{};
    while (ibv_start_poll(cq, &poll) == 0) {
      const uint64_t id = cq->wr_id;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));  // the other might interfere
      CHECK_EQ(cq->wr_id, id);
      seen |= uint64_t{1} << id;
      ++count;
      ibv_end_poll(cq);
    }
  };
  std::thread other(poll_all);
  poll_all();
  other.join();
  CHECK_EQ(count.load(), kCount);
  CHECK_EQ(seen.load(), (uint64_t{1} << kCount) - 1);
  CHECK_EQ(ibv_destroy_qp(qp), 0);
  CHECK_EQ(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)), 0);
}

CONFORMANCE_TEST(errors, addresses_need_a_global_header) {
  ibv_port_attr port{};
  CHECK_EQ(ibv_query_port(side.context, 1, &port), 0);
  CHECK_EQ(int{port.flags}, int{IBV_QPF_GRH_REQUIRED});
}

// READs and atomics without resources at the requester or the responder.
CONFORMANCE_TEST(errors, read_without_resources) {
  Breakable pair(side);
  const Remote remote = side.exchange(remote_of(pair.buffer));
  const auto read = [&] { pair.qp.read(1, {pair.buffer.sge(0, 8)}, remote); };
  const auto add = [&] { pair.qp.fetch_add(1, pair.buffer.sge(0, 8), remote, 0, 1); };
  for (const auto& act : {std::function<void()>(read), std::function<void()>(add)}) {
    if (side.is_a()) {
      pair.qp.options.max_rd_atomic = 0;
      pair.qp.reconnect();
    } else {
      pair.qp.reconnect();
    }
    pair.qp.options.max_rd_atomic = 8;
    pair.provoke(act, {IBV_WC_LOC_QP_OP_ERR});
  }
  // The other direction: b answers none.
  if (!side.is_a()) pair.qp.options.max_dest_rd_atomic = 0;
  pair.qp.reconnect();
  pair.qp.options.max_dest_rd_atomic = 8;
  pair.provoke(read, {IBV_WC_REM_INV_REQ_ERR, IBV_WC_REM_ACCESS_ERR}, IBV_EVENT_QP_REQ_ERR,
               IBV_EVENT_QP_ACCESS_ERR);
}

CONFORMANCE_TEST(errors, limits_of_reads_are_checked) {
  const ibv_device_attr orig = device_of(side).orig_attr;
  Cq cq(side);
  Qp qp(side, cq);
  qp.connect();
  CHECK_EQ(modify(
               qp, [](auto* to) { to->qp_state = IBV_QPS_SQD; }, IBV_QP_STATE),
           0);
  const auto out = [&](int depth) {
    return modify(
        qp, [&](auto* to) { to->max_rd_atomic = static_cast<uint8_t>(depth); },
        IBV_QP_MAX_QP_RD_ATOMIC);
  };
  const auto in = [&](int depth) {
    return modify(
        qp, [&](auto* to) { to->max_dest_rd_atomic = static_cast<uint8_t>(depth); },
        IBV_QP_MAX_DEST_RD_ATOMIC);
  };
  CHECK_EQ(out(orig.max_qp_init_rd_atom), 0);
  CHECK_EQ(in(orig.max_qp_rd_atom), 0);
  CHECK_EQ(query(qp).max_rd_atomic, orig.max_qp_init_rd_atom);
  CHECK_EQ(query(qp).max_dest_rd_atomic, orig.max_qp_rd_atom);
  if (orig.max_qp_init_rd_atom < 255) CHECK_EQ(out(orig.max_qp_init_rd_atom + 1), EINVAL);
  if (orig.max_qp_rd_atom < 255) CHECK_EQ(in(orig.max_qp_rd_atom + 1), EINVAL);
  side.meet(1);
}

// Alternate paths and rate limits do not exist: setting them fails.
CONFORMANCE_TEST(errors, what_there_is_not) {
  Cq cq(side);
  Qp qp(side, cq);
  qp.connect();
  CHECK_EQ(modify(
               qp, [](auto* to) { to->rate_limit = 1000; }, IBV_QP_RATE_LIMIT),
           EINVAL);
  CHECK_EQ(modify(
               qp, [](auto* to) { to->path_mig_state = IBV_MIG_REARM; }, IBV_QP_PATH_MIG_STATE),
           EINVAL);
  CHECK_EQ(modify(
               qp,
               [&](auto* to) {
                 to->alt_ah_attr.is_global = 1;
                 to->alt_ah_attr.port_num = to->alt_port_num = 1;
               },
               IBV_QP_ALT_PATH),
           EINVAL);
  CHECK_EQ(static_cast<int>(query(qp).path_mig_state), static_cast<int>(IBV_MIG_MIGRATED));
  ibv_qp_rate_limit_attr rate{};
  rate.rate_limit = 1000;
  CHECK_EQ(ibv_modify_qp_rate_limit(qp.qp, &rate), EOPNOTSUPP);
  ibv_ece ece{};
  CHECK_EQ(ibv_query_ece(qp.qp, &ece), EOPNOTSUPP);
  ece.vendor_id = 1;
  CHECK_EQ(ibv_set_ece(qp.qp, &ece), EOPNOTSUPP);

  ibv_qp_init_attr_ex init{};
  init.send_cq = init.recv_cq = cq.cq;
  init.cap = {1, 1, 1, 1, 0};
  init.qp_type = IBV_QPT_UD;
  init.pd = side.pd;
  init.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS;
  init.create_flags = IBV_QP_CREATE_BLOCK_SELF_MCAST_LB;
  errno = 0;
  CHECK(ibv_create_qp_ex(side.context, &init) == nullptr);
  CHECK_EQ(errno, EOPNOTSUPP);
  init.create_flags = 0;
  ibv_qp* plain = ibv_create_qp_ex(side.context, &init);
  CHECK(plain != nullptr);
  CHECK_EQ(ibv_destroy_qp(plain), 0);
  init.comp_mask = IBV_QP_INIT_ATTR_PD;
  init.qp_type = IBV_QPT_DRIVER;
  errno = 0;
  CHECK(ibv_create_qp_ex(side.context, &init) == nullptr);
  CHECK_EQ(errno, EOPNOTSUPP);
  side.meet(1);
}

CONFORMANCE_TEST(errors, shared_receive_queue_resized) {
  Cq cq(side);
  Srq srq(side, 8, 1);
  QpOptions options;
  options.srq = srq.srq;
  Buffer buffer(side, 4096);
  Qp qp(side, cq, options);
  qp.connect();
  const auto size = [&] {
    ibv_srq_attr attr{};
    CHECK_EQ(ibv_query_srq(srq.srq, &attr), 0);
    return attr.max_wr;
  };
  CHECK(size() >= 8);
  CHECK_EQ(modify_srq(srq, 0, 0, IBV_SRQ_MAX_WR), EINVAL);
  CHECK_EQ(modify_srq(srq, 0x7fffffff, 0, IBV_SRQ_MAX_WR), EINVAL);
  CHECK_EQ(modify_srq(srq, 0, size() + 1, IBV_SRQ_LIMIT), EINVAL);
  CHECK_EQ(modify_srq(srq, 100, 101, IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT), EINVAL);
  CHECK_EQ(modify_srq(srq, 0, 0, 1 << 7), EINVAL);

  // Devices with the flag resize in any case, others where there is room.
  if ((device_of(side).orig_attr.device_cap_flags & IBV_DEVICE_SRQ_RESIZE) == 0)
    CHECK_EQ(modify_srq(srq, 4000, 0, IBV_SRQ_MAX_WR), ENOMEM);
  else
    CHECK_EQ(modify_srq(srq, 4000, 0, IBV_SRQ_MAX_WR), 0);
  CHECK_EQ(modify_srq(srq, 100, 0, IBV_SRQ_MAX_WR), 0);
  CHECK(size() >= 100);
  uint32_t posted = 0;
  while (srq.try_receive(posted, {buffer.sge(0, 8)}) == 0) CHECK(++posted < 10'000);
  CHECK(posted >= 100);
  // Not below the number of posted receives, nor below the limit.
  CHECK_EQ(modify_srq(srq, posted - 1, 0, IBV_SRQ_MAX_WR), EINVAL);
  side.meet(1);
  for (uint32_t i = 0; i < posted; ++i) {
    if (side.is_a()) qp.send(i, {buffer.sge(8, 8)});
    const ibv_wc wc = cq.wait();
    CHECK_EQ(static_cast<int>(wc.status), 0);
    if (!side.is_a()) CHECK_EQ(wc.wr_id, i);
    side.meet(2);
  }
  if (!side.is_a()) {
    CHECK_EQ(modify_srq(srq, 20, 5, IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT), 0);
    CHECK_EQ(size(), 20u);
    CHECK_EQ(modify_srq(srq, 4, 0, IBV_SRQ_MAX_WR), EINVAL);
    uint32_t fits = 0;
    while (srq.try_receive(fits, {buffer.sge(0, 8)}) == 0) ++fits;
    CHECK_EQ(fits, 20u);
  }
  side.meet(3);
}

// In SQD a request that was begun completes, and those behind it wait; the event follows the
// completion.
CONFORMANCE_TEST_WITH(errors, draining_takes_its_time, kOneByOne) {
  Cq cq(side), recv_cq(side);
  Qp qp(side, cq, recv_cq);
  Buffer buffer(side, 4096);
  qp.connect();
  for (int round = 0; round < 2; ++round) {
    if (side.is_a()) {
      qp.send(1, {buffer.sge(0, 8)});  // b has no receive, and rnr_retry is unlimited
      qp.send(2, {buffer.sge(0, 8)});
      cq.expect_none(50);  // so it has begun
      CHECK_EQ(modify(
                   qp,
                   [](auto* to) {
                     to->qp_state = IBV_QPS_SQD;
                     to->en_sqd_async_notify = 1;
                   },
                   IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY),
               0);
      CHECK_EQ(query(qp).sq_draining, 1);
      qp.send(3, {buffer.sge(0, 8)});
      expect_no_async_event(side, 30);
      side.meet(1);
      cq.expect(1);
      CHECK(expect_async_event(side, IBV_EVENT_SQ_DRAINED) == qp.qp);
      CHECK_EQ(query(qp).sq_draining, 0);
      CHECK_EQ(static_cast<int>(query(qp).qp_state), static_cast<int>(IBV_QPS_SQD));
      cq.expect_none(30);
      side.meet(2);
      CHECK_EQ(modify(
                   qp, [](auto* to) { to->qp_state = IBV_QPS_RTS; }, IBV_QP_STATE),
               0);
      cq.expect(2);
      cq.expect(3);
    } else {
      side.meet(1);
      for (uint64_t id = 1; id <= 3; ++id) qp.receive(id, {buffer.sge(0, 8)});
      recv_cq.expect(1);
      side.meet(2);
      recv_cq.expect(2);
      recv_cq.expect(3);
    }
    side.meet(3);
  }
  // Out of SQD by ERR and RESET.
  CHECK_EQ(modify(
               qp, [](auto* to) { to->qp_state = IBV_QPS_SQD; }, IBV_QP_STATE),
           0);
  qp.send(9, {buffer.sge(0, 8)});
  qp.to(IBV_QPS_ERR);
  cq.expect(9, IBV_WC_WR_FLUSH_ERR);
  side.meet(4);
  qp.reconnect();
  qp.receive(1, {buffer.sge(0, 8)});
  side.meet(5);
  qp.send(2, {buffer.sge(8, 8)});
  cq.expect(2);
  recv_cq.expect(1);
  side.meet(6);
}

namespace {

// While it exists, all descriptors of the process are in use.
class NoDescriptors {
 public:
  NoDescriptors() {
    CHECK_EQ(::getrlimit(RLIMIT_NOFILE, &limit_), 0);
    before_ = std::exchange(limit_.rlim_cur, 128);
    CHECK_EQ(::setrlimit(RLIMIT_NOFILE, &limit_), 0);
    for (int fd = ::dup(0); fd >= 0; fd = ::dup(0)) taken_.push_back(fd);
    CHECK_EQ(errno, EMFILE);
  }
  ~NoDescriptors() {
    free_taken();
    limit_.rlim_cur = before_;
    (void)::setrlimit(RLIMIT_NOFILE, &limit_);
  }
  NoDescriptors(const NoDescriptors&) = delete;
  NoDescriptors& operator=(const NoDescriptors&) = delete;

  void free_one() {
    ::close(taken_.back());
    taken_.pop_back();
  }
  void free_taken() {
    while (!taken_.empty()) free_one();
  }

 private:
  rlimit limit_{};
  rlim_t before_ = 0;
  std::vector<int> taken_;
};

// Both sides: a message each way.
void exchange(const Side& side, Cq& cq, Qp& qp, Buffer& buffer, uint32_t posted) {
  qp.receive(1, {buffer.sge(0, 64)});
  side.meet(posted);
  qp.send(2, {buffer.sge(64, 64)});
  const uint64_t both = cq.wait().wr_id + cq.wait().wr_id;
  CHECK_EQ(both, 3u);
}

}  // namespace

// A program without a free descriptor gets an error at once, and continues with its objects.
CONFORMANCE_TEST(errors, no_free_descriptor) {
  Cq cq(side);
  Qp qp(side, cq), later(side, cq);
  Buffer buffer(side, 4096);
  qp.connect();
  {
    NoDescriptors none;
    for (int left = 0; left < 2; ++left) {  // a channel needs two
      if (left > 0) none.free_one();
      CHECK(ibv_create_comp_channel(side.context) == nullptr);
      CHECK_EQ(errno, EMFILE);
      CHECK(ibv_open_device(side.context->device) == nullptr);
      CHECK_EQ(errno, EMFILE);
    }
    exchange(side, cq, qp, buffer, 50);
    none.free_taken();
    const Cq with_channel(side, true);
  }
  later.connect();
  exchange(side, cq, later, buffer, 50);
  side.meet(51);
}

// A connection that fails for lack of descriptors returns an error: no queue pair seems connected.
CONFORMANCE_TEST(errors, no_free_descriptor_to_connect) {
  Cq cq(side);
  Qp qp(side, cq);
  Buffer buffer(side, 4096);
  qp.to_init();
  const Endpoint peer = side.exchange(qp.endpoint());
  std::optional<NoDescriptors> none(std::in_place);
  const int error = modify(
      qp,
      [&](ibv_qp_attr* attr) {
        attr->qp_state = IBV_QPS_RTR;
        attr->path_mtu = side.mtu;
        attr->dest_qp_num = peer.qpn;
        attr->rq_psn = peer.psn;
        attr->ah_attr.is_global = 1;
        attr->ah_attr.port_num = 1;
        attr->ah_attr.grh.dgid = peer.gid;
        attr->ah_attr.grh.sgid_index = side.gid_index;
      },
      IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
          IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
  none.reset();
  CHECK(error == 0 || error == EMFILE);
  const uint32_t others = side.exchange(static_cast<uint32_t>(error));
  if (error == 0 && others == 0) {
    qp.to_rts();
    exchange(side, cq, qp, buffer, 52);
  }
  if (error != 0) qp.await_state(IBV_QPS_ERR);
  side.meet(53);
  qp.reconnect();
  exchange(side, cq, qp, buffer, 54);
  side.meet(55);
}

namespace {

std::vector<int> sockets() {
  std::vector<int> found;
  for (int fd = 0; fd < 1024; ++fd) {
    int type = 0;
    socklen_t size = sizeof type;
    if (::getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) == 0) found.push_back(fd);
  }
  return found;
}

}  // namespace

// As where the limit of socket buffers is low (net.core.wmem_max): the channel holds a few events
// only, and the others come when there is room.
CONFORMANCE_TEST(errors, channel_without_room) {
  constexpr uint64_t kQueues = 24;
  const auto before = sockets();
  ibv_comp_channel* const channel = ibv_create_comp_channel(side.context);
  CHECK(channel != nullptr);
  for (const int fd : sockets()) {
    const int least = 1;
    if (std::find(before.begin(), before.end(), fd) == before.end())
      CHECK_EQ(::setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &least, sizeof least), 0);
  }
  {
    Buffer buffer(side, 4096);
    Cq sends(side);
    std::vector<std::unique_ptr<Cq>> cqs;
    std::vector<std::unique_ptr<Qp>> qps;
    for (uint64_t i = 0; i < kQueues; ++i) {
      Cq& cq = *cqs.emplace_back(std::make_unique<Cq>(side));
      CHECK_EQ(ibv_destroy_cq(cq.cq), 0);
      cq.cq = ibv_create_cq(side.context, 8, nullptr, channel, 0);
      CHECK(cq.cq != nullptr);
      qps.push_back(std::make_unique<Qp>(side, sends, cq));
      qps.back()->connect();
    }
    for (uint64_t round = 0; round < 3; ++round) {
      for (uint64_t i = 0; i < kQueues; ++i) {
        cqs[i]->arm();
        qps[i]->receive(i, {buffer.sge(0, 8)});
      }
      side.meet(1);
      for (uint64_t i = 0; i < kQueues; ++i) qps[i]->send(i, {buffer.sge(8, 8)});
      for (uint64_t i = 0; i < kQueues; ++i) (void)sends.wait();
      side.meet(2);
      for (uint64_t i = 0; i < kQueues; ++i) {
        pollfd ready{channel->fd, POLLIN, 0};
        CHECK_EQ(::poll(&ready, 1, kPatience), 1);
        ibv_cq* told = nullptr;
        void* context = nullptr;
        CHECK_EQ(ibv_get_cq_event(channel, &told, &context), 0);
        ibv_ack_cq_events(told, 1);
        ibv_wc wc{};
        CHECK_EQ(ibv_poll_cq(told, 1, &wc), 1);
      }
      side.meet(3);
    }
  }
  CHECK_EQ(ibv_destroy_comp_channel(channel), 0);
}

}  // namespace conformance
