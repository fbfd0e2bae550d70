#include "provisioning/kind.h"

#include <array>
#include <cctype>
#include <charconv>

namespace vrdma::provisioning {

namespace {

constexpr uint64_t kKi = 1024;
constexpr uint64_t kAnyBandwidth = uint64_t{1} << 40;
constexpr uint64_t kAllProcessors = 100 * kKi;

// The ceilings of queues, keys and depths are the sizes of the tables shared by programs and
// workers. The defaults let perftest, UCX and MPI run with dozens of peers.
constexpr std::array<KindTraits, kKindCount> kTraits{{
    {"context", 1 * kKi, 64 * kKi, Measure::kTotal},
    {"pd", 1 * kKi, 64 * kKi, Measure::kTotal},
    {"mr", 128 * kKi, 1024 * kKi, Measure::kTotal},
    {"mr_bytes", uint64_t{16} << 30, uint64_t{1} << 47, Measure::kTotal},
    {"cq", 2 * kKi, 64 * kKi, Measure::kTotal},
    {"cqe", 1024 * kKi, 4096 * kKi, Measure::kPerObject},
    {"qp", 1 * kKi, 64 * kKi, Measure::kTotal},
    {"send_wr", 16 * kKi, 32 * kKi, Measure::kPerObject},
    {"recv_wr", 16 * kKi, 32 * kKi, Measure::kPerObject},
    {"srq", 1 * kKi, 64 * kKi, Measure::kTotal},
    {"ah", 16 * kKi, 1024 * kKi, Measure::kTotal},
    {"mw", 4 * kKi, 1024 * kKi, Measure::kTotal},
    {"conns", 2 * kKi, 128 * kKi, Measure::kTotal},
    {"conn_rate", 2'000, 1'000'000, Measure::kRate},
    {"req_rate", 200'000, 1'000'000'000, Measure::kRate},
    {"cm_ids", 64 * kKi, 1024 * kKi, Measure::kTotal},
    {"cm_conns", 64 * kKi, 1024 * kKi, Measure::kTotal},
    {"cm_rate", 50'000, 1'000'000, Measure::kRate},
    {"cm_events", 64 * kKi, 1024 * kKi, Measure::kTotal},
    {"cm_early", 2 * kKi, 16 * kKi, Measure::kTotal},
    {"mr_rate", 1'000'000, 1'000'000, Measure::kRate},
    {"bandwidth", kAnyBandwidth, kAnyBandwidth, Measure::kRate},
    {"bandwidth_min", 0, kAnyBandwidth, Measure::kRate},
    {"msg_rate", 1'000'000'000, 1'000'000'000, Measure::kRate},
    {"worker_memory", uint64_t{64} << 20, uint64_t{1} << 40, Measure::kTotal},
    {"cpu", kAllProcessors, kAllProcessors, Measure::kRate},
}};
static_assert(kTraits[static_cast<size_t>(Kind::kCpu)].name == "cpu");

std::string quoted(std::string_view text) { return std::string("'").append(text).append("'"); }

base::Result<uint64_t> parse_limit(std::string_view text) {
  if (text == "max") return kCeiling;
  uint64_t number = 0;
  const char* const last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), last, number);
  if (error == std::errc::result_out_of_range)
    return base::fail(EINVAL, quoted(text) + " is beyond 64 bits");
  if (error == std::errc() && end == last) return number;
  static constexpr std::string_view kSuffixes = "kmgt";
  const size_t power =
      error == std::errc() && end + 1 == last
          ? kSuffixes.find(static_cast<char>(std::tolower(static_cast<unsigned char>(*end))))
          : std::string_view::npos;
  if (power == std::string_view::npos)
    return base::fail(EINVAL, quoted(text) + " is not a number such as 64, 16k or max");
  const auto shift = 10 * (power + 1);
  if (number > UINT64_MAX >> shift) return base::fail(EINVAL, quoted(text) + " is beyond 64 bits");
  return number << shift;
}

}  // namespace

const KindTraits& traits(Kind kind) { return kTraits[static_cast<size_t>(kind)]; }

const std::vector<Kind>& all_kinds() {
  static const auto kinds = [] {
    std::vector<Kind> made;
    for (size_t i = 0; i < kKindCount; ++i) made.push_back(static_cast<Kind>(i));
    return made;
  }();
  return kinds;
}

Limits ceilings() {
  Limits limits{};
  for (const Kind kind : all_kinds()) of(limits, kind) = traits(kind).ceiling;
  return limits;
}

std::optional<Kind> find_kind(std::string_view name) {
  for (const Kind kind : all_kinds())
    if (traits(kind).name == name) return kind;
  return std::nullopt;
}

const std::string& kind_names() {
  static const auto names = [] {
    std::string made;
    for (const Kind kind : all_kinds()) {
      if (!made.empty()) made += ", ";
      made += traits(kind).name;
    }
    return made;
  }();
  return names;
}

base::Result<Wanted> understand(const std::vector<Setting>& settings) {
  Wanted wanted;
  for (const auto& setting : settings) {
    const auto kind = find_kind(setting.kind);
    if (!kind)
      return base::fail(EINVAL,
                        "there is no quota kind '" + setting.kind + "'; there are " + kind_names());
    const std::string what = "quota " + setting.kind;
    auto& slot = wanted[static_cast<size_t>(*kind)];
    if (slot) return base::fail(EINVAL, what + " is named twice");
    const uint64_t ceiling = traits(*kind).ceiling;
    slot = setting.limit == kCeiling ? ceiling : setting.limit;
    if (*slot > ceiling)
      return base::fail(EINVAL, what + ": " + std::to_string(*slot) + " is above the maximum, " +
                                    std::to_string(ceiling));
    if (*slot == 0 &&
        (*kind == Kind::kConnRate || *kind == Kind::kReqRate || *kind == Kind::kMrRate ||
         *kind == Kind::kBandwidth || *kind == Kind::kMsgRate || *kind == Kind::kWorkerMemory ||
         *kind == Kind::kCpu))
      return base::fail(EINVAL, what + ": 0 would block everything; the minimum is 1");
  }
  return wanted;
}

base::Result<std::vector<Setting>> parse_settings(std::string_view text) {
  std::vector<Setting> settings;
  if (text.empty()) return settings;
  for (;;) {
    const auto comma = text.find(',');
    const std::string_view setting = text.substr(0, comma);
    const auto equals = setting.find('=');
    if (equals == std::string_view::npos || equals == 0)
      return base::fail(EINVAL, quoted(setting) + " is not a quota such as qp=64");
    const std::string kind(setting.substr(0, equals));
    for (const auto& earlier : settings)
      if (earlier.kind == kind) return base::fail(EINVAL, "quota " + kind + " is named twice");
    auto limit = parse_limit(setting.substr(equals + 1));
    if (!limit) return base::pass(std::move(limit).error(), "quota " + kind);
    settings.push_back({kind, *limit});
    if (comma == std::string_view::npos) return settings;
    text.remove_prefix(comma + 1);
  }
}

}  // namespace vrdma::provisioning
