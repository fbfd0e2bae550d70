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

// The sums of a vdevice's counters that a row needs.
struct Sums {
  std::string name, tenant, netns;
  uint64_t sessions = 0, qps = 0;
  uint64_t direct_requests = 0, direct_bytes = 0, worker_requests = 0, worker_bytes = 0;
  std::map<std::string, uint64_t> refused;  // by reason
};

// Whether `text` begins so; `rest` is what follows.
bool begins(const std::string& text, const std::string& with, std::string* rest) {
  if (!text.starts_with(with)) return false;
  *rest = text.substr(with.size());
  return true;
}

// By name and id.
std::map<std::pair<std::string, uint64_t>, Sums> sums_of(const std::vector<v1::Counter>& counters) {
  std::map<std::pair<std::string, uint64_t>, Sums> all;
  for (const auto& counter : counters) {
    if (counter.vdev_id() == 0) continue;
    Sums& sums = all[{counter.scope(), counter.vdev_id()}];
    sums.name = counter.scope();
    sums.netns = counter.netns();
    const std::string& name = counter.name();
    const uint64_t value = counter.value();
    std::string rest;
    sums.tenant = counter.tenant();
    if (name == "sessions")
      sums.sessions = value;
    else if (begins(name, "qps_", &rest))
      sums.qps += value;
    else if (name == "work_requests_direct")
      sums.direct_requests = value;
    else if (name == "work_bytes_direct")
      sums.direct_bytes = value;
    else if (begins(name, "work_requests_", &rest))
      sums.worker_requests += value;
    else if (begins(name, "work_bytes_", &rest))
      sums.worker_bytes += value;
    else if (name == "requests_refused")
      sums.refused["request"] = value;
    else if (begins(name, "quota_refused_", &rest))
      sums.refused["quota:" + rest] = value;
    else if (begins(name, "work_failed_", &rest))
      sums.refused["work:" + rest] = value;
  }
  return all;
}

double rate(uint64_t before, uint64_t now, double seconds) {
  if (now < before) before = 0;
  return seconds > 0 ? static_cast<double>(now - before) / seconds : 0;
}

// Sets what is refused, and the most frequent reason. A request that a quota refuses is counted by
// both; the quota is the reason.
void count_refused(const Sums& before, const Sums& now, double seconds, TopRow* row) {
  double most = 0;
  for (const auto& [reason, value] : now.refused) {
    const auto it = before.refused.find(reason);
    const double its = rate(it != before.refused.end() ? it->second : 0, value, seconds);
    if (its == 0) continue;
    row->refused_by[reason] = its;
    row->refused += its;
    if (its < most || (its == most && reason == "request")) continue;
    most = its;
    row->reason = reason;
  }
}

}  // namespace

std::vector<TopRow> top_rows(const std::vector<v1::Counter>& before,
                             const std::vector<v1::Counter>& now, double seconds) {
  const auto then = sums_of(before);
  std::vector<TopRow> rows;
  for (const auto& [key, sums] : sums_of(now)) {
    const auto it = then.find(key);
    const Sums old = it != then.end() ? it->second : Sums{};
    TopRow row;
    row.name = sums.name;
    row.tenant = sums.tenant;
    row.netns = sums.netns;
    row.id = key.second;
    row.sessions = sums.sessions;
    row.qps = sums.qps;
    row.direct = {rate(old.direct_requests, sums.direct_requests, seconds),
                  rate(old.direct_bytes, sums.direct_bytes, seconds)};
    row.worker = {rate(old.worker_requests, sums.worker_requests, seconds),
                  rate(old.worker_bytes, sums.worker_bytes, seconds)};
    count_refused(old, sums, seconds, &row);
    rows.push_back(std::move(row));
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
    row.who = who_of(*by_id[row.id]);
    row.tenant = by_id[row.id]->tenant();
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
