#include "provisioning/kind.h"

#include <algorithm>
#include <array>
#include <cctype>

#include "core/base/nearest.h"

namespace vrdma::provisioning {

namespace {

constexpr uint64_t kKi = 1024;
constexpr uint64_t kAnyBandwidth = uint64_t{1} << 40;
constexpr uint64_t kAllProcessors = 100 * kKi;

// The ceilings of queues, keys and depths are the sizes of the tables shared by programs and
// workers. The defaults let perftest, UCX and MPI run with dozens of peers.
constexpr std::array<KindTraits, kKindCount> kTraits{{
    {"context", 0, 1 * kKi, 64 * kKi, Measure::kTotal},
    {"pd", 0, 1 * kKi, 64 * kKi, Measure::kTotal},
    {"mr", 0, 128 * kKi, 1024 * kKi, Measure::kTotal},
    {"mr_bytes", 0, uint64_t{16} << 30, uint64_t{1} << 47, Measure::kTotal, Unit::kBytes},
    {"cq", 0, 2 * kKi, 64 * kKi, Measure::kTotal},
    {"cqe", 0, 1024 * kKi, 4096 * kKi, Measure::kPerObject},
    {"qp", 0, 1 * kKi, 64 * kKi, Measure::kTotal},
    {"send_wr", 0, 16 * kKi, 32 * kKi, Measure::kPerObject},
    {"recv_wr", 0, 16 * kKi, 32 * kKi, Measure::kPerObject},
    {"srq", 0, 1 * kKi, 64 * kKi, Measure::kTotal},
    {"ah", 0, 16 * kKi, 1024 * kKi, Measure::kTotal},
    {"mw", 0, 4 * kKi, 1024 * kKi, Measure::kTotal},
    {"conns", 0, 2 * kKi, 128 * kKi, Measure::kTotal},
    {"conn_rate", 1, 2'000, 1'000'000, Measure::kRate},
    {"req_rate", 1, 200'000, 1'000'000'000, Measure::kRate},
    {"cm_ids", 0, 64 * kKi, 1024 * kKi, Measure::kTotal},
    {"cm_conns", 0, 64 * kKi, 1024 * kKi, Measure::kTotal},
    {"cm_rate", 0, 50'000, 1'000'000, Measure::kRate},
    {"cm_events", 0, 64 * kKi, 1024 * kKi, Measure::kTotal},
    {"cm_early", 0, 2 * kKi, 16 * kKi, Measure::kTotal},
    {"mr_rate", 1, 1'000'000, 1'000'000, Measure::kRate},
    {"bandwidth", 1, kAnyBandwidth, kAnyBandwidth, Measure::kRate, Unit::kBytesPerSecond},
    {"bandwidth_min", 0, 0, kAnyBandwidth, Measure::kRate, Unit::kBytesPerSecond},
    {"msg_rate", 1, 1'000'000'000, 1'000'000'000, Measure::kRate},
    {"worker_memory", kKi* kKi, uint64_t{64} << 20, uint64_t{1} << 40, Measure::kTotal,
     Unit::kBytes},
    {"cpu", 1, kAllProcessors, kAllProcessors, Measure::kRate, Unit::kPercent},
}};
static_assert(kTraits[static_cast<size_t>(Kind::kCpu)].name == "cpu");

std::string quoted(std::string_view text) { return std::string("'").append(text).append("'"); }

struct UnitWords {
  const char* what;  // completes "is not ..."
  const char* examples;
};
UnitWords words_of(Unit unit) {
  switch (unit) {
    case Unit::kCount:
      break;
    case Unit::kBytes:
      return {"a number of bytes", "512m, 1.5g, 16GB"};
    case Unit::kBytesPerSecond:
      return {"a number of bytes per second", "50m, 1.5g, 10gbit"};
    case Unit::kPercent:
      return {"a percentage of one processor", "50, 250%"};
  }
  return {"a number", "64, 16k"};
}

struct Factor {
  uint64_t times = 0, by = 1;  // times 0: there is no such unit
};
Factor factor_of(std::string_view suffix, Unit unit) {
  static constexpr std::string_view kPrefixes = "kmgt";
  std::string rest;
  for (const char c : suffix)
    rest += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  if (unit == Unit::kPercent && rest == "%") return {1};
  const size_t prefix = rest.empty() ? std::string::npos : kPrefixes.find(rest[0]);
  const size_t power = prefix == std::string::npos ? 0 : prefix + 1;
  if (power > 0) rest.erase(0, 1);
  if (unit == Unit::kBytesPerSecond && rest == "bit") {
    uint64_t times = 1;
    for (size_t i = 0; i < power; ++i) times *= 1000;
    return {times, 8};
  }
  const bool bytes = unit == Unit::kBytes || unit == Unit::kBytesPerSecond;
  if (rest.empty() || (bytes && (rest == "b" || (rest == "ib" && power > 0))))
    return {uint64_t{1} << (10 * power)};
  return {};
}

base::Result<uint64_t> parse_limit(std::string_view text, Unit unit) {
  if (text == "max") return kCeiling;
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  unsigned __int128 number = 0;
  Factor factor;
  uint64_t by = 1;  // for digits behind the point
  size_t at = 0;
  bool point = false;
  for (; at < text.size() && (is_digit(text[at]) || (text[at] == '.' && at > 0 && !point)); ++at) {
    point = point || text[at] == '.';
    if (text[at] == '.') continue;
    number = number * 10 + static_cast<unsigned>(text[at] - '0');
    if (point) by *= 10;
    if (number > UINT64_MAX || by > 1'000'000'000)
      return base::fail(EINVAL, quoted(text) + " has too many digits, or is beyond 64 bits");
  }
  if (at > 0 && is_digit(text[at - 1])) factor = factor_of(text.substr(at), unit);
  if (factor.times == 0) {
    const UnitWords words = words_of(unit);
    return base::fail(
        EINVAL, quoted(text) + " is not " + words.what + " such as " + words.examples + " or max");
  }
  number *= factor.times;
  if (number % (by * factor.by) != 0)
    return base::fail(EINVAL, quoted(text) + " is not a whole number");
  number /= by * factor.by;
  if (number > UINT64_MAX) return base::fail(EINVAL, quoted(text) + " is beyond 64 bits");
  return static_cast<uint64_t>(number);
}

std::string no_such_kind(const std::string& given) {
  std::vector<std::string> names;
  for (const auto& its : kTraits) names.emplace_back(its.name);
  std::string sentence = "there is no quota kind '" + given + "'";
  if (const auto meant = base::nearest(given, names); !meant.empty())
    sentence += "; do you mean " + meant + "?";
  return sentence + "; there are " + kind_names();
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
    if (!kind) return base::fail(EINVAL, no_such_kind(setting.kind));
    const std::string what = "quota " + setting.kind;
    auto& slot = wanted[static_cast<size_t>(*kind)];
    if (slot) return base::fail(EINVAL, what + " is named twice");
    const uint64_t ceiling = traits(*kind).ceiling;
    slot = setting.limit == kCeiling ? ceiling : setting.limit;
    if (*slot > ceiling)
      return base::fail(EINVAL, what + ": " + std::to_string(*slot) + " is above the maximum, " +
                                    std::to_string(ceiling));
    if (const uint64_t least = traits(*kind).least; *slot < least)
      return base::fail(EINVAL, what + ": " + std::to_string(*slot) +
                                    " would block everything; the minimum is " +
                                    std::to_string(least));
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
    const auto known = find_kind(kind);
    auto limit =
        parse_limit(setting.substr(equals + 1), known ? traits(*known).unit : Unit::kCount);
    if (!limit) return base::pass(std::move(limit).error(), "quota " + kind);
    settings.push_back({kind, *limit});
    if (comma == std::string_view::npos) return settings;
    text.remove_prefix(comma + 1);
  }
}

std::string help_on_kinds() {
  std::string text;
  for (const Unit unit : {Unit::kCount, Unit::kBytes, Unit::kBytesPerSecond, Unit::kPercent}) {
    const UnitWords words = words_of(unit);
    text.append(words.what).append(" (").append(words.examples).append(", max):");
    for (const auto& one : kTraits)
      if (one.unit == unit) text.append(" ").append(one.name);
    text += "\n";
  }
  return text;
}

}  // namespace vrdma::provisioning
