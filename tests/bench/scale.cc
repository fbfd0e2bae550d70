// bench_scale: how time and memory grow with the number of things.
//
//   bench_scale vdevices DAEMON NETNS COUNT,...  vdevices on the netdevs d0, d1, ... of NETNS
//   bench_scale creations DAEMON NETNS COUNT,... the same, without a look at the idle daemon
//   bench_scale qps DAEMON COUNT,...             queue pairs of this process, in state RESET
//   bench_scale mrs DAEMON COUNT,...             memory regions of 4 KiB, side by side
//
// DAEMON is vrdmad's process id. At each COUNT (rising) a line of JSON: median and mean time of a
// creation since the last line in us, resident memory of the daemon and of this process above what
// it was at the beginning in KiB, for vdevices also what the daemon did in 5 s in which nobody
// asked it anything (ticks of CPU, times woken). At last one line with the mean time of a deletion.
#include <dirent.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <numeric>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "api/client.h"
#include "tests/bench/device.h"
#include "tests/bench/median.h"

namespace vrdma::bench {
namespace {

using Clock = std::chrono::steady_clock;

double us_since(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

// The number behind `name` in a /proc/PID/status.
int64_t status_of(const std::string& folder, const std::string& name) {
  std::ifstream file(folder + "/status");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with(name + ":"))
      return std::strtoll(line.c_str() + name.size() + 1, nullptr, 10);
  return 0;
}

// A process with all that descend from it: the daemon with its helpers and workers.
class Process {
 public:
  explicit Process(std::string pid) : folder_("/proc/" + std::move(pid)), rss_before_(rss()) {}
  // KiB resident, above those at the beginning.
  int64_t grown() const { return rss() - rss_before_; }
  // Ticks of CPU, in user and kernel mode, so far.
  int64_t ticks() const { return sum(folder_, ticks_of); }
  // How often its threads went to sleep so far.
  int64_t switches() const { return sum(folder_, switches_of); }

 private:
  static int64_t sum(const std::string& folder, int64_t (*of)(const std::string& folder)) {
    int64_t all = of(folder);
    for (const std::string& task : tasks(folder)) {
      std::ifstream children(task + "/children");
      for (std::string child; children >> child;) all += sum("/proc/" + child, of);
    }
    return all;
  }
  static std::vector<std::string> tasks(const std::string& folder) {
    std::vector<std::string> found;
    DIR* tasks = opendir((folder + "/task").c_str());
    if (tasks == nullptr) return found;  // it has ended
    while (const dirent* task = readdir(tasks))
      if (task->d_name[0] != '.') found.push_back(folder + "/task/" + task->d_name);
    closedir(tasks);
    return found;
  }
  static int64_t ticks_of(const std::string& folder) {
    std::ifstream file(folder + "/stat");
    std::string text((std::istreambuf_iterator<char>(file)), {});
    std::istringstream fields(text.substr(text.rfind(')') + 1));
    std::string skipped;
    for (int i = 0; i < 11; ++i) fields >> skipped;
    int64_t user = 0, kernel = 0;
    fields >> user >> kernel;
    return user + kernel;
  }
  static int64_t switches_of(const std::string& folder) {
    int64_t all = 0;
    for (const std::string& task : tasks(folder)) all += status_of(task, "voluntary_ctxt_switches");
    return all;
  }
  static int64_t rss_of(const std::string& folder) { return status_of(folder, "VmRSS"); }
  int64_t rss() const { return sum(folder_, rss_of); }

