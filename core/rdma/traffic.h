// How much a device's queue pairs did, counted once by who did it.
//
// What a worker carries out the worker counts. What a program executes by itself on a direct link
// it counts in the queue pair's block, without an atomic operation, in a cache line that it writes
// anyway; the daemon reads that when an operator asks, and once more before the block goes. Such a
// number is the program's word: it is believed as far as it only grows, and by no more than a
// machine could do in the time.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>

#include "core/base/counter.h"
#include "core/ipc/layout.h"
#include "core/verbs/types.h"

namespace vrdma::rdma {

// Work requests that succeeded, and the bytes that they moved.
struct Traffic {
  base::Counter requests;
  base::Counter bytes;
};

// What crossed the port, as an adapter counts it: a request is a packet that carries its bytes, or
// of a READ and an atomic, none, and then the answer is a packet that does.
struct PortTraffic {
  struct Way {
    base::Counter unicast, multicast;  // packets
    base::Counter bytes;
    // Two words, so that a reader of another thread sees neither number fall.
    [[nodiscard]] uint64_t packets() const { return unicast + multicast; }
  };
  Way sent, received;

  void send(uint64_t bytes, bool multicast = false) { add(sent, bytes, multicast); }
  void receive(uint64_t bytes, bool multicast = false) { add(received, bytes, multicast); }
  // `all` requests, of which `reads` bring their bytes to the requester: at that end, and at the
  // other one, if that is known.
  static void exchange(PortTraffic& requester, PortTraffic* responder, const Traffic& all,
                       const Traffic& reads) {
    const auto add = [&](Way& there, Way& back) {
      there.unicast += all.requests;
      there.bytes += all.bytes - reads.bytes;
      back.unicast += reads.requests;
      back.bytes += reads.bytes;
    };
    add(requester.sent, requester.received);
    if (responder != nullptr) add(responder->received, responder->sent);
  }

 private:
  static void add(Way& way, uint64_t bytes, bool multicast) {
    ++(multicast ? way.multicast : way.unicast);
    way.bytes += bytes;
  }
};

struct TrafficCounters {
  static constexpr size_t kStatuses = 24;  // verbs::WcStatus and more

  Traffic direct;                               // RC, UC: by the programs
  Traffic connected;                            // RC, UC, XRC: by a worker
  Traffic datagram;                             // UD
  Traffic packet;                               // raw packets
  std::array<base::Counter, kStatuses> failed;  // by a worker, by status
  PortTraffic port;

  // A request of a queue pair of `type` was carried out by the worker.
  void count(verbs::QpType type, uint64_t bytes) {
    Traffic& traffic = type == verbs::QpType::kUd || type == verbs::QpType::kGsi ? datagram
                       : type == verbs::QpType::kRawPacket                       ? packet
                                                                                 : connected;
    ++traffic.requests;
    traffic.bytes += bytes;
  }
  void count_failed(verbs::WcStatus status) { ++failed[static_cast<size_t>(status) % kStatuses]; }
};

// What a device has and does. The thread of its fabric writes it, any thread reads it.
struct DeviceCounters {
  TrafficCounters traffic;
  base::Counter contexts;
  std::array<base::Counter, 7> qps;            // by verbs::QpState
  base::Counter links_direct, links_mediated;  // queue pairs that send so

  [[nodiscard]] base::Counter& of(verbs::QpState state) {
    return qps[std::min<size_t>(static_cast<size_t>(state), qps.size() - 1)];
  }
};

// What was refused or dropped in a fabric; never reset.
struct FabricCounters {
  base::Counter datagrams_dropped;
  base::Counter rings_corrupt;
  base::Counter requests_in_doubt;  // failed because their worker died in the middle
};

// What was seen last of one queue pair's own count.
class DirectCount {
 public:
  using Clock = std::chrono::steady_clock;

  // Begins with what stands there.
  void begin(const ipc::QpBlock& block, Clock::time_point now) {
    requests_ = block.direct_requests.load(std::memory_order_relaxed);
    bytes_ = block.direct_bytes.load(std::memory_order_relaxed);
    reads_ = block.direct_reads.load(std::memory_order_relaxed);
    read_bytes_ = block.direct_read_bytes.load(std::memory_order_relaxed);
    looked_ = now;
  }
  struct Growth {
    Traffic all, reads;  // the second of the first
  };
  // What came since.
  Growth collect(const ipc::QpBlock& block, Clock::time_point now) {
    constexpr uint64_t kBytesPerNs = 1000;
    const auto ns = static_cast<uint64_t>(std::max<int64_t>((now - looked_).count(), 0));
    const uint64_t most_bytes = ns < UINT64_MAX / kBytesPerNs ? ns * kBytesPerNs : UINT64_MAX;
    looked_ = now;
    Growth since;
    since.all.requests = growth(block.direct_requests, &requests_, ns);
    since.all.bytes = growth(block.direct_bytes, &bytes_, most_bytes);
    since.reads.requests = growth(block.direct_reads, &reads_, since.all.requests);
    since.reads.bytes = growth(block.direct_read_bytes, &read_bytes_, since.all.bytes);
    return since;
  }

 private:
  // Of a count that went back there is none.
  static uint64_t growth(const std::atomic<uint64_t>& count, uint64_t* seen, uint64_t most) {
    const uint64_t value = count.load(std::memory_order_relaxed);
    const uint64_t before = *seen;
    *seen = value;
    return value > before ? std::min(value - before, most) : 0;
  }

  uint64_t requests_ = 0, bytes_ = 0, reads_ = 0, read_bytes_ = 0;
  Clock::time_point looked_{};
};

}  // namespace vrdma::rdma
