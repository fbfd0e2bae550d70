#include "tests/integration/hostile/client.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <iostream>

#include "core/ipc/socket.h"

namespace vrdma::hostile {

using ipc::Call;
using verbs::QpState;

void failed(const std::string& what) {
  std::cout << "FAILED: " << what << std::endl;
  ::_exit(1);
}

void expect(bool holds, const std::string& what) {
  if (!holds) failed(what);
}

ipc::Request request_of(Call call) {
  ipc::Request request;
  request.call = call;
  return request;
}

base::Fd dial(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  base::Fd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  expect(::connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0,
         "connect to " + path + ": " + std::strerror(errno));
  return socket;
}

Client::Client(const std::string& path) : socket_(dial(path)) {}

void Client::send(const void* data, size_t size, const std::vector<int>& fds) {
  (void)ipc::send_message(socket_.get(), data, size, fds);
}

void Client::send_raw_fds(const void* data, size_t size, const std::vector<int>& fds) {
  std::vector<char> control(CMSG_SPACE(sizeof(int) * fds.size()));
  iovec piece{const_cast<void*>(data), size};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int) * fds.size());
  std::memcpy(CMSG_DATA(header), fds.data(), sizeof(int) * fds.size());
  (void)::sendmsg(socket_.get(), &message, MSG_NOSIGNAL);
}

void Client::send(ipc::Request& request, const std::vector<int>& fds) {
  request.sequence = ++sequence_;
  if (request.version == ipc::kVersion) request.version = version;
  send(&request, sizeof request, fds);
}

Answer Client::receive(int timeout_ms) {
  Answer answer;
  pollfd state{socket_.get(), POLLIN, 0};
  if (::poll(&state, 1, timeout_ms) <= 0) return answer;
  answer.came = ipc::receive(socket_.get(), &answer.reply, &answer.fds).has_value();
  if (answer.came) answer.error = answer.reply.error;
  return answer;
}

Answer Client::call(ipc::Request& request, const std::vector<int>& fds) {
  send(request, fds);
  Answer answer = receive();
  if (answer.came && request.magic == ipc::kMagic)
    expect(answer.reply.sequence == request.sequence, "an answer to another request");
  return answer;
}

Answer Client::call(Call what, uint32_t handle) {
  ipc::Request request = request_of(what);
  request.handle.handle = handle;
  return call(request);
}

bool Client::ended(int timeout_ms) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout_ms);
  pollfd state{socket_.get(), POLLRDHUP, 0};
  while (::poll(&state, 1, 50) >= 0 && std::chrono::steady_clock::now() < end)
    if ((state.revents & (POLLRDHUP | POLLHUP)) != 0) return true;
  return false;
}

Answer Client::ask_challenge(const void* place, const std::vector<int>& present) {
  ipc::Request request = request_of(Call::kHello);
  request.hello.challenge_addr = reinterpret_cast<uint64_t>(place);
  return call(request, present);
}

Answer Client::hello(const std::vector<int>& present) {
  Answer answer = ask_challenge(const_cast<uint64_t*>(&challenge_), present);
  if (!answer.came || answer.error != 0) return answer;
  challenge_ = answer.reply.challenge.challenge;
  answer = call(Call::kProve);
  if (!answer.came || answer.error != 0) return answer;
  expect(answer.fds.size() >= 5, "descriptors beside the answer to kHello");
  session_ = answer.reply.hello.session;
  arena_fd = std::move(answer.fds[0]);
  bell_fd = std::move(answer.fds[1]);
  memory_fd = std::move(answer.fds[2]);
  doorbell = std::move(answer.fds[3]);
  events = std::move(answer.fds[4]);
  events_end = std::move(answer.fds.back());
  map();
  return answer;
}

void Client::map() {
  // Unmap first: a forked child has no mappings, and new ones may take their place.
  arena = base::Mapping();
  bells = base::Mapping();
  arena = *base::Mapping::shared(arena_fd, ipc::kQueueArenaSize, 0, PROT_READ | PROT_WRITE);
  bells = *base::Mapping::shared(bell_fd, ipc::kBellFileSize, 0, PROT_READ | PROT_WRITE);
}