  std::string folder_;
  int64_t rss_before_;
};

struct Growth {
  std::function<void(size_t)> create;  // the i-th
  std::function<void(size_t)> destroy;
  std::function<void()> rest;  // if there: ask the daemon nothing more, and see what it does then
};

void measure(const std::string& daemon_pid, const std::vector<size_t>& counts,
             const Growth& growth) {
  Process daemon(daemon_pid), self(std::to_string(getpid()));
  size_t made = 0;
  for (const size_t count : counts) {
    std::vector<double> times;
    times.reserve(count - made);
    for (; made < count; ++made) {
      const auto start = Clock::now();
      growth.create(made);
      times.push_back(us_since(start));
    }
    const double sum = std::accumulate(times.begin(), times.end(), 0.0);
    std::printf(
        "{\"count\": %zu, \"median_us\": %.2f, \"mean_us\": %.2f, \"daemon_kib\": %lld, "
        "\"process_kib\": %lld",
        count, median(times), sum / static_cast<double>(times.size()),
        static_cast<long long>(daemon.grown()), static_cast<long long>(self.grown()));
    if (growth.rest) {
      growth.rest();
      std::this_thread::sleep_for(std::chrono::seconds(2));  // the last call comes to rest
      const int64_t ticks = daemon.ticks(), switches = daemon.switches();
      std::this_thread::sleep_for(std::chrono::seconds(5));
      std::printf(", \"idle_ticks\": %lld, \"idle_wakes\": %lld",
                  static_cast<long long>(daemon.ticks() - ticks),
                  static_cast<long long>(daemon.switches() - switches));
    }
    std::printf("}\n");
    std::fflush(stdout);
  }
  const auto start = Clock::now();
  for (size_t i = made; i-- > 0;) growth.destroy(i);
  std::printf("{\"deletion_mean_us\": %.2f, \"daemon_kib\": %lld}\n",
              us_since(start) / static_cast<double>(made), static_cast<long long>(daemon.grown()));
}

template <typename T>
T value_of(base::Result<T> result) {
  if (result) return std::move(*result);
  std::fprintf(stderr, "bench_scale: %s\n", result.error().message().c_str());
  std::exit(1);
}

Growth vdevices(const std::string& netns, bool idle) {
  auto connection = std::make_shared<std::optional<api::Client>>();
  const auto client = [connection]() -> api::Client& {
    if (!*connection) connection->emplace(value_of(api::Client::connect(api::default_run_dir())));
    return **connection;
  };
  client();
  const auto name = [](size_t i) { return "n" + std::to_string(i); };
  return {.create =
              [=](size_t i) {
                v1::CreateVdevRequest request;
                request.set_name(name(i));
                request.set_netns(netns);
                request.set_netdev("d" + std::to_string(i));
                request.set_tenant("many");
                (void)value_of(client().create_vdev(request));
              },
          .destroy =
              [=](size_t i) {
                if (auto gone = client().delete_vdev(name(i)); !gone) {
                  std::fprintf(stderr, "bench_scale: %s\n", gone.error().message().c_str());
                  std::exit(1);
                }
              },
          .rest = idle ? [connection] { connection->reset(); } : std::function<void()>()};
}

Growth queue_pairs() {
  ibv_cq* cq = make_cq(16);
  auto qps = std::make_shared<std::vector<ibv_qp*>>();
  return {.create = [=](size_t) { qps->push_back(make_qp(cq, 16)); },
          .destroy = [=](size_t i) { ibv_destroy_qp(qps->at(i)); },
          .rest = {}};
}

Growth memory_regions(size_t most) {
  constexpr size_t kPage = 4096;
  auto buffer = std::make_shared<Buffer>(most * kPage);
  auto regions = std::make_shared<std::vector<ibv_mr*>>();
  return {.create =
              [=](size_t i) {
                regions->push_back(ibv_reg_mr(device().pd, buffer->data() + i * kPage, kPage,
                                              IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE));
                if (regions->back() == nullptr) fail("ibv_reg_mr");
              },
          .destroy = [=](size_t i) { ibv_dereg_mr(regions->at(i)); },
          .rest = {}};
}

std::vector<size_t> counts_of(const char* text) {
  std::vector<size_t> counts;
  std::istringstream list(text);
  for (std::string word; std::getline(list, word, ',');)
    counts.push_back(std::strtoull(word.c_str(), nullptr, 10));
  return counts;
}

}  // namespace
}  // namespace vrdma::bench

int main(int argc, char** argv) {
  using namespace vrdma::bench;
  const std::string what = argc > 1 ? argv[1] : "";
  const auto counts = argc > 3 ? counts_of(argv[argc - 1]) : std::vector<size_t>{};
  const bool rising =
      !counts.empty() && counts.front() > 0 &&
      std::adjacent_find(counts.begin(), counts.end(), std::greater_equal()) == counts.end();
  if ((what == "vdevices" || what == "creations") && argc == 5 && rising) {
    measure(argv[2], counts, vdevices(argv[3], what == "vdevices"));
  } else if (what == "qps" && argc == 4 && rising) {
    measure(argv[2], counts, queue_pairs());
  } else if (what == "mrs" && argc == 4 && rising) {
    measure(argv[2], counts, memory_regions(counts.back()));
  } else {
    std::fprintf(
        stderr,
        "usage: bench_scale vdevices|creations DAEMON NETNS COUNT,... | qps DAEMON COUNT,... |\n"
        "                   mrs DAEMON COUNT,...    (rising counts)\n");
    return 2;
  }
  return 0;
}
