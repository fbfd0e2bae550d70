// Derives an address handle for the sender of a received datagram (ibv_init_ah_from_wc).
//
// The first 40 bytes of a UD receive buffer are the GRH, which is an IPv6 header. For RoCE v2 over
// IPv4, the IPv4 header is the last 20 of these bytes, and those in front of it are undefined. The
// bytes do not say which header it is. The IPv4 header has a checksum, so it is tried first
// (InfiniBand Architecture, annex A17.4.5).
#include <cerrno>
#include <cstdint>
#include <cstring>

#include "client/verbs/virtual.h"
#include "core/wire/ip.h"

namespace vrdma::client {
namespace {

using wire::Ipv4Header;

static_assert(sizeof(ibv_grh) == sizeof(wire::Ipv6Header));

bool is_ipv4(const Ipv4Header& header) {
  return header.version_and_words == wire::kIpv4NoOptions && wire::sum(header) == 0xffff;
}

ibv_gid mapped(const uint8_t (&address)[4]) {
  ibv_gid gid{};
  gid.raw[10] = gid.raw[11] = 0xff;
  std::memcpy(gid.raw + 12, address, 4);
  return gid;
}

// The index of `gid` in the port's table, or -1. If RoCE v1 and v2 share the GID, that of v2.
int find_gid(ibv_context* context, uint8_t port_num, const ibv_gid& gid) {
  ibv_port_attr port{};
  if (query_port(context, port_num, &port) != 0) return -1;
  int index = -1;
  for (int i = 0; i < port.gid_tbl_len; ++i) {
    ibv_gid_entry entry{};
    if (query_gid_ex(context, port_num, static_cast<uint32_t>(i), &entry) != 0) continue;
    if (std::memcmp(entry.gid.raw, gid.raw, sizeof gid.raw) != 0) continue;
    if (entry.gid_type == IBV_GID_TYPE_ROCE_V2) return i;
    if (index < 0) index = i;
  }
  return index;
}

}  // namespace

int init_ah_from_wc(ibv_context* context, uint8_t port_num, ibv_wc* wc, ibv_grh* grh,
                    ibv_ah_attr* attr) {
  *attr = ibv_ah_attr{};
  attr->dlid = wc->slid;
  attr->src_path_bits = wc->dlid_path_bits;
  attr->port_num = port_num;
  if ((wc->wc_flags & IBV_WC_GRH) == 0) {
    attr->sl = wc->sl;
    return 0;
  }
  // A RoCE packet; here `wc->sl` is the type of the network header, so it is not copied.

  Ipv4Header ipv4;
  std::memcpy(&ipv4, reinterpret_cast<const uint8_t*>(grh) + wire::kIpv4InGrh, sizeof ipv4);
  ibv_gid own;
  attr->is_global = 1;
  attr->grh.hop_limit = 0xff;
  if (is_ipv4(ipv4)) {
    attr->grh.dgid = mapped(ipv4.source);
    own = mapped(ipv4.destination);
    attr->grh.traffic_class = ipv4.tos;
  } else {
    // The first word: version, traffic class, flow label.
    const uint32_t first = reinterpret_cast<const base::ub32&>(grh->version_tclass_flow);
    attr->grh.dgid = grh->sgid;
    own = grh->dgid;
    attr->grh.traffic_class = static_cast<uint8_t>(first >> 20);
    attr->grh.flow_label = first & 0xfffff;
  }
  const int index = find_gid(context, port_num, own);
  if (index < 0) {
    errno = ENOENT;
    return -1;
  }
  attr->grh.sgid_index = static_cast<uint8_t>(index);
  return 0;
}

}  // namespace vrdma::client
