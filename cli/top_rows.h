// The rows of `vrdmactl top`: what vdevices and processes do between two readings.
#pragma once

#include <vrdma/v1/admin.pb.h>

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace vrdma::cli {

// The activity of a vdevice, or of a process on it, between two readings.
struct TopRow {
  std::string name, tenant, netns;
  std::string who;  // cli/who.h; empty: unknown
  uint64_t id = 0;
  int32_t pid = 0;                 // of a process; 0: the row is of the whole vdevice
  uint64_t sessions = 0, qps = 0;  // sessions: of vdevices only
  struct Rate {
    double requests = 0, bytes = 0;  // per second
  };
  Rate direct;         // work requests that programs execute
  Rate worker;         // work requests that vrdmad's workers execute
  double refused = 0;  // per second: refused or failed requests, quotas and work
  // What was refused, per second, where that is not 0: "quota:qp", "request", "work:flushed".
  std::map<std::string, double> refused_by = {};
  std::string reason = {};  // the most frequent of it; by TopHistory also of the last minute
  std::string minute = {};  // by TopHistory: the bytes per second of the last minute, as bars

  [[nodiscard]] double bytes() const { return direct.bytes + worker.bytes; }
};

// One row for each vdevice in `now`, without what keep_vdevices() sets. Counts from 0 if `before`
// lacks the vdevice or has a higher value, because another daemon counted that.
[[nodiscard]] std::vector<TopRow> top_rows(const v1::ListActivityResponse& before,
                                           const v1::ListActivityResponse& now, double seconds);
// One row for each process that has queue pairs in `now`, by its queue pairs; refusals are known of
// vdevices only. A queue pair that is not in `before` counts from 0.
[[nodiscard]] std::vector<TopRow> process_rows(const std::vector<v1::QueuePair>& before,
                                               const std::vector<v1::QueuePair>& now,
                                               double seconds);
// Sets TopRow::name, netns, tenant and who, and removes the rows of other vdevices.
void keep_vdevices(const std::vector<v1::Vdev>& vdevs, std::vector<TopRow>* rows);

// "bytes", "requests", "refused", "sessions", "qps": the highest first; "name", "tenant".
[[nodiscard]] const std::vector<std::string>& top_sort_keys();
// `key`: one of them. Equal rows stay in the order of their names.
void sort_rows(const std::string& key, std::vector<TopRow>* rows);

// The last minute of each row.
class TopHistory {
 public:
  using Clock = std::chrono::steady_clock;

  // `unicode`: whether bars may be block elements; otherwise they are ASCII characters.
  explicit TopHistory(bool unicode) : unicode_(unicode) {}

  // Adds the rows of this time and sets their `minute`, and their `reason` if the refusal is of the
  // last minute. Forgets rows that do not come any more.
  void add(Clock::time_point now, std::vector<TopRow>* rows);

 private:
  struct Past {
    std::deque<std::pair<Clock::time_point, double>> bytes;  // per second, of the last minute
    std::string reason;
    Clock::time_point refused{};
  };
  [[nodiscard]] std::string bars(Clock::time_point now, const Past& past) const;

  const bool unicode_;
  std::map<std::pair<uint64_t, int32_t>, Past> past_;  // by vdevice and process
};

}  // namespace vrdma::cli
