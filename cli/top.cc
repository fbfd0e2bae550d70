#include "cli/top.h"

#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <iostream>
#include <map>
#include <sstream>

#include "api/client.h"
#include "cli/json.h"
#include "cli/table.h"
#include "core/base/fd.h"

namespace vrdma::cli {

namespace {

using Clock = std::chrono::steady_clock;

// The sums of a vdevice's counters that a row needs.
struct Sums {
  std::string name, tenant, netns;
  uint64_t sessions = 0, qps = 0;
  uint64_t direct_requests = 0, direct_bytes = 0, worker_requests = 0, worker_bytes = 0;
  uint64_t refused = 0;
};

bool begins(const std::string& text, const char* with) { return text.rfind(with, 0) == 0; }

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
    sums.tenant = counter.tenant();
    if (name == "sessions")
      sums.sessions = value;
    else if (begins(name, "qps_"))
      sums.qps += value;
    else if (name == "work_requests_direct")
      sums.direct_requests = value;
    else if (name == "work_bytes_direct")
      sums.direct_bytes = value;
    else if (begins(name, "work_requests_"))
      sums.worker_requests += value;
    else if (begins(name, "work_bytes_"))
      sums.worker_bytes += value;
    else if (name == "requests_refused" || begins(name, "quota_refused_") ||
             begins(name, "work_failed_"))
      sums.refused += value;
  }
  return all;
}

double rate(uint64_t before, uint64_t now, double seconds) {
  if (now < before) before = 0;
  return seconds > 0 ? static_cast<double>(now - before) / seconds : 0;
}

// Switches the terminal to an empty screen, and restores it in the destructor.
class Screen {
 public:
  Screen() {
    ::tcgetattr(STDIN_FILENO, &before_);
    termios raw = before_;
    raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
    ::tcsetattr(STDIN_FILENO, TCSANOW, &raw);
    std::cout << "\033[?1049h\033[?25l" << std::flush;
  }
  ~Screen() {
    std::cout << "\033[?25h\033[?1049l" << std::flush;
    ::tcsetattr(STDIN_FILENO, TCSANOW, &before_);
  }
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;

  // Prints as many lines of `text` as fit.
  void draw(const std::string& text) const {
    winsize size{};
    const size_t lines =
        ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row > 0 ? size.ws_row : 24;
    std::istringstream in(text);
    std::cout << "\033[H";
    std::string line;
    for (size_t i = 0; i < lines && std::getline(in, line); ++i)
      std::cout << (i > 0 ? "\n" : "") << line.substr(0, size.ws_col > 0 ? size.ws_col : 80)
                << "\033[K";
    std::cout << "\033[J" << std::flush;
  }

 private:
  termios before_{};
};

// SIGINT and SIGTERM as a descriptor, so that the terminal is restored before the end.
base::Result<base::Fd> catch_signals() {
  sigset_t signals;
  ::sigemptyset(&signals);
  ::sigaddset(&signals, SIGINT);
  ::sigaddset(&signals, SIGTERM);
  ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  base::Fd fd(::signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!fd.valid()) return base::fail_errno("make a signalfd");
  return fd;
}

// Waits until `end`; false if the user ends the program.
bool wait(Clock::time_point end, const base::Fd& signals, bool keys) {
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now()).count();
    if (left <= 0) return true;
    std::array<pollfd, 2> ready{pollfd{signals.get(), POLLIN, 0},
                                pollfd{keys ? STDIN_FILENO : -1, POLLIN, 0}};
    if (::poll(ready.data(), ready.size(), static_cast<int>(left)) <= 0) continue;
    if (ready[0].revents != 0) return false;
    char key = 0;
    if (ready[1].revents != 0 && (::read(STDIN_FILENO, &key, 1) != 1 || key == 'q' || key == 'Q'))
      return false;
  }
}

