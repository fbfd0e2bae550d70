#include "cli/top_rows.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <tuple>

#include "cli/who.h"

namespace vrdma::cli {

namespace {

constexpr auto kMinute = std::chrono::seconds(60);
constexpr size_t kBars = 20;  // of three seconds

double rate(uint64_t before, uint64_t now, double seconds) {
  if (now < before) before = 0;
  return seconds > 0 ? static_cast<double>(now - before) / seconds : 0;
}

TopRow::Rate rate(const v1::Work& before, const v1::Work& now, double seconds) {
  return {rate(before.requests(), now.requests(), seconds),
          rate(before.bytes(), now.bytes(), seconds)};
}

// Sets what is refused, and the most frequent reason. A request that a quota refuses is counted by
// both; the quota is the reason.
void count_refused(const v1::Activity& before, const v1::Activity& now, double seconds,
                   TopRow* row) {
  std::map<std::string, uint64_t> then;
  for (const auto& refused : before.refused()) then[refused.reason()] = refused.count();
  for (const auto& refused : now.refused())
    if (const double its = rate(then[refused.reason()], refused.count(), seconds); its > 0)
      row->refused_by[refused.reason()] = its;
  double most = 0;
  for (const auto& [reason, its] : row->refused_by) {
    row->refused += its;
    if (its < most || (its == most && reason == "request")) continue;
    most = its;
    row->reason = reason;
  }
}

}  // namespace

std::vector<TopRow> top_rows(const v1::ListActivityResponse& before,
                             const v1::ListActivityResponse& now, double seconds) {
  std::map<uint64_t, const v1::Activity*> then;
  for (const auto& vdev : before.vdevs()) then[vdev.vdev_id()] = &vdev;
  std::vector<TopRow> rows;
  for (const auto& vdev : now.vdevs()) {
    const auto it = then.find(vdev.vdev_id());
    const v1::Activity& old = it != then.end() ? *it->second : v1::Activity::default_instance();
    TopRow& row = rows.emplace_back();
    row.id = vdev.vdev_id();
    row.sessions = vdev.sessions();
    row.qps = vdev.queue_pairs();
    row.direct = rate(old.direct(), vdev.direct(), seconds);
    row.worker = rate(old.worker(), vdev.worker(), seconds);
    count_refused(old, vdev, seconds, &row);
  }
  return rows;
}

std::vector<TopRow> process_rows(const std::vector<v1::QueuePair>& before,
                                 const std::vector<v1::QueuePair>& now, double seconds) {
  const auto key_of = [](const v1::QueuePair& one) {
    return std::tuple(one.vdev_id(), one.qpn(), one.pid());
  };
  std::map<std::tuple<uint64_t, uint32_t, int32_t>, const v1::QueuePair*> then;
  for (const auto& one : before) then[key_of(one)] = &one;
  std::map<std::pair<uint64_t, int32_t>, TopRow> rows;
  for (const auto& one : now) {
    const auto it = then.find(key_of(one));
    const v1::QueuePair& old = it != then.end() ? *it->second : v1::QueuePair::default_instance();
    TopRow& row = rows[{one.vdev_id(), one.pid()}];
    row.name = one.vdev();
    row.netns = one.netns();
    row.id = one.vdev_id();
    row.pid = one.pid();
    ++row.qps;
    row.direct.requests += rate(old.direct_requests(), one.direct_requests(), seconds);
    row.direct.bytes += rate(old.direct_bytes(), one.direct_bytes(), seconds);
    row.worker.requests += rate(old.worker_requests(), one.worker_requests(), seconds);
    row.worker.bytes += rate(old.worker_bytes(), one.worker_bytes(), seconds);
  }
  std::vector<TopRow> all;
  for (auto& [key, row] : rows) all.push_back(std::move(row));
  return all;
}

void keep_vdevices(const std::vector<v1::Vdev>& vdevs, std::vector<TopRow>* rows) {
  std::map<uint64_t, const v1::Vdev*> by_id;
  for (const auto& vdev : vdevs) by_id[vdev.id()] = &vdev;
  std::erase_if(*rows, [&](const TopRow& row) { return !by_id.contains(row.id); });
  for (auto& row : *rows) {
    const v1::Vdev& vdev = *by_id[row.id];
    row.name = vdev.name();
    row.netns = vdev.netns();
    row.who = who_of(vdev);
    row.tenant = vdev.tenant();
  }
}

const std::vector<std::string>& top_sort_keys() {
  static const std::vector<std::string> kKeys{"bytes", "requests", "refused", "sessions",
                                              "qps",   "name",     "tenant"};
  return kKeys;
}

void sort_rows(const std::string& key, std::vector<TopRow>* rows) {
  const auto by_name = [](const TopRow& a, const TopRow& b) {
    return std::tie(a.name, a.netns, a.id, a.pid) < std::tie(b.name, b.netns, b.id, b.pid);
  };
  std::sort(rows->begin(), rows->end(), by_name);
  if (key == "name") return;
  if (key == "tenant") {
    std::stable_sort(rows->begin(), rows->end(),
                     [](const TopRow& a, const TopRow& b) { return a.tenant < b.tenant; });
    return;
  }
  const auto weight = [&](const TopRow& row) {
    if (key == "requests") return row.direct.requests + row.worker.requests;
    if (key == "refused") return row.refused;
    if (key == "sessions") return static_cast<double>(row.sessions);
    if (key == "qps") return static_cast<double>(row.qps);
    return row.bytes();
  };
  std::stable_sort(rows->begin(), rows->end(),
                   [&](const TopRow& a, const TopRow& b) { return weight(a) > weight(b); });
}

void TopHistory::add(Clock::time_point now, std::vector<TopRow>* rows) {
  std::map<std::pair<uint64_t, int32_t>, Past> kept;
  for (auto& row : *rows) {
    const std::pair key(row.id, row.pid);
    Past& past = kept[key] = std::move(past_[key]);
    past.bytes.emplace_back(now, row.bytes());
    while (now - past.bytes.front().first >= kMinute) past.bytes.pop_front();
    if (!row.reason.empty()) {
      past.reason = row.reason;
      past.refused = now;
    } else if (!past.reason.empty() && now - past.refused < kMinute) {
      row.reason = past.reason;
    }
    row.minute = bars(now, past);
  }
  past_ = std::move(kept);
}

// Each bar is the highest rate of its three seconds, in proportion to the highest of the minute;
// the newest is the last. A time without a measurement has that before it.
std::string TopHistory::bars(Clock::time_point now, const Past& past) const {
  static constexpr std::array kBlocks{"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  static constexpr std::array kAscii{".", "_", "-", "~", "=", "+", "*", "#"};
  constexpr auto kWidth = kMinute / static_cast<int>(kBars);
  std::array<double, kBars> rates{};
  rates.fill(-1);
  double most = 0;
  for (const auto& [time, bytes] : past.bytes) {
    const auto age =
        static_cast<size_t>(now.time_since_epoch() / kWidth - time.time_since_epoch() / kWidth);
    double& rate = rates[kBars - 1 - std::min(age, kBars - 1)];
    rate = std::max(rate, bytes);
    most = std::max(most, bytes);
  }
  std::string text;
  double last = -1;
  for (double rate : rates) {
    if (rate < 0) rate = last;
    last = rate;
    if (rate < 0) continue;  // before the first measurement
    const double part = most > 0 ? rate / most : 0;
    const auto level = static_cast<size_t>(std::lround(part * (kBlocks.size() - 1)));
    text += unicode_ ? kBlocks[level] : kAscii[level];
  }
  return text;
}

}  // namespace vrdma::cli
