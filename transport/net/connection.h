// What the two sides of a queue pair on a network share: its attributes, packets on their way
// out, and what is counted.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "core/base/counter.h"
#include "core/base/event_loop.h"
#include "core/rdma/buffers.h"
#include "core/verbs/types.h"
#include "core/wire/roce.h"
#include "transport/net/psn_set.h"

namespace vrdma::transport::net {

// The attributes of a connected queue pair that its packets depend on. Units as in
// ibv_modify_qp(3), but the MTU is in bytes.
struct Attributes {
  bool reliable = true;  // RC; else UC
  uint32_t mtu = 1024;
  uint16_t pkey = 0xffff;
  uint32_t dest_qpn = 0;
  uint32_t sq_psn = 0, rq_psn = 0;  // of the next request to the peer, and from it
  uint8_t timeout = 14, retry_cnt = 7, rnr_retry = 7, min_rnr_timer = 12;
  uint8_t max_rd_atomic = 1, max_dest_rd_atomic = 1;
  // The most packets without an answer; at most kSpan / 2.
  uint32_t window = 256;
  // Whether packets that come before their turn are kept. Else the responder drops them, as most
  // adapters do.
  bool keeps_early = true;
};

// Packets of one message with consecutive sequence numbers. Their payloads are parts of `bytes`.
struct Burst {
  static constexpr uint32_t kMost = 64;
  uint32_t count = 0;
  std::array<wire::Packet, kMost> packets;
  rdma::Buffer bytes;  // null: there is no payload

  wire::Packet& add() { return packets[count++] = {}; }
  // Of the first `of` packets.
  [[nodiscard]] uint64_t payload_bytes(uint32_t of) const {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < of; ++i) sum += packets[i].payload_length;
    return sum;
  }
  // Drops the first `sent` packets.
  void drop(uint32_t sent) {
    std::copy(packets.begin() + sent, packets.begin() + count, packets.begin());
    count -= sent;
  }
};
// Whether a request of that kind is answered by more than an acknowledgement: it needs one of the
// responder's resources (IBTA 9.7.5.1.1).
constexpr bool has_answer(verbs::Opcode opcode) {
  return opcode == verbs::Opcode::kRdmaRead || verbs::is_atomic(opcode) ||
         opcode == verbs::Opcode::kAtomicWrite;
}

// The most payload of a burst, and so the most that is read ahead of a message. With its headers it
// fits into one UDP datagram that is segmented.
constexpr uint32_t kSlice = 60u << 10;

// Of a device. Names as those of the kernel's hw_counters, where these have one.
struct Counters {
  // Requester.
  base::Counter packet_seq_err;         // NAKs: a request was lost
  base::Counter implied_nak_seq_err;    // an answer was lost
  base::Counter local_ack_timeout_err;  // timeouts
  base::Counter probes;                 // a packet was sent again after a short silence
  base::Counter rnr_nak_retry_err;      // RNR NAKs received
  base::Counter retransmitted;          // packets
  base::Counter kept_early;             // recoveries in which the peer had kept what followed
  base::Counter went_back;              // recoveries in which all that followed was sent again
  base::Counter req_remote_access_errors, req_remote_invalid_request, req_remote_operation_errors;
  base::Counter bad_response;  // a response that no request explains: ignored
  // Responder.
  base::Counter out_of_sequence;    // packets ahead of their turn
  base::Counter held;               // of these, kept
  base::Counter duplicate_request;  // packets
  base::Counter out_of_buffer;  // RNR NAKs sent; or, UC and UD, messages dropped for that reason
  base::Counter resp_invalid_request, resp_remote_access_errors, resp_operation_errors;
  base::Counter dropped_no_memory;  // packets for which no buffer was left
  base::Counter rx_write_requests, rx_read_requests, rx_atomic_requests;
  // Congestion: of the notification point (receiver) and of the reaction point (sender).
  base::Counter np_ecn_marked_roce_packets, np_cnp_sent, rp_cnp_handled;
  // Of a packet that reached the queue pair and was dropped before either side saw it.
  base::Counter bad_pkey, bad_qkey, bad_state, bad_service;
};

}  // namespace vrdma::transport::net
