// The kinds of things that a vdevice may use only so many of.
//
// A total bounds the sum over the vdevice: objects, or bytes for mr_bytes. A per-object maximum
// bounds each object alone, as the fields of ibv_device_attr it is reported in do (max_cqe,
// max_qp_wr, max_srq_wr); its use is that of the largest object there is now. A rate bounds what
// is done a second; its use is what was done in about the last one, and it may be set below that.
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
  kConns,     // connections to the session socket, of programs that have opened the vdevice or not
  kConnRate,  // a second: connections that are accepted; more wait
  kReqRate,   // a second: requests that are read from sessions; more are read later
  kCmIds,     // ids of rdma_cm that are bound to the vdevice
  kCmConns,   // connections in any state, TIMEWAIT included
  kCmRate,    // a second: connection requests that are sent, and as many from each other tenant
  kCmEvents,  // events of rdma_cm about these ids that the programs have not read
  kCmEarly,   // connection requests that wait for their peer to listen
  kMrRate,    // a second: registrations of memory; more are answered later
  // A second, of what it has carried out (Pace): bytes that work requests move, at most and, out of
  // what the tenant and the parent have, at least; and work requests.
  kBandwidth,
  kBandwidthMin,
  kMsgRate,
  kWorkerMemory,  // bytes of messages that a worker has in hand for the vdevice; more wait
  kCpu,           // percent of one processor: the daemon's time for what the vdevice wants of it
};
constexpr size_t kKindCount = 26;

// One percent of a processor, as a rate: nanoseconds a second.
constexpr uint64_t kCpuPercent = 10'000'000;

enum class Measure : uint8_t { kTotal, kPerObject, kRate };

struct KindTraits {
  std::string_view name;  // as on the command line: "mr_bytes"
  uint64_t initial;       // the limit of a vdevice for which none was set
  uint64_t ceiling;       // what the implementation can do at all
  Measure measure;
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

// In the order of Kind.
[[nodiscard]] const std::vector<Kind>& all_kinds();

[[nodiscard]] std::optional<Kind> find_kind(std::string_view name);

// "context, pd, mr, ..." for sentences.
[[nodiscard]] const std::string& kind_names();

// One limit to be set. The name is as given by an operator and not yet checked.
struct Setting {
  std::string kind;
  uint64_t limit = 0;  // kCeiling: as much as the implementation can do
};
constexpr uint64_t kCeiling = UINT64_MAX;

// The settings as limits; those not named are absent. EINVAL with a sentence for a kind that does
// not exist (the sentence lists those that do), one named twice, a limit above the ceiling, or a
// rate of nothing.
using Wanted = std::array<std::optional<uint64_t>, kKindCount>;
[[nodiscard]] base::Result<Wanted> understand(const std::vector<Setting>& settings);

// settings := "" | setting *("," setting)
// setting  := kind "=" (digits [k|m|g|t] | "max")     suffixes are powers of 1024, either case
//
// EINVAL with a sentence for what does not fit, is beyond 64 bits, or names a kind twice. Whether
// the kinds exist is for Ledger::set_limits() to say.
[[nodiscard]] base::Result<std::vector<Setting>> parse_settings(std::string_view text);

}  // namespace vrdma::provisioning
