// The kinds of resources that are limited for each vdevice.
//
// A total bounds the sum over the vdevice: objects, or bytes for mr_bytes. A per-object maximum
// bounds each object, as the corresponding field of ibv_device_attr does (max_cqe, max_qp_wr,
// max_srq_wr); its use is that of the largest existing object. A rate bounds what is done per
// second; its use is measured over about the last second, and the limit may be set below it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.h"

namespace vrdma::provisioning {

enum class Kind : uint8_t {
  kContexts,  // opened devices
  kPd,
  kMr,
  kMrBytes,  // sum of the lengths of all memory regions
  kCq,
  kCqe,  // per object: entries of a completion queue
  kQp,
  kSendWr,  // per object: depth of a send queue
  kRecvWr,  // per object: depth of a receive queue or of an SRQ
  kSrq,
  kAh,
  kMw,
  kConns,     // connections to the session socket, whether or not the vdevice was opened
  kConnRate,  // per second: connections accepted; others wait
  kReqRate,   // per second: requests read from sessions; others wait
  kCmIds,     // rdma_cm ids bound to the vdevice
  kCmConns,   // rdma_cm connections in any state, including TIMEWAIT
  kCmRate,    // per second: connection requests sent, and the same from each other tenant
  kCmEvents,  // rdma_cm events of these ids that programs have not read
  kCmEarly,   // connection requests that wait for their peer to listen
  kMrRate,    // per second: registrations of memory; others are answered later
  // Per second, counted after execution (Pace): bytes that work requests move (at most; and at
  // least, out of the ceilings of the tenant and the parent), and work requests.
  kBandwidth,
  kBandwidthMin,
  kMsgRate,
  kWorkerMemory,  // bytes of messages that a worker holds for the vdevice; others wait
  kCpu,           // percent of one processor: time that the daemon spends on the vdevice
};
constexpr size_t kKindCount = 26;

// One percent of a processor as a rate: nanoseconds per second.
constexpr uint64_t kCpuPercent = 10'000'000;

enum class Measure : uint8_t { kTotal, kPerObject, kRate };
enum class Unit : uint8_t { kCount, kBytes, kBytesPerSecond, kPercent };

struct KindTraits {
  std::string_view name;  // as on the command line: "mr_bytes"
  uint64_t least;         // the lowest limit with which something still works, or 0
  uint64_t initial;       // limit of a vdevice that does not set one
  uint64_t ceiling;       // the highest limit that the implementation supports
  Measure measure;
  Unit unit = Unit::kCount;
  [[nodiscard]] bool per_object() const { return measure == Measure::kPerObject; }
};

// A limit of each kind, in the order of Kind.
using Limits = std::array<uint64_t, kKindCount>;
[[nodiscard]] inline uint64_t& of(Limits& limits, Kind kind) {
  return limits[static_cast<size_t>(kind)];
}
[[nodiscard]] inline uint64_t of(const Limits& limits, Kind kind) {
  return limits[static_cast<size_t>(kind)];
}

[[nodiscard]] const KindTraits& traits(Kind kind);

// The ceiling of a budget for it is divided among the vdevices with work (Shares), so that their
// limits do not count against it.
[[nodiscard]] constexpr bool is_dealt(Kind kind) {
  return kind == Kind::kBandwidth || kind == Kind::kMsgRate || kind == Kind::kCpu;
}

// In the order of Kind.
[[nodiscard]] const std::vector<Kind>& all_kinds();

// The highest limits that the implementation supports.
[[nodiscard]] Limits ceilings();

[[nodiscard]] std::optional<Kind> find_kind(std::string_view name);

// "context, pd, mr, ..." for error messages.
[[nodiscard]] const std::string& kind_names();

// One limit to set. The name comes from an operator and is not checked yet.
struct Setting {
  std::string kind;
  uint64_t limit = 0;  // kCeiling: as high as the implementation supports
};
constexpr uint64_t kCeiling = UINT64_MAX;

// Converts settings to limits; kinds that are not listed are absent. EINVAL with a sentence for an
// unknown kind (the sentence lists all kinds), a duplicate, a limit above the ceiling or too low.
using Wanted = std::array<std::optional<uint64_t>, kKindCount>;
[[nodiscard]] base::Result<Wanted> understand(const std::vector<Setting>& settings);

// settings := "" | setting *("," setting)
// setting  := kind "=" (number [unit] | "max")        number: digits, also with a fraction; either
// case unit     := k|m|g|t                 powers of 1024
//           | [k|m|g|t]["i"]"b"       of bytes: the same
//           | [k|m|g|t]"bit"          of bytes per second: powers of 1000, as tc(8)
//           | "%"                     of a percentage
//
// EINVAL with a sentence for malformed text, a number beyond 64 bits or that is not whole, or a
// duplicate. Kinds are checked by Ledger::set_limits(); an unknown one is taken for a count.
[[nodiscard]] base::Result<std::vector<Setting>> parse_settings(std::string_view text);

// The kinds by unit, with an example of each: for people.
[[nodiscard]] std::string help_on_kinds();

}  // namespace vrdma::provisioning
