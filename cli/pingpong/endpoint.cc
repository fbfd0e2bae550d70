#include "cli/pingpong/endpoint.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace vrdma::cli::pingpong {

namespace {

using Clock = std::chrono::steady_clock;

constexpr uint8_t kPort = 1;
constexpr uint8_t kGidIndex = 1;  // the RoCE v2 GID of the IPv4 address in a sandbox
constexpr auto kPollFor = std::chrono::microseconds(50);
constexpr uint32_t kQueue = 16;

ibv_context* open_first() {
  int count = 0;
  ibv_device** const list = ibv_get_device_list(&count);
  require(list != nullptr && count > 0, "find a device");
  ibv_context* const context = ibv_open_device(list[0]);
  ibv_free_device_list(list);
  return context;
}

}  // namespace

void require(bool done, const char* what) {
  if (done) return;
  std::fprintf(stderr, "vrdma-pingpong: cannot %s: %s\n", what, std::strerror(errno));
  std::exit(1);
}

Endpoint::Endpoint(base::Fd connection)
    : connection_(std::move(connection)),
      memory_(kBlocks * kBlock),
      incoming_(2),
      context_(open_first(), {ibv_close_device}) {
  require(context_ != nullptr, "open the device");
  pd_ = {ibv_alloc_pd(context_.get()), {ibv_dealloc_pd}};
  require(pd_ != nullptr, "make a protection domain");
  channel_ = {ibv_create_comp_channel(context_.get()), {ibv_destroy_comp_channel}};
  require(channel_ != nullptr, "make a completion channel");
  cq_ = {ibv_create_cq(context_.get(), 2 * kQueue, nullptr, channel_.get(), 0), {ibv_destroy_cq}};
  require(cq_ != nullptr, "make a completion queue");
  mr_ = {ibv_reg_mr(pd_.get(), memory_.data(), memory_.size(),
                    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE),
         {ibv_dereg_mr}};
  incoming_mr_ = {
      ibv_reg_mr(pd_.get(), incoming_.data(), incoming_.size() * kMessage, IBV_ACCESS_LOCAL_WRITE),
      {ibv_dereg_mr}};
  require(mr_ != nullptr && incoming_mr_ != nullptr, "register memory");
  ibv_qp_init_attr wanted{};
  wanted.send_cq = wanted.recv_cq = cq_.get();
  wanted.cap = {kQueue, kQueue, 1, 1, kMessage};
  wanted.qp_type = IBV_QPT_RC;
  wanted.sq_sig_all = 1;
  qp_ = {ibv_create_qp(pd_.get(), &wanted), {ibv_destroy_qp}};
  require(qp_ != nullptr, "make a queue pair");

  Place own{qp_->qp_num, mr_->rkey, reinterpret_cast<uint64_t>(memory_.data()), {}};
  require(ibv_query_gid(context_.get(), kPort, kGidIndex, &own.gid) == 0, "ask for the GID");
  require(::send(connection_.get(), &own, sizeof own, MSG_NOSIGNAL) == sizeof own &&
              ::recv(connection_.get(), &peer_, sizeof peer_, MSG_WAITALL) == sizeof peer_,
          "exchange addresses with the peer");
  connect(peer_);
  post_receive();
  post_receive();
  meet();  // neither sends before the other can receive
}

void Endpoint::meet() {
  char ready = 0;
  require(::send(connection_.get(), &ready, 1, MSG_NOSIGNAL) == 1 &&
              ::recv(connection_.get(), &ready, 1, 0) == 1,
          "wait for the peer");
}

