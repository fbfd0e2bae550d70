// Raw packets: permission, and what may be sent.
#include <fcntl.h>
#include <net/if.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>

#include "tests/integration/hostile/attack.h"
#include "tests/integration/hostile/client.h"

namespace vrdma::hostile {

namespace {

using base::Fd;
using ipc::Call;
using verbs::Opcode;
using verbs::QpState;
using verbs::WcStatus;

constexpr uint64_t kAddr = 1u << 20;
constexpr size_t kMaxRawQps = 64, kMaxFlows = 64;

Fd packet_socket() { return Fd(::socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0)); }

struct Raw {
  explicit Raw(const Target& target) : client(target.socket) {
    client.open();
    pd = client.alloc_pd();
    cq = client.create_cq();
  }
  Answer create(const std::vector<int>& fds) {
    ipc::Request request = request_of(Call::kCreateQp);
    request.create_qp = {pd, cq, cq, ipc::kNoObject, ipc::kNoObject, kType, 64, 64, 4, 4,
                         64, 0,  {}};
    return client.call(request, fds);
  }
  ipc::CreateQpReply make() {
    const Fd own = packet_socket();
    const Answer answer = create({own.get()});
    expect(answer.came && answer.error == 0,
           "a queue pair for raw packets: error " + std::to_string(answer.error));
    const ipc::CreateQpReply qp = answer.reply.create_qp;
    verbs::QpAttributes attributes{};
    attributes.port_num = 1;
    expect(client.modify(qp.handle, QpState::kInit, verbs::kQpPort, attributes) == 0 &&
               client.modify(qp.handle, QpState::kRtr, 0, {}) == 0 &&
               client.modify(qp.handle, QpState::kRts, 0, {}) == 0,
           "a queue pair for raw packets to RTS");
    return qp;
  }
  Answer add_flow(uint32_t qp) {
    ipc::Request request = request_of(Call::kCreateFlow);
    request.create_flow.qp = qp;
    std::memset(&request.create_flow.match, 0xff, sizeof request.create_flow.match);
    return client.call(request);
  }

  static constexpr auto kType = static_cast<uint32_t>(verbs::QpType::kRawPacket);
  Client client;
  uint32_t pd = 0, cq = 0;
};

void raw_packets_without_right(const Target& target) {
  Raw raw(target);
  const auto refused = [&](const std::vector<int>& fds, const char* what) {
    const Answer answer = raw.create(fds);
    expect(answer.came && answer.error == EPERM,
           std::string("raw packets are given to who shows ") + what);
  };
  refused({}, "nothing");
  const Fd udp(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const Fd event(::eventfd(0, EFD_CLOEXEC));
  const Fd netns(::open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC));
  refused({udp.get()}, "a socket of IP");
  refused({raw.client.fd()}, "its session");
  refused({event.get()}, "an eventfd");
  refused({netns.get()}, "its namespace");
  if (const Fd own = packet_socket(); own.valid()) refused({own.get(), own.get()}, "two sockets");
  // A process that may create a user namespace has all rights in a network namespace of it.
  if (::unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0 && ::unshare(CLONE_NEWNET) != 0) return;
  const Fd foreign = packet_socket();
  expect(foreign.valid(), "a packet socket in a namespace of one's own");
  refused({foreign.get()}, "a packet socket of another namespace");
}

void raw_packets_of_others(const Target& target) {
  if (!packet_socket().valid()) return;  // requires CAP_NET_RAW
  Raw raw(target);
  const ipc::RegMrReply mr = raw.client.reg_mr(raw.pd, kAddr, 4096, ipc::Way::kInPlace);
  const base::Mapping map =
      *base::Mapping::shared(raw.client.memory_fd, 4096, kAddr, PROT_READ | PROT_WRITE);
  uint8_t* const frame = map.bytes();
  const Fd any(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ifreq request{};
  std::strcpy(request.ifr_name, "eth0");
  expect(::ioctl(any.get(), SIOCGIFHWADDR, &request) == 0, "ask for the address of eth0");
  std::memset(frame, 0xff, 6);
  const auto send = [&](Opcode opcode, uint32_t length) {
    const ipc::CreateQpReply qp = raw.make();
    ipc::SendWqe wqe{};
    wqe.opcode = static_cast<uint8_t>(opcode);
    wqe.flags = ipc::kSignaled;
    wqe.num_sge = 1;
    raw.client.post(qp, wqe, {{kAddr, length, mr.key}});
    expect(raw.client.executed(qp), "a queue stands still");
    const auto status = static_cast<WcStatus>(raw.client.last_result(qp).status);
    expect(raw.client.call(Call::kDestroyQp, qp.handle).error == 0, "kDestroyQp");
    return status;
  };
  uint8_t* source = frame + 6;
  std::memcpy(source, request.ifr_hwaddr.sa_data, 6);
  expect(send(Opcode::kSend, 60) == WcStatus::kSuccess, "a frame of its own is refused");
  for (int bit = 0; bit < 48; ++bit) {
    source[bit / 8] = static_cast<uint8_t>(source[bit / 8] ^ 1 << bit % 8);
    expect(send(Opcode::kSend, 60) == WcStatus::kLocalQpOperationError,
           "a frame in another's name is sent");
    source[bit / 8] = static_cast<uint8_t>(source[bit / 8] ^ 1 << bit % 8);
  }
  for (const uint32_t length : {0u, 1u, 13u, 4096u * 2})
    expect(send(Opcode::kSend, length) != WcStatus::kSuccess, "what is no frame is sent");
  for (const Opcode opcode : {Opcode::kRdmaWrite, Opcode::kRdmaRead, Opcode::kSendWithImm,
                              Opcode::kSendWithInvalidate, Opcode::kLocalInvalidate})
    expect(send(opcode, 60) != WcStatus::kSuccess, "an operation that raw packets have not");
}

void raw_packets_without_end(const Target& target) {
  if (!packet_socket().valid()) return;
  Raw raw(target), other(target);
  const Fd own = packet_socket();
  const uint32_t first = raw.make().handle;
  size_t made = 1;
  while (made <= kMaxRawQps && raw.create({own.get()}).error == 0) ++made;
  expect(made == kMaxRawQps, "there is no end of queue pairs for raw packets");
  expect(other.create({own.get()}).error == ENOMEM, "each session has an end of its own");
  std::vector<uint32_t> flows;
  for (;;) {
    const Answer answer = raw.add_flow(first);
    if (answer.error != 0) break;
    flows.push_back(answer.reply.handle.handle);
    expect(flows.size() <= kMaxFlows, "there is no end of flows");
  }
  expect(raw.client.call(Call::kDestroyQp, first).error == EBUSY, "destroyed with its flows");
  expect(other.add_flow(first).error == EINVAL, "a flow of another's queue pair");
  const uint32_t connected = other.client.create_qp(other.pd, other.cq).handle;
  expect(other.add_flow(connected).error == EINVAL, "a flow of no raw packets");
  expect(other.client.call(Call::kDestroyFlow, flows[0]).error == EINVAL, "another's flow");
  expect(raw.client.call(Call::kDestroyFlow, flows[0]).error == 0, "kDestroyFlow");
  expect(raw.client.call(Call::kDestroyFlow, flows[0]).error == EINVAL, "destroyed twice");
  // The session destroys the others, in any order.
}

}  // namespace

std::vector<Attack> raw_attacks() {
  return {{"raw_packets_without_right", raw_packets_without_right},
          {"raw_packets_of_others", raw_packets_of_others},
          {"raw_packets_without_end", raw_packets_without_end}};
}

}  // namespace vrdma::hostile