std::string table_of(const std::vector<TopRow>& rows) {
  constexpr auto kNumber = Table::Align::kRight;
  Table table({{"VDEVICE"},
               {"TENANT"},
               {"SESSIONS", kNumber},
               {"QPS", kNumber},
               {"DIRECT/S", kNumber},
               {"BYTES/S", kNumber},
               {"WORKER/S", kNumber},
               {"BYTES/S", kNumber},
               {"REFUSED/S", kNumber},
               {"WHO", Table::Align::kLeft, true}});
  std::map<std::string, int> named;
  for (const auto& row : rows) ++named[row.name];
  for (const auto& row : rows)
    table.add({named[row.name] > 1 ? row.netns + "/" + row.name : row.name, row.tenant,
               std::to_string(row.sessions), std::to_string(row.qps),
               short_number(row.direct.requests), short_number(row.direct.bytes),
               short_number(row.worker.requests), short_number(row.worker.bytes),
               short_number(row.refused), row.who});
  std::ostringstream text;
  table.print(text);
  return text.str();
}

}  // namespace

std::vector<TopRow> top_rows(const std::vector<v1::Counter>& before,
                             const std::vector<v1::Counter>& now, double seconds) {
  const auto then = sums_of(before);
  std::vector<TopRow> rows;
  for (const auto& [key, sums] : sums_of(now)) {
    const auto it = then.find(key);
    const Sums old = it != then.end() ? it->second : Sums{};
    TopRow row{sums.name,     sums.tenant, sums.netns, {}, key.second,
               sums.sessions, sums.qps,    {},         {}, 0};
    row.direct = {rate(old.direct_requests, sums.direct_requests, seconds),
                  rate(old.direct_bytes, sums.direct_bytes, seconds)};
    row.worker = {rate(old.worker_requests, sums.worker_requests, seconds),
                  rate(old.worker_bytes, sums.worker_bytes, seconds)};
    row.refused = rate(old.refused, sums.refused, seconds);
    rows.push_back(std::move(row));
  }
  std::stable_sort(rows.begin(), rows.end(), [](const TopRow& a, const TopRow& b) {
    return a.direct.bytes + a.worker.bytes > b.direct.bytes + b.worker.bytes;
  });
  return rows;
}

void name_pods(const std::vector<v1::Vdev>& vdevs, std::vector<TopRow>* rows) {
  std::map<uint64_t, std::string> pods;
  for (const auto& vdev : vdevs) pods[vdev.id()] = pod_of(vdev);
  for (auto& row : *rows) row.who = pods[row.id];
}

std::string short_number(double number) {
  static constexpr std::array kUnits{"", "k", "M", "G", "T", "P"};
  size_t unit = 0;
  while (number >= 999.5 && unit + 1 < kUnits.size()) {
    number /= 1000;
    ++unit;
  }
  std::array<char, 32> text{};
  (void)std::snprintf(text.data(), text.size(), unit > 0 && number < 9.95 ? "%.1f%s" : "%.0f%s",
                      number, kUnits[unit]);
  return text.data();
}

base::Result<void> run_top(api::Client& client, const TopSettings& settings) {
  auto signals = catch_signals();
  if (!signals) return base::pass(std::move(signals).error());
  const bool draws = settings.format == Format::kTable && !settings.once &&
                     ::isatty(STDOUT_FILENO) != 0 && ::isatty(STDIN_FILENO) != 0;
  std::unique_ptr<Screen> screen;
  if (draws) screen = std::make_unique<Screen>();
  auto before = client.counters("");
  if (!before) return base::pass(std::move(before).error());
  auto looked = Clock::now();
  const auto interval =
      std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(settings.interval));
  while (wait(looked + interval, *signals, draws)) {
    auto now = client.counters("");
    if (!now) return base::pass(std::move(now).error());
    const auto time = Clock::now();
    const double seconds = std::chrono::duration<double>(time - looked).count();
    auto rows = top_rows(*before, *now, seconds);
    const auto vdevs = client.list_vdevs();
    if (!vdevs) return base::pass(vdevs.error());
    name_pods(*vdevs, &rows);
    if (screen)
      screen->draw(table_of(rows) + "\nq ends\n");
    else if (settings.format == Format::kJson)
      std::cout << json_of(rows, seconds) << std::endl;
    else
      std::cout << table_of(rows) << (settings.once ? "" : "\n") << std::flush;
    if (settings.once || !std::cout) break;
    before = std::move(now);
    looked = time;
  }
  return {};
}

}  // namespace vrdma::cli