void Endpoint::connect(const Place& peer) {
  ibv_qp_attr init{};
  init.qp_state = IBV_QPS_INIT;
  init.port_num = kPort;
  init.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
  errno = ibv_modify_qp(qp_.get(), &init,
                        IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
  require(errno == 0, "prepare the queue pair");
  ibv_qp_attr receive{};
  receive.qp_state = IBV_QPS_RTR;
  receive.path_mtu = IBV_MTU_1024;
  receive.dest_qp_num = peer.qpn;
  receive.max_dest_rd_atomic = 1;
  receive.min_rnr_timer = 12;
  receive.ah_attr.is_global = 1;
  receive.ah_attr.grh = {peer.gid, 0, kGidIndex, 64, 0};
  receive.ah_attr.port_num = kPort;
  errno = ibv_modify_qp(qp_.get(), &receive,
                        IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                            IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
  require(errno == 0, "connect the queue pair");
  ibv_qp_attr send{};
  send.qp_state = IBV_QPS_RTS;
  send.timeout = 14;
  send.retry_cnt = send.rnr_retry = 7;
  send.max_rd_atomic = 1;
  errno = ibv_modify_qp(qp_.get(), &send,
                        IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                            IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
  require(errno == 0, "let the queue pair send");
}

// Into the two words of incoming_ by turns.
void Endpoint::post_receive() {
  const size_t next = receives_++ % incoming_.size();
  ibv_sge where{reinterpret_cast<uint64_t>(&incoming_[next]), kMessage, incoming_mr_->lkey};
  ibv_recv_wr request{next, nullptr, &where, 1}, *bad = nullptr;
  errno = ibv_post_recv(qp_.get(), &request, &bad);
  require(errno == 0, "post a receive");
}

void Endpoint::post(ibv_send_wr* request) {
  ibv_send_wr* bad = nullptr;
  errno = ibv_post_send(qp_.get(), request, &bad);
  require(errno == 0, "post a request");
}

void Endpoint::send(uint64_t message) {
  ibv_sge from{reinterpret_cast<uint64_t>(&message), kMessage, 0};
  ibv_send_wr request{};
  request.sg_list = &from;
  request.num_sge = 1;
  request.opcode = IBV_WR_SEND;
  request.send_flags = IBV_SEND_INLINE;
  post(&request);
  (void)await(IBV_WC_SEND);
}

uint64_t Endpoint::receive() {
  const ibv_wc completion = await(IBV_WC_RECV);
  const uint64_t message = incoming_[completion.wr_id];
  post_receive();
  return message;
}

void Endpoint::write(size_t block) {
  const size_t at = block % kBlocks * kBlock;
  ibv_sge from{reinterpret_cast<uint64_t>(memory_.data() + at), kBlock, mr_->lkey};
  ibv_send_wr request{};
  request.sg_list = &from;
  request.num_sge = 1;
  request.opcode = IBV_WR_RDMA_WRITE;
  request.wr.rdma = {peer_.address + at, peer_.rkey};
  post(&request);
}

ibv_wc Endpoint::await(ibv_wc_opcode opcode) {
  const auto early = std::find_if(early_.begin(), early_.end(),
                                  [=](const ibv_wc& one) { return one.opcode == opcode; });
  if (early != early_.end()) {
    const ibv_wc completion = *early;
    early_.erase(early);
    return completion;
  }
  for (;;) {
    const ibv_wc completion = await_any();
    if (completion.opcode == opcode) return completion;
    early_.push_back(completion);
  }
}

ibv_wc Endpoint::await_any() {
  ibv_wc completion{};
  const auto until = Clock::now() + kPollFor;
  for (bool asked = false;;) {
    const int count = ibv_poll_cq(cq_.get(), 1, &completion);
    require(count >= 0, "poll the completion queue");
    if (count == 1) break;
    if (Clock::now() < until) continue;
    if (!asked) {  // and look once more, before sleeping
      require(ibv_req_notify_cq(cq_.get(), 0) == 0, "ask for an event");
      asked = true;
      continue;
    }
    ibv_cq* cq = nullptr;
    void* own = nullptr;
    require(ibv_get_cq_event(channel_.get(), &cq, &own) == 0, "wait for an event");
    ibv_ack_cq_events(cq, 1);
    asked = false;
  }
  if (completion.status == IBV_WC_SUCCESS) return completion;
  std::fprintf(stderr, "vrdma-pingpong: a request failed: %s\n",
               ibv_wc_status_str(completion.status));
  std::exit(1);
}

}  // namespace vrdma::cli::pingpong
