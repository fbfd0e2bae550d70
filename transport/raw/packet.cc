#include "transport/raw/packet.h"

#include <arpa/inet.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "transport/receiver.h"

namespace vrdma::transport {

using verbs::WcStatus;

namespace {

constexpr int kFramesPerTurn = 64;
constexpr size_t kBytesPerTurn = 64u << 10;
constexpr size_t kMacs = 2 * ETH_ALEN;
constexpr size_t kVlanTag = 4;
constexpr size_t kMaxFrame = 65536 + ETH_HLEN;  // as large as segments not yet cut up can be
constexpr size_t kUnusable = 1;                 // a length that no frame has

}  // namespace

PacketPort::~PacketPort() {
  watch_.reset();
  close_(std::move(socket_));
}

base::Result<void> PacketPort::flows_changed() {
  if (qp_.flows.empty()) {
    watch_.reset();
    return {};
  }
  if (watch_.active()) return {};
  sockaddr_ll address{};
  address.sll_family = AF_PACKET;
  address.sll_protocol = htons(ETH_P_ALL);
  address.sll_ifindex = static_cast<int>(ifindex_);
  if (::bind(socket_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    return base::fail_errno("bind a packet socket");
  // What came while there was no flow is nobody's.
  std::array<uint8_t, 1> none{};
  for (int i = 0; i < 4096 && ::recv(socket_.get(), none.data(), 1, MSG_DONTWAIT) >= 0; ++i) {
  }
  auto watch = loop_.watch(socket_.get(), EPOLLIN, [this](uint32_t) { receive(); });
  if (!watch) return base::pass(std::move(watch.error()));
  watch_ = std::move(*watch);
  return {};
}

// Reads a frame to room + kVlanTag and tells where it begins and how long it is; 0: there is none,
// kUnusable: it does not fit or is none.
// The kernel took its VLAN tag off, if it had one.
size_t PacketPort::read(uint8_t* room, uint8_t** frame) {
  iovec data{room + kVlanTag, kMaxFrame};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(tpacket_auxdata))> control{};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  const ssize_t got = ::recvmsg(socket_.get(), &message, MSG_DONTWAIT);
  if (got < 0) return 0;
  if (got < ETH_HLEN || (message.msg_flags & MSG_TRUNC) != 0) return kUnusable;
  *frame = room + kVlanTag;
  const cmsghdr* header = CMSG_FIRSTHDR(&message);
  if (header == nullptr || header->cmsg_level != SOL_PACKET || header->cmsg_type != PACKET_AUXDATA)
    return static_cast<size_t>(got);
  tpacket_auxdata about{};
  std::memcpy(&about, CMSG_DATA(header), sizeof about);
  if ((about.tp_status & TP_STATUS_VLAN_VALID) == 0) return static_cast<size_t>(got);
  *frame = room;
  std::memmove(room, room + kVlanTag, kMacs);
  const std::array<uint16_t, 2> tag{
      htons((about.tp_status & TP_STATUS_VLAN_TPID_VALID) != 0 ? about.tp_vlan_tpid
                                                               : uint16_t{ETH_P_8021Q}),
      htons(about.tp_vlan_tci)};
  std::memcpy(room + kMacs, tag.data(), sizeof tag);
  return static_cast<size_t>(got) + kVlanTag;
}

void PacketPort::receive() {
  const auto room = std::make_unique_for_overwrite<uint8_t[]>(kVlanTag + kMaxFrame);
  size_t bytes = 0;
  for (int i = 0; i < kFramesPerTurn && bytes < kBytesPerTurn; ++i) {
    uint8_t* frame = nullptr;
    const size_t length = read(room.get(), &frame);
    if (length == 0) return;
    bytes += length;
    if (length == kUnusable)
      ++qp_.context->device->fabric->counters.datagrams_dropped;
    else
      take(frame, length);
  }
}

void PacketPort::take(const uint8_t* frame, size_t length) {
  bool wanted = false;
  for (const rdma::Flow* flow : qp_.flows) wanted = wanted || flow->matches(frame, length);
  if (!wanted) return;
  ipc::RecvEntry entry{};
  entry.opcode = static_cast<uint8_t>(verbs::Opcode::kSend);
  if (receive_message(qp_, std::make_shared<std::vector<uint8_t>>(frame, frame + length), entry))
    qp_.context->device->counters.traffic.port.receive(length, (frame[0] & 1) != 0);
  else
    ++qp_.context->device->fabric->counters.datagrams_dropped;
}

WcStatus PacketPort::send(const std::vector<uint8_t>& frame) {
  const rdma::Device& device = *qp_.context->device;
  if (frame.size() < ETH_HLEN) return WcStatus::kLocalLengthError;
  if (!device.mac || !std::equal(device.mac->begin(), device.mac->end(), &frame[ETH_ALEN]))
    return WcStatus::kLocalQpOperationError;
  if (::send(socket_.get(), frame.data(), frame.size(), MSG_DONTWAIT | MSG_NOSIGNAL) < 0) {
    if (errno == EMSGSIZE || errno == EINVAL) return WcStatus::kLocalLengthError;
    ++device.fabric->counters.datagrams_dropped;
    return WcStatus::kSuccess;
  }
  for (rdma::Qp* other : device.raw_qps)
    if (other != &qp_) other->frames->take(frame.data(), frame.size());
  return WcStatus::kSuccess;
}

bool PacketSender::admit(const rdma::WorkRequest& request) {
  return static_cast<verbs::Opcode>(request.wqe.opcode) == verbs::Opcode::kSend;
}

uint64_t PacketSender::max_length() const { return qp_.context->device->mtu + ETH_HLEN + kVlanTag; }

// After a worker's death a frame is lost rather than sent twice.
Progress PacketSender::send(const rdma::WorkRequest&, const Message& message) {
  ring_.mark(ipc::Mark::kDone);
  return done(port_.send(*message), 0, message->size());
}

}  // namespace vrdma::transport
