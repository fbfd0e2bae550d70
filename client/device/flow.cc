// Flows (ibv_create_flow(3)): the Ethernet frames that a raw packet queue pair receives. Compiles
// the fields of a program's specification into the first bytes of a frame and a mask.
#include <linux/if_ether.h>
#include <netinet/in.h>

#include <cerrno>
#include <cstring>

#include "client/device/objects.h"
#include "client/verbs/virtual.h"

namespace vrdma::client {

namespace {

// Offsets of headers, without VLAN tags or IP options in between.
constexpr size_t kEtherType = 12, kIp = ETH_HLEN, kIpv4Length = 20, kIpv6Length = 40;

struct Compiler {
  ipc::FlowMatch match{};
  size_t ports = 0;     // their offset; 0: no IP header so far
  size_t protocol = 0;  // offset of the IP protocol

  void want(size_t at, const void* value, const void* mask, size_t size) {
    for (size_t i = 0; i < size; ++i) {
      const uint8_t bits = static_cast<const uint8_t*>(mask)[i];
      match.mask[at + i] |= bits;
      match.value[at + i] = static_cast<uint8_t>(match.value[at + i] |
                                                 (static_cast<const uint8_t*>(value)[i] & bits));
    }
  }
  void want_byte(size_t at, uint8_t value, uint8_t mask = 0xff) { want(at, &value, &mask, 1); }
  void want_ip(uint16_t ethertype, uint8_t first_byte, uint8_t first_mask) {
    want_byte(kEtherType, static_cast<uint8_t>(ethertype >> 8));
    want_byte(kEtherType + 1, static_cast<uint8_t>(ethertype));
    want_byte(kIp, first_byte, first_mask);
  }
  void ipv4() {
    want_ip(ETH_P_IP, 0x45, 0xff);
    protocol = kIp + 9;
    ports = kIp + kIpv4Length;
  }

