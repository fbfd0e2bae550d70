#include "client/rsocket/endpoint.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "core/wire/ip.h"

namespace vrdma::client {

namespace {

// The GRH in front of each received datagram.
constexpr uint32_t kNetworkHeader = sizeof(wire::Ipv6Header);
static_assert(kNetworkHeader == sizeof(ibv_grh));

std::array<uint8_t, 16> source_of(const uint8_t* header) {
  std::array<uint8_t, 16> gid{};
  if (header[0] >> 4 == 6) {
    std::memcpy(gid.data(), header + offsetof(wire::Ipv6Header, source), gid.size());
    return gid;
  }
  gid[10] = gid[11] = 0xff;
  std::memcpy(gid.data() + 12, header + wire::kIpv4InGrh + offsetof(wire::Ipv4Header, source), 4);
  return gid;
}

}  // namespace

int RsEndpoint::make(rdma_event_channel* channel, const RsAddress& local, const Sizes& sizes,
                     std::unique_ptr<RsEndpoint>* made) {
  std::unique_ptr<RsEndpoint> endpoint(new RsEndpoint);
  endpoint->address_ = local;
  endpoint->address_.port = 0;
  const int error = endpoint->create(channel, sizes);
  if (error == 0) *made = std::move(endpoint);
  return error;
}

RsEndpoint::~RsEndpoint() {
  if (id_ != nullptr && id_->qp != nullptr) rdma_destroy_qp(id_);
  for (ibv_mr* region : {received_region_, sent_region_})
    if (region != nullptr) (void)ibv_dereg_mr(region);
  completions_.destroy();
  if (id_ != nullptr) rdma_destroy_id(id_);
}

int RsEndpoint::create(rdma_event_channel* channel, const Sizes& sizes) {
  if (rdma_create_id(channel, &id_, nullptr, RDMA_PS_UDP) != 0) return -errno;
  // Ports of rdma_cm are independent of UDP's: any port will do.
  sockaddr_storage local = address_.to(address_.is_ipv4() ? AF_INET : AF_INET6);
  if (rdma_bind_addr(id_, reinterpret_cast<sockaddr*>(&local)) != 0) return -errno;
  if (id_->verbs == nullptr) return -ENODEV;
  if (const int error = create_queue_pair(sizes); error != 0) return error;

  const auto stride = size_t{stride_};
  received_.assign(stride * receive_depth_, 0);
  sent_.assign(stride * send_depth_, 0);
  received_region_ =
      ibv_reg_mr(id_->pd, received_.data(), received_.size(), IBV_ACCESS_LOCAL_WRITE);
  sent_region_ = ibv_reg_mr(id_->pd, sent_.data(), sent_.size(), IBV_ACCESS_LOCAL_WRITE);
  if (received_region_ == nullptr || sent_region_ == nullptr) return -errno;
  for (uint32_t slot = 0; slot < send_depth_; ++slot) free_.push_back(slot);
  for (uint32_t slot = 0; slot < receive_depth_; ++slot) give_back(slot);
  return broken_ ? -EIO : 0;
}

int RsEndpoint::create_queue_pair(const Sizes& sizes) {
  ibv_port_attr port{};
  ibv_device_attr device{};
  if (ibv_query_port(id_->verbs, id_->port_num, &port) != 0) return -ENODEV;
  if (ibv_query_device(id_->verbs, &device) != 0) return -ENODEV;
  mtu_ = 128U << port.active_mtu;
  constexpr uint32_t kCacheLine = 64;
  stride_ = (kNetworkHeader + mtu_ + kCacheLine - 1) & ~(kCacheLine - 1);
  constexpr uint32_t kLeast = 16, kLongMessage = 2048;
  const auto depth = [&](uint32_t bytes, uint32_t most) {
    const uint32_t least = std::min(kLeast, static_cast<uint32_t>(device.max_qp_wr));
    most = std::clamp(most, least, static_cast<uint32_t>(device.max_qp_wr));
    return std::clamp(bytes / std::min(mtu_, kLongMessage), least, most);
  };
  send_depth_ = depth(sizes.send_bytes, sizes.send_depth);
  receive_depth_ = depth(sizes.receive_bytes, sizes.receive_depth);

  if (const int error = completions_.create(id_->verbs, send_depth_ + receive_depth_); error != 0)
    return error;
  inline_ = sizes.inline_bytes;
  return completions_.create_queue_pair(id_, IBV_QPT_UD, send_depth_, receive_depth_, &inline_);
}

// Addresses come and go, and their GID indices change with them.
int RsEndpoint::source_index() {
  const auto holds = [&](int index) {
    ibv_gid gid{};
    return ibv_query_gid(id_->verbs, id_->port_num, index, &gid) == 0 &&
           std::memcmp(&gid, address_.gid.data(), sizeof gid) == 0;
  };
  if (holds(source_index_)) return source_index_;
  ibv_port_attr port{};
  if (ibv_query_port(id_->verbs, id_->port_num, &port) != 0) return -1;
  for (int index = 0; index < port.gid_tbl_len; ++index)
    if (holds(index)) return source_index_ = static_cast<uint8_t>(index);
  return -1;
}

RsHandle RsEndpoint::handle_for(const RsAddress& peer) {
  const int index = source_index();
  if (index < 0) {
    errno = EADDRNOTAVAIL;
    return nullptr;
  }
  ibv_ah_attr attr{};
  attr.is_global = 1;
  attr.port_num = id_->port_num;
  attr.grh.sgid_index = static_cast<uint8_t>(index);
  attr.grh.hop_limit = 64;
  std::memcpy(&attr.grh.dgid, peer.gid.data(), peer.gid.size());
  return RsHandle(ibv_create_ah(id_->pd, &attr));
}

int RsEndpoint::send(std::span<const uint8_t> header, const iovec* from, size_t count, ibv_ah* to,
                     uint32_t qpn) {
  const uint32_t slot = free_.back();
  uint8_t* const begin = sent_.data() + size_t{slot} * stride_;
  uint8_t* next = std::copy(header.begin(), header.end(), begin);
  for (size_t i = 0; i < count; ++i) {
    const auto* piece = static_cast<const uint8_t*>(from[i].iov_base);
    next = std::copy(piece, piece + from[i].iov_len, next);
  }
  ibv_sge sge{reinterpret_cast<uintptr_t>(begin), static_cast<uint32_t>(next - begin),
              sent_region_->lkey};
  ibv_send_wr wr{};
  wr.wr_id = slot;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.opcode = IBV_WR_SEND;
  if (sge.length <= inline_) wr.send_flags = IBV_SEND_INLINE;
  wr.wr.ud.ah = to;
  wr.wr.ud.remote_qpn = qpn;
  wr.wr.ud.remote_qkey = RDMA_UDP_QKEY;
  ibv_send_wr* bad = nullptr;
  if (const int error = ibv_post_send(id_->qp, &wr, &bad); error != 0) return -error;
  free_.pop_back();
  return 0;
}

RsEndpoint::Arrival RsEndpoint::arrival(const ibv_wc& done) const {
  const auto slot = static_cast<uint32_t>(done.wr_id);
  const uint8_t* const begin = received_.data() + size_t{slot} * stride_;
  const uint32_t length = std::clamp(done.byte_len, kNetworkHeader, stride_);
  return {slot, {begin + kNetworkHeader, length - kNetworkHeader}, source_of(begin), done.src_qp};
}

void RsEndpoint::give_back(uint32_t slot) {
  if (broken_) return;
  ibv_sge sge{reinterpret_cast<uintptr_t>(received_.data() + size_t{slot} * stride_),
              kNetworkHeader + mtu_, received_region_->lkey};
  ibv_recv_wr wr{};
  wr.wr_id = kReceive | slot;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  ibv_recv_wr* bad = nullptr;
  if (ibv_post_recv(id_->qp, &wr, &bad) != 0) broken_ = true;
}

}  // namespace vrdma::client
