#include "tests/interop/rxe/side.h"

#include <arpa/inet.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

namespace exchange {

void fail(const char* format, ...) {
  char text[400];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  throw Failure(text);
}

namespace {

// splitmix64.
uint64_t mix(uint64_t value) {
  value += 0x9e3779b97f4a7c15;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9;
  value = (value ^ (value >> 27)) * 0x94d049bb133111eb;
  return value ^ (value >> 31);
}

int64_t now() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

uint32_t bytes_of(ibv_mtu mtu) { return 128U << mtu; }
ibv_mtu mtu_of(uint32_t bytes) {
  for (int mtu = IBV_MTU_256; mtu <= IBV_MTU_4096; ++mtu)
    if (bytes_of(static_cast<ibv_mtu>(mtu)) == bytes) return static_cast<ibv_mtu>(mtu);
  fail("%u is no MTU", bytes);
}

bool is_ipv4(const ibv_gid& gid) {
  static constexpr uint8_t kPrefix[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  return std::memcmp(gid.raw, kPrefix, sizeof kPrefix) == 0;
}

int choose_gid(ibv_context* context, int table_size) {
  int found = -1;
  for (int index = 0; index < table_size; ++index) {
    ibv_gid_entry entry{};
    if (ibv_query_gid_ex(context, 1, static_cast<uint32_t>(index), &entry, 0) != 0) continue;
    if (entry.gid_type != IBV_GID_TYPE_ROCE_V2) continue;
    if (is_ipv4(entry.gid)) return index;
    if (found < 0) found = index;
  }
  if (found < 0) fail("the device has no GID of RoCE v2");
  return found;
}

void must(int result, const char* what) {
  if (result != 0) fail("%s: %s", what, std::strerror(result < 0 ? errno : result));
}
template <class T>
T* made(T* object, const char* what) {
  if (object == nullptr) fail("%s: %s", what, std::strerror(errno));
  return object;
}

}  // namespace

uint64_t Random::next() { return mix(state_++); }

void fill(uint8_t* to, size_t size, uint64_t key, uint64_t position) {
  size_t done = 0;
  while (done < size) {
    const uint64_t word = mix(key ^ ((position + done) / 8) << 20);
    const size_t skip = (position + done) % 8, count = std::min(8 - skip, size - done);
    std::memcpy(to + done, reinterpret_cast<const uint8_t*>(&word) + skip, count);
    done += count;
  }
}

Channel::~Channel() { ::close(fd_); }

void Channel::write_all(const void* data, size_t size) const {
  if (::send(fd_, data, size, MSG_NOSIGNAL) != static_cast<ssize_t>(size))
    fail("the other process is gone: %s", std::strerror(errno));
}
void Channel::read_all(void* data, size_t size) const {
  const ssize_t count = ::recv(fd_, data, size, MSG_WAITALL);
  if (count != static_cast<ssize_t>(size))
    fail("the other process %s", count < 0 && errno == EAGAIN ? "does not answer" : "has given up");
}
void Channel::meet(uint32_t word) const {
  const uint32_t other = swap(word);
  if (other != word) fail("out of step: here %u, there %u", word, other);
}
void Channel::check_peer() const {
  pollfd entry{fd_, POLLRDHUP, 0};
  if (::poll(&entry, 1, 0) > 0 && (entry.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0)
    fail("the other process has given up");
}

Side::Side(const Options& wanted, int fd, bool client, uint64_t seed)
    : options(wanted), channel(fd), is_client(client), random(seed) {
  int count = 0;
  ibv_device** list = made(ibv_get_device_list(&count), "ibv_get_device_list");
  ibv_device* device = nullptr;
  for (int i = 0; i < count && device == nullptr; ++i)
    if (wanted.device.empty() || wanted.device == ibv_get_device_name(list[i])) device = list[i];
  if (device != nullptr) context = ibv_open_device(device);
  ibv_free_device_list(list);
  if (context == nullptr) fail("there is no device %s", wanted.device.c_str());
  pd = made(ibv_alloc_pd(context), "ibv_alloc_pd");

  ibv_device_attr device_attr{};
  must(ibv_query_device(context, &device_attr), "ibv_query_device");
  ibv_port_attr port_attr{};
  must(ibv_query_port(context, 1, &port_attr), "ibv_query_port");
  if (port_attr.state != IBV_PORT_ACTIVE) fail("the port is not active");
  if (options.gid_index < 0) options.gid_index = choose_gid(context, port_attr.gid_tbl_len);
  must(ibv_query_gid(context, 1, options.gid_index, &mine.gid), "ibv_query_gid");
  mine.mtu = bytes_of(port_attr.active_mtu);
  mine.is_rxe = std::string_view(ibv_get_device_name(context->device)).starts_with("rxe");
  constexpr unsigned kWindows =
      IBV_DEVICE_MEM_WINDOW | IBV_DEVICE_MEM_WINDOW_TYPE_2A | IBV_DEVICE_MEM_WINDOW_TYPE_2B;
  mine.has_windows = (device_attr.device_cap_flags & kWindows) != 0 &&
                     (device_attr.device_cap_flags & IBV_DEVICE_MEM_MGT_EXTENSIONS) != 0;
  mine.has_atomics = device_attr.atomic_cap != IBV_ATOMIC_NONE;
  peer = channel.swap(mine);
  mtu = options.mtu != 0 ? options.mtu : std::min(mine.mtu, peer.mtu);
  const auto other = channel.swap(mtu);
  mtu = std::min(mtu, other);
}

Side::~Side() {
  if (pd != nullptr) ibv_dealloc_pd(pd);
  if (context != nullptr) ibv_close_device(context);
}

Memory::Memory(const Side& side, size_t wanted, int access) : size(wanted) {
  void* mapping = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapping == MAP_FAILED) fail("no memory");
  data = static_cast<uint8_t*>(mapping);
  mr = ibv_reg_mr(side.pd, data, size, access);
  if (mr == nullptr) {
    ::munmap(data, size);
    fail("ibv_reg_mr: %s", std::strerror(errno));
  }
}
Memory::~Memory() {
  ibv_dereg_mr(mr);
  ::munmap(data, size);
}
void Memory::compare(std::span<const uint8_t> expected, const char* what) const {
  if (std::memcmp(data, expected.data(), expected.size()) == 0) return;
  size_t first = expected.size(), last = 0, count = 0;
  for (size_t at = 0; at < expected.size(); ++at) {
    if (data[at] == expected[at]) continue;
    first = std::min(first, at);
    last = at;
    ++count;
  }
  if (count == 0) fail("%s has changed while it was compared", what);
  fail("%s: %zu bytes from %zu to %zu differ; the first is %02x and should be %02x", what, count,
       first, last, data[first], expected[first]);
}

Qp::Qp(Side& side, const QpOptions& options) : side_(side) {
  const int depth = static_cast<int>(options.depth);
  send_cq = made(ibv_create_cq(side.context, depth, nullptr, nullptr, 0), "ibv_create_cq");
  events = made(ibv_create_comp_channel(side.context), "ibv_create_comp_channel");
  recv_cq = made(ibv_create_cq(side.context, depth, nullptr, events, 0), "ibv_create_cq");
  ibv_qp_init_attr init{};
  init.send_cq = send_cq;
  init.recv_cq = recv_cq;
  init.srq = options.srq;
  init.cap = {options.depth, options.depth, options.max_sge, options.max_sge, options.max_inline};
  init.qp_type = options.type;
  qp = made(ibv_create_qp(side.pd, &init), "ibv_create_qp");
  max_inline = init.cap.max_inline_data;

  struct End {
    uint32_t qpn, psn;
  };
  // Near the end of the numbers, so that they wrap.
  const auto psn = static_cast<uint32_t>((0xffffff - side.random.range(0, 60)) & 0xffffff);
  const End mine{qp->qp_num, psn};
  to_init(options);
  const End peer = side.channel.swap(mine);
  peer_qpn = peer.qpn;
  to_rtr(options, peer.psn);
  to_rts(options, psn);
  side.channel.meet(0x10);
}

Qp::~Qp() {
  if (ah != nullptr) ibv_destroy_ah(ah);
  if (qp != nullptr) ibv_destroy_qp(qp);
  if (recv_cq != nullptr) ibv_destroy_cq(recv_cq);
  if (events != nullptr) ibv_destroy_comp_channel(events);
  if (send_cq != nullptr) ibv_destroy_cq(send_cq);
}

void Qp::to_init(const QpOptions& options) {
  ibv_qp_attr to{};
  to.qp_state = IBV_QPS_INIT;
  to.port_num = 1;
  to.qkey = kQkey;
  to.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
  if (options.type == IBV_QPT_RC)
    to.qp_access_flags |= IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
  must(ibv_modify_qp(qp, &to,
                     IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
                         (options.type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS)),
       "INIT");
}

void Qp::to_rtr(const QpOptions& options, uint32_t psn) {
  ibv_qp_attr to{};
  to.qp_state = IBV_QPS_RTR;
  to.path_mtu = mtu_of(side_.mtu);
  to.dest_qp_num = peer_qpn;
  to.rq_psn = psn;
  to.max_dest_rd_atomic = options.max_rd_atomic;
  to.min_rnr_timer = options.min_rnr_timer;
  to.ah_attr.is_global = 1;
  to.ah_attr.port_num = 1;
  to.ah_attr.grh.dgid = side_.peer.gid;
  to.ah_attr.grh.sgid_index = static_cast<uint8_t>(side_.options.gid_index);
  to.ah_attr.grh.hop_limit = 64;
  int mask = IBV_QP_STATE;
  if (options.type == IBV_QPT_UD)
    ah = made(ibv_create_ah(side_.pd, &to.ah_attr), "ibv_create_ah");
  else
    mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
  if (options.type == IBV_QPT_RC) mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
  must(ibv_modify_qp(qp, &to, mask), "RTR");
}

void Qp::to_rts(const QpOptions& options, uint32_t psn) {
  ibv_qp_attr to{};
  to.qp_state = IBV_QPS_RTS;
  to.sq_psn = psn;
  to.timeout = options.timeout;
  to.retry_cnt = options.retry_cnt;
  to.rnr_retry = options.rnr_retry;
  to.max_rd_atomic = options.max_rd_atomic;
  int mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
  if (options.type == IBV_QPT_RC)
    mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
  must(ibv_modify_qp(qp, &to, mask), "RTS");
}

void Qp::post(ibv_send_wr wr, std::span<ibv_sge> sges) {
  wr.next = nullptr;
  wr.sg_list = sges.data();
  wr.num_sge = static_cast<int>(sges.size());
  if (ah != nullptr) wr.wr.ud = {ah, peer_qpn, kQkey};
  ibv_send_wr* bad = nullptr;
  must(ibv_post_send(qp, &wr, &bad), "ibv_post_send");
}
void Qp::post_receive(uint64_t wr_id, std::span<ibv_sge> sges) {
  ibv_recv_wr wr{}, *bad = nullptr;
  wr.wr_id = wr_id;
  wr.sg_list = sges.data();
  wr.num_sge = static_cast<int>(sges.size());
  if (qp->srq != nullptr)
    must(ibv_post_srq_recv(qp->srq, &wr, &bad), "ibv_post_srq_recv");
  else
    must(ibv_post_recv(qp, &wr, &bad), "ibv_post_recv");
}

bool Qp::poll(ibv_cq* cq, ibv_wc* wc, int milliseconds) {
  int64_t end = 0;
  for (uint32_t empty = 0;; ++empty) {
    const int count = ibv_poll_cq(cq, 1, wc);
    if (count < 0) fail("ibv_poll_cq fails");
    if (count > 0) return true;
    if (empty < 200) continue;
    if (end == 0) end = now() + milliseconds;
    if (now() >= end) return false;
    if (empty % 256 == 0) side_.channel.check_peer();
    ::usleep(50);
  }
}
ibv_wc Qp::next(ibv_cq* cq, int milliseconds) {
  ibv_wc wc{};
  if (!poll(cq, &wc, milliseconds))
    fail("there is no completion of a %s in %d ms", cq == send_cq ? "request" : "receive",
         milliseconds);
  return wc;
}
bool Qp::received(ibv_wc* wc, int milliseconds) { return poll(recv_cq, wc, milliseconds); }

namespace {
ibv_wc expected(const ibv_wc& wc, uint64_t wr_id, ibv_wc_status status, const char* of) {
  if (wc.wr_id == wr_id && wc.status == status) return wc;
  fail("%s %llu ends with '%s'; expected was %llu with '%s'", of,
       static_cast<unsigned long long>(wc.wr_id), ibv_wc_status_str(wc.status),
       static_cast<unsigned long long>(wr_id), ibv_wc_status_str(status));
}
}  // namespace

ibv_wc Qp::expect_sent(uint64_t wr_id, ibv_wc_status status) {
  return expected(sent(), wr_id, status, "request");
}
ibv_wc Qp::expect_received(uint64_t wr_id, ibv_wc_status status) {
  return expected(received(), wr_id, status, "receive");
}

void Qp::await_error_state() {
  const int64_t end = now() + kPatience;
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  do {
    must(ibv_query_qp(qp, &attr, IBV_QP_STATE, &init), "ibv_query_qp");
    if (attr.qp_state == IBV_QPS_ERR) return;
    side_.channel.check_peer();
    ::usleep(1000);
  } while (now() < end);
  fail("the queue pair is in state %d and not in ERR", attr.qp_state);
}

}  // namespace exchange
