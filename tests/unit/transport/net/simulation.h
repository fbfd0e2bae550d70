// Two ends of a connection on a simulated network: a clock that only the test moves, and a wire in
// memory that loses, doubles, delays and damages packets by a seed.
//
// Packets go as bytes, with their ICRC, so a damaged one is dropped as a transport does it. The
// "memory" of an end is a vector; what it answers can be delayed, as that of reached memory is.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "core/wire/icrc.h"
#include "transport/net/requester.h"
#include "transport/net/responder.h"

namespace vrdma::transport::net {

using Blob = std::vector<uint8_t>;
using Frame = std::vector<uint8_t>;

constexpr uint64_t kMemoryAt = 0x10000;
constexpr uint32_t kKey = 0x1234;
constexpr uint32_t kWrongKey = 0x4321;

// A packet from its BTH to its ICRC, in an IPv4 packet that is not there.
inline wire::Icrc icrc_of(const wire::Bth& bth, size_t size) {
  wire::Ipv4Header ip{};
  ip.version_and_words = wire::kIpv4NoOptions;
  ip.total_length = static_cast<uint16_t>(size + sizeof ip + sizeof(wire::UdpHeader));
  ip.protocol = wire::kProtocolUdp;
  wire::UdpHeader udp{};
  udp.destination = wire::kRocePort;
  udp.length = static_cast<uint16_t>(size + sizeof udp);
  return {ip, udp, bth};
}
inline void seal(Frame& frame) {
  wire::Bth bth;
  std::memcpy(&bth, frame.data(), sizeof bth);
  wire::Icrc icrc = icrc_of(bth, frame.size());
  icrc.add(frame.data() + sizeof bth, frame.size() - sizeof bth - wire::kIcrcBytes);
  icrc.write(&frame[frame.size() - wire::kIcrcBytes]);
}
inline bool is_sealed(const Frame& frame) {
  Frame copy = frame;
  seal(copy);
  return copy == frame;
}
inline Frame frame_of(const wire::Packet& packet) {
  Frame frame(wire::packet_bytes(packet));
  const size_t headers = wire::encode(packet, frame.data());
  if (packet.payload_length > 0)
    std::memcpy(&frame[headers], packet.payload, packet.payload_length);
  seal(frame);
  return frame;
}

class Simulation {
 public:
  explicit Simulation(uint64_t seed = 1) : random(seed) {}

  void at(base::TimePoint when, std::function<void()> what) {
    events_.emplace(when, std::move(what));
  }
  void after(base::Duration delay, std::function<void()> what) { at(now + delay, std::move(what)); }
  // The next thing happens. False: nothing is going to.
  bool step() {
    if (events_.empty()) return false;
    const auto first = events_.begin();
    now = std::max(now, first->first);
    const auto what = std::move(first->second);
    events_.erase(first);
    what();
    return true;
  }
  bool chance(double of) { return std::uniform_real_distribution<>(0, 1)(random) < of; }
  uint32_t below(uint32_t end) { return static_cast<uint32_t>(random() % end); }

  base::TimePoint now = base::TimePoint(std::chrono::seconds(1));
  std::mt19937_64 random;

 private:
  std::multimap<base::TimePoint, std::function<void()>> events_;
};

struct Conditions {
  double loss = 0, twice = 0, late = 0, damage = 0;
  uint32_t lost_at_once = 1;  // packets, as where a network loses bursts whole
  base::Duration latency = std::chrono::microseconds(20);
  double bytes_per_ns = 1.25;  // 10 Gbit/s
};

// One direction.
struct Way {
  Conditions conditions;
  std::function<bool(const wire::Packet&)> drops = nullptr;  // a packet that the test chose
  std::function<void(const wire::Packet&)> arrives;
  base::TimePoint free_at{};
  uint64_t packets = 0, bytes = 0;
  uint32_t lost = 0;  // of those that come