  // False: unknown, or in the wrong place.
  bool add(const ibv_flow_spec& spec) {
    switch (spec.hdr.type) {
      case IBV_FLOW_SPEC_ETH:
        if (spec.hdr.size != sizeof spec.eth || spec.eth.mask.vlan_tag != 0) return false;
        want(0, spec.eth.val.dst_mac, spec.eth.mask.dst_mac, ETH_ALEN);
        want(ETH_ALEN, spec.eth.val.src_mac, spec.eth.mask.src_mac, ETH_ALEN);
        want(kEtherType, &spec.eth.val.ether_type, &spec.eth.mask.ether_type, 2);
        return true;
      case IBV_FLOW_SPEC_IPV4:
        if (spec.hdr.size != sizeof spec.ipv4 || ports != 0) return false;
        ipv4();
        want(kIp + 12, &spec.ipv4.val.src_ip, &spec.ipv4.mask.src_ip, 4);
        want(kIp + 16, &spec.ipv4.val.dst_ip, &spec.ipv4.mask.dst_ip, 4);
        return true;
      case IBV_FLOW_SPEC_IPV4_EXT:
        if (spec.hdr.size != sizeof spec.ipv4_ext || ports != 0 || spec.ipv4_ext.mask.flags != 0)
          return false;
        ipv4();
        want(kIp + 1, &spec.ipv4_ext.val.tos, &spec.ipv4_ext.mask.tos, 1);
        want(kIp + 8, &spec.ipv4_ext.val.ttl, &spec.ipv4_ext.mask.ttl, 1);
        want(kIp + 9, &spec.ipv4_ext.val.proto, &spec.ipv4_ext.mask.proto, 1);
        want(kIp + 12, &spec.ipv4_ext.val.src_ip, &spec.ipv4_ext.mask.src_ip, 4);
        want(kIp + 16, &spec.ipv4_ext.val.dst_ip, &spec.ipv4_ext.mask.dst_ip, 4);
        return true;
      case IBV_FLOW_SPEC_IPV6:
        if (spec.hdr.size != sizeof spec.ipv6 || ports != 0 || spec.ipv6.mask.flow_label != 0 ||
            spec.ipv6.mask.traffic_class != 0)
          return false;
        want_ip(ETH_P_IPV6, 0x60, 0xf0);
        protocol = kIp + 6;
        ports = kIp + kIpv6Length;
        want(kIp + 6, &spec.ipv6.val.next_hdr, &spec.ipv6.mask.next_hdr, 1);
        want(kIp + 7, &spec.ipv6.val.hop_limit, &spec.ipv6.mask.hop_limit, 1);
        want(kIp + 8, spec.ipv6.val.src_ip, spec.ipv6.mask.src_ip, 16);
        want(kIp + 24, spec.ipv6.val.dst_ip, spec.ipv6.mask.dst_ip, 16);
        return true;
      case IBV_FLOW_SPEC_TCP:
      case IBV_FLOW_SPEC_UDP:
        if (spec.hdr.size != sizeof spec.tcp_udp || ports == 0) return false;
        want_byte(protocol, spec.hdr.type == IBV_FLOW_SPEC_TCP ? IPPROTO_TCP : IPPROTO_UDP);
        want(ports, &spec.tcp_udp.val.src_port, &spec.tcp_udp.mask.src_port, 2);
        want(ports + 2, &spec.tcp_udp.val.dst_port, &spec.tcp_udp.mask.dst_port, 2);
        return true;
      default:
        return false;
    }
  }
};

// Returns 0 or an errno.
int compile(const ibv_flow_attr& attr, ipc::FlowMatch* match) {
  if (attr.comp_mask != 0 || attr.port != 1) return EINVAL;
  // Flows have no priorities: each queue pair receives all frames that match. Therefore default
  // rules, which match only frames that no other rule matches, are not supported.
  if (attr.flags != 0 || attr.type == IBV_FLOW_ATTR_MC_DEFAULT ||
      attr.type == IBV_FLOW_ATTR_ALL_DEFAULT)
    return EOPNOTSUPP;
  if (attr.type == IBV_FLOW_ATTR_SNIFFER) return attr.num_of_specs == 0 ? 0 : EINVAL;
  if (attr.type != IBV_FLOW_ATTR_NORMAL || attr.num_of_specs == 0) return EINVAL;
  Compiler compiler;
  const auto* at = reinterpret_cast<const uint8_t*>(&attr + 1);
  for (unsigned int i = 0; i < attr.num_of_specs; ++i) {
    ibv_flow_spec spec{};
    std::memcpy(&spec.hdr, at, sizeof spec.hdr);
    if (spec.hdr.size < sizeof spec.hdr) return EINVAL;
    if (spec.hdr.size > sizeof spec) return EOPNOTSUPP;
    std::memcpy(static_cast<void*>(&spec), at, spec.hdr.size);
    if (!compiler.add(spec)) return EOPNOTSUPP;
    at += spec.hdr.size;
  }
  *match = compiler.match;
  return 0;
}

}  // namespace

ibv_flow* create_flow(ibv_qp* qp, ibv_flow_attr* attr) {
  ipc::Request request;
  ipc::Reply reply;
  request.call = ipc::Call::kCreateFlow;
  request.create_flow.qp = qp->handle;
  int error =
      qp->qp_type == IBV_QPT_RAW_PACKET ? compile(*attr, &request.create_flow.match) : EOPNOTSUPP;
  if (error == 0) error = Qp::of(qp)->context->session.call(request, &reply);
  if (error != 0) {
    errno = error;
    return nullptr;
  }
  Made theirs(Qp::of(qp)->context->session, ipc::Call::kDestroyFlow, reply.handle.handle);
  auto* const flow = new Flow{{0, qp->context, reply.handle.handle}, Within(qp->context)};
  theirs.keep();
  return &flow->ibv;
}

int destroy_flow(ibv_flow* flow) {
  const int error = Context::of(flow->context)->session.call(ipc::Call::kDestroyFlow, flow->handle);
  if (error != 0 && error != EIO) return error;
  delete Flow::of(flow);
  return 0;
}

}  // namespace vrdma::client