Answer Client::resume(const std::string& path) {
  expect(ended(20'000), "the daemon does not die");
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  for (int left = 2000; left > 0; --left, ::usleep(10'000)) {
    socket_ = base::Fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    if (::connect(socket_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0)
      continue;
    ipc::Request request = request_of(Call::kResume);
    request.sequence = sequence_;
    request.resume.session = session_;
    send(&request, sizeof request);
    if (Answer answer = receive(20'000); answer.came) return answer;
  }
  failed("no other daemon comes");
}

void Client::open() {
  const Answer answer = hello();
  expect(answer.came && answer.error == 0,
         "kHello: " + std::string(answer.came ? std::strerror(answer.error) : "no answer"));
}

void Client::ring() const { ::eventfd_write(doorbell.get(), 1); }

uint32_t Client::alloc_pd() {
  const Answer answer = call(Call::kAllocPd);
  expect(answer.came && answer.error == 0, "kAllocPd");
  return answer.reply.handle.handle;
}

uint32_t Client::create_cq(uint32_t channel) {
  ipc::Request request = request_of(Call::kCreateCq);
  request.create_cq = {channel, 256};
  const Answer answer = call(request);
  expect(answer.came && answer.error == 0, "kCreateCq");
  return answer.reply.create_cq.handle;
}

ipc::CreateQpReply Client::create_qp(uint32_t pd, uint32_t cq, uint32_t srq, verbs::QpType type) {
  ipc::Request request = request_of(Call::kCreateQp);
  request.create_qp = {pd, cq, cq, srq, ipc::kNoObject, static_cast<uint32_t>(type), 64, 64, 4,
                       4,  64, 0,  {}};
  const Answer answer = call(request);
  expect(answer.came && answer.error == 0, "kCreateQp");
  return answer.reply.create_qp;
}

ipc::CreateSrqReply Client::create_srq(uint32_t pd) {
  ipc::Request request = request_of(Call::kCreateSrq);
  request.create_srq = {pd, 64, 4, ipc::kNoObject, ipc::kNoObject};
  const Answer answer = call(request);
  expect(answer.came && answer.error == 0, "kCreateSrq");
  return answer.reply.create_srq;
}

ipc::RegMrReply Client::reg_mr(uint32_t pd, uint64_t addr, uint64_t length, ipc::Way way,
                               uint32_t access) {
  ipc::Request request = request_of(Call::kRegMr);
  request.reg_mr = {addr, length, addr, pd, access, static_cast<uint32_t>(way), 0};
  const Answer answer = call(request);
  expect(answer.came && answer.error == 0, "kRegMr");
  // Populates the pages as the library does, unless there are too many.
  if (way == ipc::Way::kInPlace && length <= 16u << 20)
    expect(::fallocate(memory_fd.get(), 0, static_cast<off_t>(addr / 4096 * 4096),
                       static_cast<off_t>(addr % 4096 + length)) == 0,
           "fallocate");
  return answer.reply.reg_mr;
}

int Client::modify(uint32_t qp, QpState to, uint32_t mask, verbs::QpAttributes attributes) {
  ipc::Request request = request_of(Call::kModifyQp);
  attributes.state = static_cast<uint32_t>(to);
  request.modify_qp = {qp, mask | verbs::kQpState, 0, 0, {}, attributes};
  const Answer answer = call(request);
  return answer.came ? answer.error : ECONNRESET;
}

void Client::to_rts(const ipc::CreateQpReply& qp, verbs::QpType type,
                    const verbs::QpAttributes& attributes) {
  using namespace verbs;  // NOLINT: names of attributes
  const bool ud = type == QpType::kUd;
  const uint32_t init = kQpPkeyIndex | kQpPort;
  int error = modify(qp.handle, QpState::kInit, init | (ud ? kQpQkey : kQpAccessFlags), attributes);
  const uint32_t rtr =
      kQpAv | kQpPathMtu | kQpDestQpn | kQpRqPsn | kQpMaxDestRdAtomic | kQpMinRnrTimer;
  if (error == 0) error = modify(qp.handle, QpState::kRtr, ud ? 0 : rtr, attributes);
  const uint32_t rts = kQpTimeout | kQpRetryCnt | kQpRnrRetry | kQpMaxQpRdAtomic;
  if (error == 0) error = modify(qp.handle, QpState::kRts, kQpSqPsn | (ud ? 0u : rts), attributes);
  expect(error == 0, std::string("kModifyQp: ") + std::strerror(error));
}

void Client::loop(const ipc::CreateQpReply& qp, verbs::QpType type) {
  const Answer gids = call(Call::kQueryGids);
  expect(gids.came && gids.reply.gids.count > 0, "kQueryGids");
  verbs::QpAttributes attributes{};
  attributes.port_num = 1;
  attributes.access_flags = verbs::kRemoteWrite | verbs::kRemoteRead | verbs::kRemoteAtomic;
  attributes.path_mtu = 5;
  attributes.dest_qpn = qp.qpn;
  std::memcpy(attributes.av.dgid, gids.reply.gids.gids[0], 16);
  attributes.av.is_global = attributes.av.port_num = 1;
  attributes.max_rd_atomic = attributes.max_dest_rd_atomic = 1;
  attributes.min_rnr_timer = 1;
  attributes.retry_cnt = attributes.rnr_retry = 7;
  attributes.timeout = 14;
  to_rts(qp, type, attributes);
}

void Client::loop_again(const ipc::CreateQpReply& qp) {
  expect(modify(qp.handle, QpState::kReset, 0, {}) == 0, "RESET");
  loop(qp);
}

void Client::post(const ipc::CreateQpReply& qp, const ipc::SendWqe& wqe,
                  const std::vector<verbs::Sge>& sges) {
  ipc::QpBlock* own = block(qp);
  const uint32_t head = own->sq_head.load();
  const uint32_t stride = ipc::send_stride(qp.max_send_sge, qp.max_inline);
  uint8_t* to = arena.bytes() + qp.sq + uint64_t{head & (qp.sq_depth - 1)} * stride;
  std::memcpy(to, &wqe, sizeof wqe);
  if (!sges.empty()) std::memcpy(to + sizeof wqe, sges.data(), sges.size() * sizeof sges[0]);
  own->sq_head.store(head + 1, std::memory_order_release);
  own->token.store(static_cast<uint32_t>(ipc::Token::kWorker));
  arena.at<std::atomic<uint64_t>>(ipc::kKickOffset)[qp.slot / 64].fetch_or(1ull << qp.slot % 64);
  ring();
}

void Client::post_receive(const ipc::CreateQpReply& qp, const std::vector<verbs::Sge>& sges) {
  ipc::QpBlock* own = block(qp);
  const uint32_t head = own->rq_head.load();
  uint8_t* to = arena.bytes() + qp.rq +
                uint64_t{head & (qp.rq_depth - 1)} * ipc::recv_stride(qp.max_recv_sge);
  const ipc::RecvWqe wqe{head, static_cast<uint32_t>(sges.size()), 0};
  std::memcpy(to, &wqe, sizeof wqe);
  if (!sges.empty()) std::memcpy(to + sizeof wqe, sges.data(), sges.size() * sizeof sges[0]);
  own->rq_head.store(head + 1, std::memory_order_release);
}

bool Client::executed(const ipc::CreateQpReply& qp, int timeout_ms) const {
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout_ms);
  while (block(qp)->sq_tail.load() != block(qp)->sq_head.load()) {
    if (std::chrono::steady_clock::now() > end) return false;
    ::usleep(200);
  }
  return true;
}

bool Client::settled(const ipc::CreateQpReply& qp, int timeout_ms) const {
  for (; timeout_ms > 0; timeout_ms -= 20)
    if (executed(qp, 20) || block(qp)->state == static_cast<uint32_t>(QpState::kErr)) return true;
  return false;
}

ipc::SendResult Client::last_result(const ipc::CreateQpReply& qp) const {
  const uint32_t tail = block(qp)->sq_tail.load();
  return arena.at<ipc::SendResult>(qp.results)[(tail - 1) & (qp.sq_depth - 1)];
}

}  // namespace vrdma::hostile