  void send(Simulation& simulation, const wire::Packet& packet) {
    Frame frame = frame_of(packet);
    ++packets;
    bytes += frame.size();
    constexpr double kOverhead = 14 + 20 + 8 + 4 + 20;
    const auto takes = base::Duration(static_cast<int64_t>(
        (static_cast<double>(frame.size()) + kOverhead) / conditions.bytes_per_ns));
    free_at = std::max(free_at, simulation.now) + takes;
    if (drops && drops(packet)) return;
    if (lost > 0 || simulation.chance(conditions.loss)) {
      lost = (lost > 0 ? lost : conditions.lost_at_once) - 1;
      return;
    }
    if (simulation.chance(conditions.damage))
      frame[simulation.below(static_cast<uint32_t>(frame.size()))] ^=
          static_cast<uint8_t>(1u << simulation.below(8));
    for (int copies = simulation.chance(conditions.twice) ? 2 : 1; copies > 0; --copies) {
      base::TimePoint when = free_at + conditions.latency;
      if (simulation.chance(conditions.late)) when += base::Duration(simulation.below(100'000));
      simulation.at(when, [this, frame] {
        const auto decoded = is_sealed(frame) ? wire::decode(frame) : std::nullopt;
        if (decoded) arrives(*decoded);
      });
    }
  }
};

struct Completion {
  uint32_t number;
  verbs::WcStatus status;
  uint32_t byte_len;
  bool operator==(const Completion&) const = default;
};

struct Received {
  Blob bytes;
  verbs::Opcode opcode;
  uint32_t imm;
  bool solicited;
};

// An end can be killed at any moment, as its process, and go on in the next process from what it
// kept: restart(). What it keeps, and in which order, is what sender.h does with notes.
class End final : public Requester::Memory, public Responder::Target {
 public:
  struct Killed {  // thrown
    End* end;
  };

  End(Simulation& sim, const Attributes& with)
      : simulation(sim),
        attributes(with),
        requester(attributes, *this, counters),
        responder(attributes, *this, counters) {}

  void restart() {
    ++life_;
    watched_.reset();
    changing_ = false;
    std::destroy_at(&requester);
    std::construct_at(&requester, attributes, *this, counters);
    std::destroy_at(&responder);
    std::construct_at(&responder, attributes, *this, counters);
    if (kept_received_) {
      responder.restore(kept_received_->record, kept_received_->resources);
      take_step();
    }
    first_ = completions.size();
    if (kept_sent_) {
      requester.restore(kept_sent_->record);
      for (first_ = kept_sent_->completed; completions.size() < first_;)
        completions.push_back(success_of(completions.size()));
    }
    while (posted.size() > first_) {
      queue.push_front(std::move(posted.back()));
      posted.pop_back();
    }
    while (requester.lacks_requests()) post_next();
    responder.resume();
    pump();
  }

  struct Posted {
    Request request;
    Blob bytes;  // to be sent, or that came
  };

  void post(Request request, Blob bytes) {
    request.length = bytes.size();
    queue.push_back({request, std::move(bytes)});
    pump();
  }
  // Sends all that there is to send.
  void pump() {
    Burst burst;
    bool more = true;
    while (more) {
      more = responder.next(&burst) || next_request(&burst);
      if (burst.count > 0) {
        moment();
        keep_sent(completions.size());
        moment();
        keep_received();
      }
      for (uint32_t i = 0; i < burst.count; ++i) {
        moment();
        way->send(simulation, burst.packets[i]);
      }
    }
    watch();
  }
  void arrive(const wire::Packet& packet) {
    if (wire::info(packet.operation).family == wire::OperationInfo::Family::kResponse)
      requester.receive(packet, simulation.now);
    else
      responder.receive(packet);
    pump();
  }

  // Requester::Memory.
  Access gather(uint32_t number, uint64_t offset, uint32_t length, rdma::Buffer* bytes) override {
    const Blob& all = at(number).bytes;
    if (fail_gather_at && number == *fail_gather_at) return Access::kFailed;
    auto part = std::make_shared<std::vector<uint8_t>>(
        all.begin() + static_cast<ptrdiff_t>(offset),
        all.begin() + static_cast<ptrdiff_t>(offset + length));
    if (!is_slow()) {
      *bytes = part;
      return Access::kDone;
    }
    after([this, part] {
      requester.gathered(part);
      pump();
    });
    return Access::kPending;
  }
  Access scatter(uint32_t number, uint64_t offset, const uint8_t* bytes, uint32_t length) override {
    if (fail_scatter) return Access::kFailed;
    const Blob part(bytes, bytes + length);
    const auto store = [this, number, offset, part] {
      std::memcpy(&at(number).bytes.at(offset), part.data(), part.size());
    };
    if (hang_scatter) return Access::kPending;
    if (!is_slow()) return store(), Access::kDone;
    after([this, number, offset, store] {
      store();
      requester.scattered(number, offset, true);
      pump();
    });
    return Access::kPending;
  }
  void complete(uint32_t number, verbs::WcStatus status, uint32_t byte_len) override {
    if (status == verbs::WcStatus::kSuccess) keep_sent(completions.size() + 1);
    moment();
    completions.push_back({number + static_cast<uint32_t>(first_), status, byte_len});
    moment();
  }

  // Responder::Target.
  Verdict place(const PeerRequest& message, uint64_t offset,
                std::span<const Responder::Bytes> parts, bool last) override {
    Blob bytes;
    for (const auto& part : parts) bytes.insert(bytes.end(), part.begin(), part.end());
    const Verdict verdict = admit(message, offset, bytes.size());
    if (verdict != Verdict::kDone) return verdict;
    const auto store = [this, message, offset, bytes, last] {
      if (verbs::is_write(message.opcode) && !bytes.empty())
        std::memcpy(&memory.at(message.remote_addr - kMemoryAt + offset), bytes.data(),
                    bytes.size());
      if (verbs::is_send(message.opcode)) {
        coming.resize(offset);
        coming.insert(coming.end(), bytes.begin(), bytes.end());
      }
      moment();
      if (!last || !verbs::consumes_receive(message.opcode)) return;
      keep_step({received.size(),
                 {std::exchange(coming, {}), message.opcode, message.imm, message.solicited},
                 0,
                 0,
                 0});
      moment();
      take_step();
      moment();
    };
    if (!is_slow()) return store(), Verdict::kDone;
    after([this, store] {
      store();
      responder.placed(Verdict::kDone);
      pump();
    });
    return Verdict::kPending;
  }
  Verdict change(const PeerRequest& atomic, uint64_t* original) override {
    if (atomic.rkey != kKey || !is_inside(atomic)) return Verdict::kRemoteAccess;
    if (atomic.remote_addr % 8 != 0) return Verdict::kInvalidRequest;
    uint8_t* const at = &memory.at(atomic.remote_addr - kMemoryAt);
    std::memcpy(original, at, sizeof *original);
    const uint64_t changed = atomic.opcode == verbs::Opcode::kFetchAdd
                                 ? *original + atomic.compare_add
                             : *original == atomic.compare_add ? atomic.swap
                                                               : *original;
    moment();
    keep_step({SIZE_MAX, {}, atomic.remote_addr, *original, changed});
    moment();
    std::memcpy(at, &changed, sizeof changed);
    moment();
    kept_received_->step.addr = 0;  // it is over
    if (!is_slow()) return Verdict::kDone;
    changing_ = true;
    after([this, was = *original] {
      changing_ = false;
      responder.placed(Verdict::kDone, was);
      pump();
    });
    return Verdict::kPending;
  }
  Verdict check(const PeerRequest& read) override { return admit(read, 0, read.length); }
  Verdict bring(const PeerRequest& read, uint64_t offset, uint32_t length, bool /*again*/,
                rdma::Buffer* bytes) override {
    if (revoked) return Verdict::kRemoteAccess;
    const auto from =
        memory.begin() + static_cast<ptrdiff_t>(read.remote_addr - kMemoryAt + offset);
    auto part = std::make_shared<std::vector<uint8_t>>(from, from + length);
    if (!is_slow()) {
      *bytes = part;
      return Verdict::kDone;
    }
    after([this, part] {
      responder.brought(Verdict::kDone, part);
      pump();
    });
    return Verdict::kPending;
  }
  void broken() override { ++was_broken; }
  void forget() override {
    ++forgotten;
    coming.clear();
  }
  rdma::Buffer hold(size_t length) override {
    return no_buffers ? nullptr : std::make_shared<std::vector<uint8_t>>(length);
  }

  void post_receives(size_t count, size_t capacity = 1u << 24) {
    receives.insert(receives.end(), count, capacity);
    responder.resume();
    pump();
  }

  Simulation& simulation;
  Counters counters;
  Attributes attributes;
  Requester requester;
  Responder responder;
  Way* way = nullptr;
  std::deque<Posted> queue;    // not given to the requester yet
  std::vector<Posted> posted;  // by number
  std::vector<Completion> completions;
  Blob memory = Blob(1u << 20);
  std::deque<size_t> receives;  // their capacities
  std::vector<Received> received;
  Blob coming;
  double slow = 0;  // the part of accesses that is answered later
  bool fail_scatter = false, hang_scatter = false, revoked = false, no_buffers = false;
  std::optional<uint32_t> fail_gather_at;
  int forgotten = 0, was_broken = 0;
  int kill_after = -1;  // moments; negative: never

 private:
  struct Step {                // that others notice
    size_t number = SIZE_MAX;  // of a message
    Received message;
    uint64_t addr = 0;  // of an operand
    uint64_t was = 0, becomes = 0;
  };
  struct KeptSent {
    Requester::Record record;
    size_t completed = 0;
  };
  struct KeptReceived {
    Responder::Record record;
    std::vector<Responder::Resource> resources;
    Step step;
  };
  void moment() {
    if (kill_after >= 0 && kill_after-- == 0) throw Killed{this};
  }
  void keep_sent(size_t completed) { kept_sent_ = {requester.record(), completed}; }
  void keep_received() {
    if (changing_) return;  // what is kept is ahead
    const auto& all = responder.resources();
    kept_received_ = {responder.record(), {all.begin(), all.end()}, {}};
  }
  void keep_step(Step step) {
    const auto& all = responder.resources();
    KeptReceived kept{responder.record_when_placed(), {all.begin(), all.end()}, std::move(step)};
    if (kept.record.resources > kept.resources.size())
      kept.resources.push_back(responder.resource_when_placed(kept.step.was));
    kept_received_ = std::move(kept);
  }
  void take_step() {
    const Step& step = kept_received_->step;
    if (step.number == received.size()) {
      receives.pop_front();
      received.push_back(step.message);
    }
    if (step.addr != 0)
      if (uint8_t* const word = &memory.at(step.addr - kMemoryAt);
          std::memcmp(word, &step.was, sizeof step.was) == 0)
        std::memcpy(word, &step.becomes, sizeof step.becomes);
  }
  Posted& at(uint32_t number) { return posted.at(number + first_); }
  [[nodiscard]] Completion success_of(size_t index) const {
    const Request& request = posted.at(index).request;
    const bool answers =
        request.opcode == verbs::Opcode::kRdmaRead || verbs::is_atomic(request.opcode);
    return {static_cast<uint32_t>(index), verbs::WcStatus::kSuccess,
            answers ? static_cast<uint32_t>(request.length) : 0};
  }
  // In this life, when an access that is slow is over.
  void after(std::function<void()> what) {
    simulation.after(slowness(), [this, life = life_, what = std::move(what)] {
      if (life == life_) what();
    });
  }
  void post_next() {
    posted.push_back(std::move(queue.front()));
    queue.pop_front();
    requester.post(posted.back().request);
  }
  bool next_request(Burst* burst) {
    while (requester.wants_request() && !queue.empty()) post_next();
    return requester.next(burst, simulation.now);
  }
  [[nodiscard]] bool is_inside(const PeerRequest& message) const {
    const uint64_t at = message.remote_addr - kMemoryAt;
    return message.remote_addr >= kMemoryAt && at <= memory.size() &&
           message.length <= memory.size() - at;
  }
  Verdict admit(const PeerRequest& message, uint64_t offset, uint64_t length) const {
    const bool names =
        verbs::is_write(message.opcode) || message.opcode == verbs::Opcode::kRdmaRead;
    if (names && message.length > 0 && (message.rkey != kKey || !is_inside(message)))
      return Verdict::kRemoteAccess;
    if (names && offset + length > message.length) return Verdict::kInvalidRequest;
    if (!verbs::consumes_receive(message.opcode)) return Verdict::kDone;
    if (receives.empty()) return Verdict::kNoReceive;
    return verbs::is_send(message.opcode) && offset + length > receives.front()
               ? Verdict::kInvalidRequest
               : Verdict::kDone;
  }
  bool is_slow() { return slow > 0 && simulation.chance(slow); }
  base::Duration slowness() { return std::chrono::microseconds(1 + simulation.below(200)); }
  void watch() {
    const auto deadline = requester.deadline();
    if (!deadline || (watched_ && *watched_ <= *deadline)) return;
    watched_ = deadline;
    simulation.at(*deadline, [this, when = *deadline, life = life_] {
      if (watched_ != when || life != life_) return;
      watched_.reset();
      requester.tick(simulation.now);
      pump();
    });
  }

  std::optional<base::TimePoint> watched_;
  int life_ = 0;
  bool changing_ = false;
  size_t first_ = 0;  // the request that is number 0 of this life's requester
  std::optional<KeptSent> kept_sent_;
  std::optional<KeptReceived> kept_received_;
};

inline Attributes default_attributes() {
  Attributes attributes;
  attributes.dest_qpn = 0x11;
  attributes.sq_psn = 0xfffff0;  // it wraps soon
  attributes.rq_psn = 0xfffff0;
  attributes.max_rd_atomic = attributes.max_dest_rd_atomic = 4;
  return attributes;
}

// `a` sends requests to `b`; both may.
struct Connection {
  explicit Connection(const Attributes& attributes = default_attributes(), uint64_t seed = 1)
      : Connection(attributes, attributes, seed) {}
  Connection(const Attributes& a_attributes, const Attributes& b_attributes, uint64_t seed)
      : simulation(seed), a(simulation, a_attributes), b(simulation, b_attributes) {
    a.way = &to_b;
    b.way = &to_a;
    to_b.arrives = [this](const wire::Packet& packet) { b.arrive(packet); };
    to_a.arrives = [this](const wire::Packet& packet) { a.arrive(packet); };
  }
  void set(const Conditions& conditions) { to_a.conditions = to_b.conditions = conditions; }
  // Until `count` requests of `a` are complete, or nothing happens for a long time.
  bool run(size_t count, base::Duration longest = std::chrono::seconds(20)) {
    const base::TimePoint end = simulation.now + longest;
    while (a.completions.size() < count && simulation.now < end && simulation.step()) {
    }
    return a.completions.size() >= count;
  }
  void settle() {
    while (simulation.step()) {
    }
  }

  Simulation simulation;
  Way to_a, to_b;
  End a, b;
};

inline Request write_to(uint64_t offset, uint32_t key = kKey) {
  Request request;
  request.opcode = verbs::Opcode::kRdmaWrite;
  request.remote_addr = kMemoryAt + offset;
  request.rkey = key;
  return request;
}
inline Request read_from(uint64_t offset, uint32_t key = kKey) {
  Request request = write_to(offset, key);
  request.opcode = verbs::Opcode::kRdmaRead;
  return request;
}
inline Request add_to(uint64_t offset, uint64_t value) {
  Request request = write_to(offset);
  request.opcode = verbs::Opcode::kFetchAdd;
  request.compare_add = value;
  return request;
}
inline Request send(verbs::Opcode opcode = verbs::Opcode::kSend, uint32_t imm = 0) {
  Request request;
  request.opcode = opcode;
  request.imm = imm;
  return request;
}
inline Blob pattern(size_t size, uint32_t seed = 0) {
  Blob bytes(size);
  for (size_t i = 0; i < size; ++i)
    bytes[i] = static_cast<uint8_t>((i * 2654435761u + seed * 40503u) >> 13);
  return bytes;
}

}  // namespace vrdma::transport::net
