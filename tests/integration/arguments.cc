// vrdma_arguments DEVICE GID_INDEX: calls with arguments at and beyond each limit, and those that a
// call ignores. Prints a line for each: what was asked, and "ok" or the errno's name.
// docs/verbs-support.md has them beside those of rxe.
#include <infiniband/verbs.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace {

ibv_context* context = nullptr;
ibv_pd* pd = nullptr;
ibv_cq* cq = nullptr;
uint8_t gid_index = 0;

void print(const std::string& what, int error) {
  std::printf("%s: %s\n", what.c_str(), error == 0 ? "ok" : ::strerrorname_np(error));
}

// Destroys what a call has made, and prints how it went.
template <class T>
void made(const std::string& what, T* object, int (*destroy)(T*)) {
  print(what, object != nullptr ? 0 : errno);
  if (object != nullptr && destroy(object) != 0) std::abort();
}

void regions() {
  auto* const memory = static_cast<char*>(std::aligned_alloc(4096, 8192));
  const auto reg = [](const char* what, void* at, size_t length, unsigned access) {
    made(std::string("reg_mr ") + what, ::ibv_reg_mr(pd, at, length, static_cast<int>(access)),
         ibv_dereg_mr);
  };
  reg("of no bytes at a page", memory, 0, IBV_ACCESS_LOCAL_WRITE);
  reg("of no bytes within a page", memory + 8, 0, IBV_ACCESS_LOCAL_WRITE);
  reg("NULL, 1 byte", nullptr, 1, IBV_ACCESS_LOCAL_WRITE);
  reg("beyond the last address", memory, SIZE_MAX, IBV_ACCESS_LOCAL_WRITE);
  reg("REMOTE_WRITE without LOCAL_WRITE", memory, 64, IBV_ACCESS_REMOTE_WRITE);
  reg("REMOTE_ATOMIC without LOCAL_WRITE", memory, 64, IBV_ACCESS_REMOTE_ATOMIC);
  reg("RELAXED_ORDERING", memory, 64, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_RELAXED_ORDERING);
  reg("access 1 << 15", memory, 64, 1u << 15);
  std::free(memory);
}

