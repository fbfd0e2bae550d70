#include "tests/unit/core/rdma/world.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <bit>
#include <cstdlib>
#include <cstring>
#include <stdexcept>

#include "core/ipc/event_ends.h"
#include "core/ipc/socket.h"

namespace vrdma::test {

using verbs::QpState;

namespace {

template <class T>
T must(base::Result<T> result) {
  if (!result) throw std::runtime_error(result.error().message());
  return std::move(*result);
}

// The read end does not block.
std::pair<base::Fd, base::Fd> make_ends() {
  auto ends = must(ipc::make_event_ends(64));
  ::fcntl(ends.read.get(), F_SETFL, O_NONBLOCK);
  return {std::move(ends.read), std::move(ends.write)};
}

std::shared_ptr<rdma::Process> ourselves() {
  const auto [here, there] = must(ipc::make_socket_pair());
  auto handle = must(rdma::identify_peer(here.get()));
  auto memory = must(rdma::open_memory(handle, true));
  return rdma::Process::make(handle.peer, std::move(handle.pidfd), std::move(memory));
}

template <class Message>
std::vector<Message> drain(const base::Fd& pipe) {
  std::vector<Message> all;
  Message message{};
  while (::read(pipe.get(), &message, sizeof message) == sizeof message) all.push_back(message);
  return all;
}

}  // namespace

void run_for(base::EventLoop& loop, std::chrono::milliseconds time) {
  int passes = 32;  // at least: on a busy machine the time may go by between two
  base::EventLoop::Timer timer;
  std::function<void()> look = [&] {
    if (--passes < 0) return loop.stop();
    timer = loop.after(base::Duration(0), look);
  };
  timer = loop.after(time, look);
  loop.post([] {});  // a first pass, for what was made active before
  loop.run();
}

verbs::Gid gid_of(const std::string& text) {
  verbs::Gid gid;
  const std::string ipv6 = text.find(':') == std::string::npos ? "::ffff:" + text : text;
  if (::inet_pton(AF_INET6, ipv6.c_str(), gid.bytes.data()) != 1) throw std::runtime_error(text);
  return gid;
}

Party::Party(rdma::Device& device, base::EventLoop& loop) {
  context.device = &device;
  context.process = ourselves();
  auto arena = must(base::make_memfd("test-memory", ipc::kMemoryArenaSize));
  memory_ = must(base::Mapping::shared(arena, kBytes, kBase, PROT_READ | PROT_WRITE));
  context.process->set_space(must(rdma::AddressSpace::of_arena(std::move(arena))));
  context.process->start_reach(loop, threads);
  context.arena_fd = must(base::make_memfd("test-queues", ipc::kQueueArenaSize));
  context.arena = std::make_shared<base::Mapping>(must(
      base::Mapping::shared(context.arena_fd, ipc::kQueueArenaSize, 0, PROT_READ | PROT_WRITE)));
  context.bell_fd = must(base::make_memfd("test-bells", ipc::kBellFileSize));
  context.bells =
      must(base::Mapping::shared(context.bell_fd, ipc::kBellFileSize, 0, PROT_READ | PROT_WRITE));
  context.heap =
      std::make_shared<rdma::ArenaHeap>(must(context.arena_fd.duplicate()), context.arena->bytes(),
                                        ipc::kHeapOffset, ipc::kQueueArenaSize, nullptr);
  context.claims_heap =
      std::make_shared<rdma::ArenaHeap>(must(context.bell_fd.duplicate()), context.bells.bytes(),
                                        ipc::kClaimsOffset, ipc::kBellFileSize, nullptr);
  std::tie(event_read_, context.events) = make_ends();
  context.on_corrupt = [this] { ++corrupt; };
  device.add(&context);
  pd = add_pd();
  auto made = std::make_unique<rdma::Channel>();
  std::tie(channel_read_, made->write_end) = make_ends();
  channel = context.channels.add(std::move(made));
}

uint32_t Party::register_memory(uint64_t addr, uint64_t length, uint32_t access, ipc::Way way,
                                rdma::Pd* domain) {
  const uint32_t key = next_slot_++ << 8 | 0x5a;
  rdma::Region region;
  region.pd = (domain != nullptr ? domain : pd)->handle;
  region.access = access;
  region.addr = region.iova = addr;
  region.length = length;
  region.way = way;
  if (!context.key_record.take({}, key)) throw std::runtime_error("a slot is taken");
  context.set_key(key, &region);
  return key;
}

rdma::Cq* Party::add_cq() {
  rdma::Cq* cq = context.cqs.add(std::make_unique<rdma::Cq>());
  cq->slot = cq->handle - 1;
  cq->bell = context.bells.at<ipc::CqBell>(cq->slot * sizeof(ipc::CqBell));
  cq->context = &context;
  cq->channel = channel;
  return cq;
}

rdma::Srq* Party::add_srq(uint32_t depth, uint32_t max_sge) {
  auto srq = std::make_unique<rdma::Srq>();
  srq->max_wr = depth;
  srq->max_sge = max_sge;
  if (auto made = srq->make(context, *pd, false); !made) std::abort();
  return context.srqs.add(std::move(srq));
}

rdma::Qp* Party::add_qp(const QpOptions& options) {
  auto qp = std::make_unique<rdma::Qp>();
  qp->type = options.type;
  qp->context = &context;
  qp->pd = pd;
  qp->send_cq = add_cq();
  qp->recv_cq = options.recv_cq != nullptr ? options.recv_cq : add_cq();
  qp->srq = options.srq;
  qp->max_send_sge = qp->max_recv_sge = options.max_sge;
  qp->max_inline = ipc::kMaxInline;
  qp->send_stride = ipc::send_stride(options.max_sge, qp->max_inline);
  qp->sq_depth = qp->rq_depth = qp->inbox_depth = options.depth;
  if (options.srq != nullptr) qp->inbox_depth = options.srq->depth;
  const auto aligned = [](uint64_t size) { return (size + 63) / 64 * 64; };
  const uint64_t results = sizeof(ipc::QpBlock);
  const uint64_t inbox = results + aligned(options.depth * sizeof(ipc::SendResult));
  const uint64_t sq = inbox + aligned(ipc::recv_ring_bytes(qp->inbox_depth));
  const uint64_t rq = sq + uint64_t{options.depth} * qp->send_stride;
  const uint64_t end = rq + uint64_t{options.depth} * ipc::recv_stride(options.max_sge);
  qp->range = must(context.heap->allocate(end));
  const uint64_t at = qp->range.offset();
  qp->block_offset = at;
  qp->rq_offset = at + rq;
  qp->block = context.arena->at<ipc::QpBlock>(at);
  qp->results = context.arena->at<ipc::SendResult>(at + results);
  qp->inbox = context.arena->at<ipc::RecvRing>(at + inbox);
  qp->sq = context.arena->bytes() + at + sq;
  qp->receives = {&qp->block->rq_head, context.arena->bytes() + at + rq, options.depth,
                  options.max_sge};
  ++pd->users;
  ++qp->send_cq->users;
  ++qp->recv_cq->users;
  if (qp->srq != nullptr) ++qp->srq->users;
  rdma::Qp* made = context.qps.add(std::move(qp));
  made->qpn = context.device->take_qpn(made);
  made->set_state(QpState::kReset);
  return made;
}

bool Party::post_receive(rdma::Qp& qp, uint64_t wr_id, const std::vector<verbs::Sge>& sges) {
  const uint32_t head = qp.block->rq_head.load();
  if (head - qp.completed_receives() >= qp.rq_depth) return false;
  auto* to = const_cast<uint8_t*>(qp.receives.wqes) +
             uint64_t{head & (qp.rq_depth - 1)} * ipc::recv_stride(qp.max_recv_sge);
  const ipc::RecvWqe wqe{wr_id, static_cast<uint32_t>(sges.size()), 0};
  std::memcpy(to, &wqe, sizeof wqe);
  if (!sges.empty()) std::memcpy(to + sizeof wqe, sges.data(), sges.size() * sizeof sges[0]);
  qp.block->rq_head.store(head + 1, std::memory_order_release);
  return true;
}

bool Party::post_receive(rdma::Srq& srq, uint32_t slot, const std::vector<verbs::Sge>& sges) {
  const uint32_t head = srq.block->head.load();
  auto* to = const_cast<uint8_t*>(srq.receives.wqes) + slot * ipc::recv_stride(srq.max_sge);
  const ipc::RecvWqe wqe{slot, static_cast<uint32_t>(sges.size()), 0};
  std::memcpy(to, &wqe, sizeof wqe);
  if (!sges.empty()) std::memcpy(to + sizeof wqe, sges.data(), sges.size() * sizeof sges[0]);
  const_cast<uint32_t*>(srq.receives.posted())[head & (srq.depth - 1)] = slot;
  srq.receives.claims->words()[slot].store(head + 1, std::memory_order_release);
  srq.block->head.store(head + 1, std::memory_order_release);
  return true;
}

bool Party::post_send(rdma::Qp& qp, ipc::SendWqe wqe, const std::vector<verbs::Sge>& sges) {
  const uint32_t head = qp.block->sq_head.load();
  if (head - qp.block->sq_tail.load() >= qp.sq_depth) return false;
  auto* to = const_cast<uint8_t*>(qp.sq) + uint64_t{head & (qp.sq_depth - 1)} * qp.send_stride;
  wqe.num_sge = static_cast<uint16_t>(sges.size());
  std::memcpy(to, &wqe, sizeof wqe);
  if (!sges.empty()) std::memcpy(to + sizeof wqe, sges.data(), sges.size() * sizeof sges[0]);
  qp.block->sq_head.store(head + 1, std::memory_order_release);
  uint32_t free = static_cast<uint32_t>(ipc::Token::kFree);
  qp.block->token.compare_exchange_strong(free, static_cast<uint32_t>(ipc::Token::kWorker));
  if (qp.sender) qp.sender->kick();
  return true;
}

std::vector<ipc::RecvEntry> Party::received(const rdma::Qp& qp) const {
  std::vector<ipc::RecvEntry> all;
  const uint32_t head = qp.inbox->head.load(std::memory_order_acquire);
  for (uint32_t i = head < qp.inbox_depth ? 0 : head - qp.inbox_depth; i < head; ++i)
    all.push_back(qp.inbox->entries()[i & (qp.inbox_depth - 1)]);
  return all;
}

std::vector<ipc::SendResult> Party::results(const rdma::Qp& qp) const {
  std::vector<ipc::SendResult> all;
  const uint32_t tail = qp.block->sq_tail.load(std::memory_order_acquire);
  for (uint32_t i = tail < qp.sq_depth ? 0 : tail - qp.sq_depth; i < tail; ++i)
    all.push_back(qp.results[i & (qp.sq_depth - 1)]);
  return all;
}

std::vector<ipc::EventMessage> Party::events() { return drain<ipc::EventMessage>(event_read_); }
std::vector<ipc::ChannelMessage> Party::wakes() {
  return drain<ipc::ChannelMessage>(channel_read_);
}

World::World(const std::string& b_tenant) : loop(must(base::EventLoop::create())) {
  a_device.name = "a";
  a_device.tenant = "red";
  a_device.gids = {gid_of("fe80::a"), gid_of("10.0.0.1")};
  b_device.name = "b";
  b_device.tenant = b_tenant;
  b_device.gids = {gid_of("fe80::b"), gid_of("10.0.0.2")};
  a_device.mtu = b_device.mtu = 4200;
  fabric.add(&a_device);
  fabric.add(&b_device);
  a = std::make_unique<Party>(a_device, *loop);
  b = std::make_unique<Party>(b_device, *loop);
  a->context.id = 1;
  b->context.id = 2;
}

World::~World() {
  b.reset();
  a.reset();
}

rdma::Qp* World::add_qp(Party& party, const Party::QpOptions& options) {
  rdma::Qp* qp = party.add_qp(options);
  if (make_sender) qp->sender = make_sender(*qp);
  return qp;
}

void World::name(rdma::Qp& qp, const rdma::Qp& peer) {
  const verbs::Gid& gid = peer.context->device->gids[0];
  std::memcpy(qp.attributes.av.dgid, gid.bytes.data(), gid.bytes.size());
  qp.attributes.av.is_global = 1;
  qp.attributes.dest_qpn = peer.qpn;
  qp.attributes.rq_psn = peer.qpn;
  qp.attributes.sq_psn = qp.qpn;
  qp.attributes.rnr_retry = 7;
  qp.attributes.retry_cnt = 7;
  qp.attributes.timeout = 14;
  qp.attributes.min_rnr_timer = 1;
  qp.attributes.max_rd_atomic = qp.attributes.max_dest_rd_atomic = 1;
  qp.sgid = qp.context->device->gids[0];
  qp.block->access.store(verbs::kRemoteWrite | verbs::kRemoteRead | verbs::kRemoteAtomic);
}

void World::to_rtr(rdma::Qp& qp) {
  qp.set_state(QpState::kRtr);
  (void)fabric.pair(qp);
  fabric.relink(qp);
}

void World::to_rts(rdma::Qp& qp) {
  qp.set_state(QpState::kRts);
  fabric.relink(qp);
  if (qp.sender) qp.sender->link_changed();
}

World::Pair World::connected(const Party::QpOptions& a_options, const Party::QpOptions& b_options) {
  const Pair pair{add_qp(*a, a_options), add_qp(*b, b_options)};
  name(*pair.a, *pair.b);
  name(*pair.b, *pair.a);
  pair.a->set_state(QpState::kInit);
  pair.b->set_state(QpState::kInit);
  to_rtr(*pair.a);
  to_rtr(*pair.b);
  to_rts(*pair.a);
  to_rts(*pair.b);
  return pair;
}

ipc::SendWqe wqe_of(verbs::Opcode opcode, uint8_t flags) {
  ipc::SendWqe wqe{};
  wqe.opcode = static_cast<uint8_t>(opcode);
  wqe.flags = flags;
  return wqe;
}

ipc::SendWqe rdma_wqe(verbs::Opcode opcode, uint64_t remote_addr, uint32_t rkey) {
  ipc::SendWqe wqe = wqe_of(opcode);
  wqe.rdma.remote_addr = remote_addr;
  wqe.rdma.rkey = rkey;
  return wqe;
}

}  // namespace vrdma::test
