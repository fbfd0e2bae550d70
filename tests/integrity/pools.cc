#include "tests/integrity/pools.h"

#include <algorithm>
#include <cstring>

namespace integrity {
namespace {

constexpr uint32_t kQkey = 0x1234567;
// ff1e:: with an IPv4 group, as rdma_cm makes it: 239.42.0.1.
constexpr ibv_gid kGroup{{0xff, 0x0e, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 239, 42, 0, 1}};

}  // namespace

// --- shared receives ---

SharedReceives::SharedReceives(ibv_pd* pd, const World& world, Memory memory)
    : seed_(world.seed),
      memory_(kMemoryNames[static_cast<size_t>(memory)]),
      block_(memory, size_t{kSharedReceives} * kSharedReceiveSize),
      states_(kSharedReceives, State::kFree),
      keys_(kSharedReceives) {
  mr_ = ibv_reg_mr(pd, block_.bytes().data(), block_.bytes().size(), IBV_ACCESS_LOCAL_WRITE);
  ibv_srq_init_attr attr{};
  attr.attr = {kSharedReceives, 2, 0};
  srq_ = ibv_create_srq(pd, &attr);
  if (mr_ == nullptr || srq_ == nullptr) fail("make an SRQ");
  for (size_t i = 0; i < kSharedReceives; ++i) renew(i);
}

void SharedReceives::renew(size_t index) {
  keys_[index] = mixed(seed_ ^ ++keys_[index] ^ (index << 32));
  fill(slot(index), keys_[index]);
}

void SharedReceives::post(bool in_doubt) {
  const std::lock_guard lock(mutex_);
  in_doubt_ = in_doubt;
  for (size_t i = 0; i < kSharedReceives; ++i) {
    if (states_[i] != State::kFree) continue;
    const auto at = reinterpret_cast<uint64_t>(slot(i).data());
    const uint32_t part = 1 + static_cast<uint32_t>(keys_[i] % (kSharedReceiveSize - 1));
    ibv_sge sges[2] = {{at, part, mr_->lkey}, {at + part, kSharedReceiveSize - part, mr_->lkey}};
    ibv_recv_wr wr{}, *bad = nullptr;
    wr.wr_id = kReceiveBit | kSharedBit | i;
    wr.sg_list = sges;
    wr.num_sge = 2;
    states_[i] = State::kPosted;
    if (ibv_post_srq_recv(srq_, &wr, &bad) != 0) fail("ibv_post_srq_recv");
  }
}

size_t SharedReceives::index_of(uint64_t name) const {
  const size_t index = name & 0xffff;
  if (index >= kSharedReceives || states_[index] != State::kPosted)
    fail("receive %zu of the SRQ completes without being posted", index);
  return index;
}

std::optional<size_t> SharedReceives::differs(uint64_t name, const Message& message) {
  const std::lock_guard lock(mutex_);
  const size_t index = index_of(name);
  std::vector<uint8_t> expected(kSharedReceiveSize);
  fill(expected, keys_[index]);
  std::ranges::copy(message.bytes, expected.begin());
  if (in_doubt_) expected.resize(message.bytes.size());
  const auto found = slot(index).first(expected.size());
  const auto at = std::ranges::mismatch(found, expected).in1;
  if (at == found.end()) return std::nullopt;
  return static_cast<size_t>(at - found.begin());
}

void SharedReceives::release(uint64_t name) {
  const std::lock_guard lock(mutex_);
  const size_t index = index_of(name);
  states_[index] = State::kFree;
  renew(index);
}

void SharedReceives::check() {
  const std::lock_guard lock(mutex_);
  for (size_t i = 0; i < kSharedReceives; ++i)
    if (in_doubt_)
      fill(slot(i), keys_[i]);
    else if (!is_filled(slot(i), keys_[i]))
      fail("receive %zu of the SRQ has changed", i);
}

void SharedReceives::destroy() {
  if (ibv_destroy_srq(srq_) != 0 || ibv_dereg_mr(mr_) != 0) fail("destroy an SRQ");
}

// --- datagrams ---

Datagrams::Datagrams(Device* device, Memory memory)
    : device_(device),
      block_(memory, size_t{kDatagrams} * (kGrh + kDatagramSize) + size_t{kSends} * kDatagramSize) {
  mr_ = ibv_reg_mr(device->pd(), block_.bytes().data(), block_.bytes().size(),
                   IBV_ACCESS_LOCAL_WRITE);
  ibv_qp_init_attr init{};
  init.send_cq = init.recv_cq = device->stations().front()->cq();
  init.qp_type = IBV_QPT_UD;
  init.cap = {kSends, kDatagrams, 1, 1, 0};
  qp_ = mr_ == nullptr ? nullptr : ibv_create_qp(device->pd(), &init);
  if (qp_ == nullptr) fail("make a UD queue pair");
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = 1;
  attr.qkey = kQkey;
  if (ibv_modify_qp(qp_, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY) != 0)
    fail("bring a UD queue pair to INIT");
  attr.qp_state = IBV_QPS_RTR;
  if (ibv_modify_qp(qp_, &attr, IBV_QP_STATE) != 0) fail("bring a UD queue pair to RTR");
  attr.qp_state = IBV_QPS_RTS;
  if (ibv_modify_qp(qp_, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN) != 0)
    fail("bring a UD queue pair to RTS");
  if (const int error = ibv_attach_mcast(qp_, &kGroup, 0); error != 0)
    fail("ibv_attach_mcast: %s", std::strerror(error));
  for (size_t i = 0; i < kDatagrams; ++i) free_receives_.push_back(i);
  for (size_t i = 0; i < kSends; ++i) free_sends_.push_back(i);
}

void Datagrams::meet(const std::vector<Info>& infos) {
  const auto handle = [&](const ibv_gid& gid) {
    ibv_ah_attr attr{};
    attr.is_global = 1;
    attr.port_num = 1;
    attr.grh.dgid = gid;
    attr.grh.sgid_index = device_->gid_index();
    attr.grh.hop_limit = 64;
    ibv_ah* const made = ibv_create_ah(device_->pd(), &attr);
    if (made == nullptr) fail("ibv_create_ah");
    return made;
  };
  for (const Info& info : infos) {
    handles_.push_back(handle(info.gid));
    qpns_.push_back(info.datagram_qpn);
  }
  group_ = handle(kGroup);
}

void Datagrams::post() {
  const std::lock_guard lock(mutex_);
  for (const size_t i : free_receives_) {
    std::memset(receive_slot(i), 0x77, kGrh + kDatagramSize);
    ibv_sge sge{reinterpret_cast<uint64_t>(receive_slot(i)), kGrh + kDatagramSize, mr_->lkey};
    ibv_recv_wr wr{}, *bad = nullptr;
    wr.wr_id = kReceiveBit | kDatagramBit | i;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    if (ibv_post_recv(qp_, &wr, &bad) != 0) fail("post a receive of a datagram");
  }
  free_receives_.clear();
}

void Datagrams::send(uint32_t length, bool multicast) {
  if (multicast) {
    send_one(group_, 0xffffff, length);
    return;
  }
  for (size_t i = 0; i < handles_.size(); ++i) send_one(handles_[i], qpns_[i], length);
}

void Datagrams::send_one(ibv_ah* to, uint32_t qpn, uint32_t length) {
  size_t index = 0;
  {
    const std::lock_guard lock(mutex_);
    if (free_sends_.empty()) return;
    index = free_sends_.back();
    free_sends_.pop_back();
  }
  length = std::clamp<uint32_t>(length, sizeof(Header), kDatagramSize);
  const Header header{device_->world().seed, ++sequence_, device_->member(), length};
  fill({send_slot(index), length}, mixed(header.seed + header.sequence) + header.sender);
  std::memcpy(send_slot(index), &header, sizeof header);
  ibv_sge sge{reinterpret_cast<uint64_t>(send_slot(index)), length, mr_->lkey};
  ibv_send_wr wr{}, *bad = nullptr;
  wr.wr_id = kDatagramBit | index;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.opcode = IBV_WR_SEND;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.wr.ud = {to, qpn, kQkey};
  ++sending_;
  if (ibv_post_send(qp_, &wr, &bad) != 0) fail("post a datagram");
}

void Datagrams::complete(const ibv_wc& wc) {
  const std::lock_guard lock(mutex_);
  const size_t index = wc.wr_id & 0xffff;
  if (wc.status != IBV_WC_SUCCESS) fail("a datagram ends with %s", ibv_wc_status_str(wc.status));
  if ((wc.wr_id & kReceiveBit) != 0) {
    received(index, wc);
    free_receives_.push_back(index);
    return;
  }
  // Its bytes were taken.
  std::memset(send_slot(index), 0x66, kDatagramSize);
  free_sends_.push_back(index);
  ++counts().datagrams_sent;
  --sending_;
}

void Datagrams::received(size_t index, const ibv_wc& wc) {
  Header header{};
  const uint8_t* const at = receive_slot(index) + kGrh;
  std::memcpy(&header, at, sizeof header);
  if (wc.byte_len < kGrh + sizeof header || header.length != wc.byte_len - kGrh)
    fail("a datagram of %u bytes says %u", wc.byte_len - kGrh, header.length);
  if (header.seed != device_->world().seed) fail("a datagram of another epoch");
  std::vector<uint8_t> expected(kDatagramSize, 0x77);
  fill(std::span(expected).first(header.length),
       mixed(header.seed + header.sequence) + header.sender);
  std::memcpy(expected.data(), &header, sizeof header);
  if (std::memcmp(at, expected.data(), may_leave_parts_ ? header.length : kDatagramSize) != 0)
    fail("a datagram of member %u has other bytes", header.sender);
  if ((wc.wc_flags & IBV_WC_GRH) == 0) fail("a datagram without a GRH");
  if (!seen_.emplace(header.sender, header.sequence).second && !may_come_twice_)
    fail("datagram %lu of member %u comes twice", header.sequence, header.sender);
  ++counts().datagrams_received;
}

void Datagrams::destroy() {
  for (ibv_ah* const handle : handles_)
    if (ibv_destroy_ah(handle) != 0) fail("ibv_destroy_ah");
  if (group_ != nullptr && ibv_destroy_ah(group_) != 0) fail("ibv_destroy_ah");
  if (ibv_detach_mcast(qp_, &kGroup, 0) != 0) fail("ibv_detach_mcast");
  if (ibv_destroy_qp(qp_) != 0 || ibv_dereg_mr(mr_) != 0) fail("destroy a UD queue pair");
}

}  // namespace integrity