void queue_pairs(const ibv_device_attr& most) {
  ibv_srq_init_attr srq_attr{};
  srq_attr.attr = {16, 1, 0};
  ibv_srq* const srq = ::ibv_create_srq(pd, &srq_attr);
  if (srq == nullptr) std::abort();
  const auto create = [&](const char* what, const ibv_qp_cap& cap, ibv_srq* with = nullptr) {
    ibv_qp_init_attr attr{};
    attr.send_cq = attr.recv_cq = cq;
    attr.srq = with;
    attr.qp_type = IBV_QPT_RC;
    attr.cap = cap;
    made(std::string("create_qp ") + what, ::ibv_create_qp(pd, &attr), ibv_destroy_qp);
  };
  const auto wr = static_cast<uint32_t>(most.max_qp_wr), sge = static_cast<uint32_t>(most.max_sge);
  create("with nothing", {0, 0, 0, 0, 0});
  create("max_send_wr beyond the device's", {wr + 1, 1, 1, 1, 0});
  create("max_recv_wr beyond the device's", {1, wr + 1, 1, 1, 0});
  create("max_send_sge beyond the device's", {1, 1, sge + 1, 1, 0});
  create("max_recv_sge beyond the device's", {1, 1, 1, sge + 1, 0});
  create("max_recv_wr beyond the device's, with an SRQ", {1, wr + 1, 1, 1, 0}, srq);
  create("max_recv_sge beyond the device's, with an SRQ", {1, 1, 1, sge + 1, 0}, srq);
  create("max_inline_data 100000", {1, 1, 1, 1, 100'000});
  if (::ibv_destroy_srq(srq) != 0) std::abort();
}

void other_queues(const ibv_device_attr& most) {
  const auto queue = [](const char* what, int cqe, int vector = 0) {
    made(std::string("create_cq ") + what, ::ibv_create_cq(context, cqe, nullptr, nullptr, vector),
         ibv_destroy_cq);
  };
  queue("0", 0);
  queue("-1", -1);
  queue("max_cqe", most.max_cqe);
  queue("beyond max_cqe", most.max_cqe + 1);
  queue("of vector num_comp_vectors", 1, context->num_comp_vectors);
  const auto shared = [](const char* what, const ibv_srq_attr& wanted) {
    ibv_srq_init_attr attr{};
    attr.attr = wanted;
    made(std::string("create_srq ") + what, ::ibv_create_srq(pd, &attr), ibv_destroy_srq);
  };
  shared("max_wr 0", {0, 1, 0});
  shared("max_sge 0", {1, 0, 0});
  shared("max_wr beyond the device's", {static_cast<uint32_t>(most.max_srq_wr) + 1, 1, 0});
  shared("max_sge beyond the device's", {1, static_cast<uint32_t>(most.max_srq_sge) + 1, 0});
  shared("srq_limit beyond max_wr", {16, 1, 17});
}

// Changes of a queue pair that is connected to itself. Each refused one leaves it where it is.
class Changes {
 public:
  Changes() {
    ibv_qp_init_attr init{};
    init.send_cq = init.recv_cq = cq;
    init.qp_type = IBV_QPT_RC;
    init.cap = {4, 4, 1, 1, 0};
    qp_ = ::ibv_create_qp(pd, &init);
    if (qp_ == nullptr) std::abort();
    good_.port_num = good_.ah_attr.port_num = 1;
    good_.path_mtu = IBV_MTU_1024;
    good_.dest_qp_num = qp_->qp_num;
    good_.max_dest_rd_atomic = good_.max_rd_atomic = 1;
    good_.min_rnr_timer = 12;
    good_.timeout = 14;
    good_.retry_cnt = good_.rnr_retry = 7;
    good_.ah_attr.is_global = 1;
    (void)::ibv_query_gid(context, 1, gid_index, &good_.ah_attr.grh.dgid);
    good_.ah_attr.grh.sgid_index = gid_index;
    good_.ah_attr.grh.hop_limit = 64;
  }
  ~Changes() { (void)::ibv_destroy_qp(qp_); }
  Changes(const Changes&) = delete;
  Changes& operator=(const Changes&) = delete;

  // Changes a new queue pair to `state`, by way of the states before it, with `spoil` applied to
  // the last change.
  template <class Spoil>
  void print_of(const char* what, ibv_qp_state state, Spoil spoil) {
    ibv_qp_attr reset{};
    reset.qp_state = IBV_QPS_RESET;
    (void)::ibv_modify_qp(qp_, &reset, IBV_QP_STATE);
    for (int each = IBV_QPS_INIT; each < state; ++each) {
      ibv_qp_attr attr = good_;
      attr.qp_state = static_cast<ibv_qp_state>(each);
      if (::ibv_modify_qp(qp_, &attr, kMasks[each]) != 0) std::abort();
    }
    ibv_qp_attr attr = good_;
    attr.qp_state = state;
    int mask = kMasks[state];
    spoil(attr, mask);
    print(std::string("modify_qp to ") + kNames[state] + what, ::ibv_modify_qp(qp_, &attr, mask));
  }

 private:
  static constexpr const char* kNames[] = {"RESET", "INIT", "RTR", "RTS"};
  static constexpr int kMasks[] = {
      IBV_QP_STATE, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS,
      IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
          IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
      IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
          IBV_QP_MAX_QP_RD_ATOMIC};
  ibv_qp* qp_;
  ibv_qp_attr good_{};
};

void changes() {
  using Attr = ibv_qp_attr;
  Changes qp;
  qp.print_of("", IBV_QPS_INIT, [](Attr&, int&) {});
  qp.print_of(", port 0", IBV_QPS_INIT, [](Attr& attr, int&) { attr.port_num = 0; });
  qp.print_of(", port 2", IBV_QPS_INIT, [](Attr& attr, int&) { attr.port_num = 2; });
  qp.print_of(", pkey_index 9999", IBV_QPS_INIT, [](Attr& attr, int&) { attr.pkey_index = 9999; });
  qp.print_of(" without a port", IBV_QPS_INIT, [](Attr&, int& mask) { mask &= ~IBV_QP_PORT; });
  qp.print_of("", IBV_QPS_RTR, [](Attr&, int&) {});
  qp.print_of(" without a GRH", IBV_QPS_RTR, [](Attr& attr, int&) { attr.ah_attr.is_global = 0; });
  qp.print_of(", sgid_index 200", IBV_QPS_RTR,
              [](Attr& attr, int&) { attr.ah_attr.grh.sgid_index = 200; });
  qp.print_of(", path_mtu 0", IBV_QPS_RTR,
              [](Attr& attr, int&) { attr.path_mtu = static_cast<ibv_mtu>(0); });
  qp.print_of(", path_mtu 6", IBV_QPS_RTR,
              [](Attr& attr, int&) { attr.path_mtu = static_cast<ibv_mtu>(6); });
  qp.print_of(", path_mtu beyond active_mtu", IBV_QPS_RTR,
              [](Attr& attr, int&) { attr.path_mtu = IBV_MTU_4096; });
  qp.print_of(", max_dest_rd_atomic 255", IBV_QPS_RTR,
              [](Attr& attr, int&) { attr.max_dest_rd_atomic = 255; });
  qp.print_of(", min_rnr_timer 32", IBV_QPS_RTR, [](Attr& attr, int&) { attr.min_rnr_timer = 32; });
  qp.print_of(", ah_attr.port_num 2", IBV_QPS_RTR,
              [](Attr& attr, int&) { attr.ah_attr.port_num = 2; });
  qp.print_of(", dest_qp_num 1 << 24", IBV_QPS_RTR,
              [](Attr& attr, int&) { attr.dest_qp_num = 1u << 24; });
  qp.print_of("", IBV_QPS_RTS, [](Attr&, int&) {});
  qp.print_of(", timeout 32", IBV_QPS_RTS, [](Attr& attr, int&) { attr.timeout = 32; });
  qp.print_of(", retry_cnt 8", IBV_QPS_RTS, [](Attr& attr, int&) { attr.retry_cnt = 8; });
  qp.print_of(", rnr_retry 8", IBV_QPS_RTS, [](Attr& attr, int&) { attr.rnr_retry = 8; });
  qp.print_of(", max_rd_atomic 255", IBV_QPS_RTS,
              [](Attr& attr, int&) { attr.max_rd_atomic = 255; });
  qp.print_of(", with a port", IBV_QPS_RTS, [](Attr&, int& mask) { mask |= IBV_QP_PORT; });
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  gid_index = static_cast<uint8_t>(std::atoi(argv[2]));
  int count = 0;
  ibv_device** const all = ::ibv_get_device_list(&count);
  for (int i = 0; i < count; ++i)
    if (std::strcmp(::ibv_get_device_name(all[i]), argv[1]) == 0)
      context = ::ibv_open_device(all[i]);
  if (context == nullptr) return 2;
  pd = ::ibv_alloc_pd(context);
  cq = ::ibv_create_cq(context, 64, nullptr, nullptr, 0);
  ibv_device_attr most{};
  if (pd == nullptr || cq == nullptr || ::ibv_query_device(context, &most) != 0) return 2;
  regions();
  queue_pairs(most);
  other_queues(most);
  changes();
  return 0;
}
