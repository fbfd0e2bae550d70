#include "cli/top.h"

#include <langinfo.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <iostream>
#include <map>
#include <memory>
#include <set>
#include <sstream>

#include "api/client.h"
#include "cli/json.h"
#include "cli/list.h"
#include "cli/size_text.h"
#include "cli/top_rows.h"
#include "core/base/fd.h"

namespace vrdma::cli {

namespace {

using Clock = std::chrono::steady_clock;

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

  [[nodiscard]] static unsigned width() { return size().ws_col; }
  // Prints as many lines of `text` as fit. The terminal cuts lines that are too long.
  static void draw(const std::string& text) {
    const size_t lines = size().ws_row;
    std::istringstream in(text);
    std::cout << "\033[H\033[?7l";
    std::string line;
    for (size_t i = 0; i < lines && std::getline(in, line); ++i)
      std::cout << (i > 0 ? "\n" : "") << line << "\033[K";
    std::cout << "\033[J\033[?7h" << std::flush;
  }

 private:
  static winsize size() {
    winsize size{};
    if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_row == 0 || size.ws_col == 0)
      size = {24, 80, 0, 0};
    return size;
  }
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

// Waits for the end or a key, and returns the key; 0: the end, q: the user ends the program.
char wait_for_key(Clock::time_point end, const base::Fd& signals, bool keys) {
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now()).count();
    if (left <= 0) return 0;
    std::array<pollfd, 2> ready{pollfd{signals.get(), POLLIN, 0},
                                pollfd{keys ? STDIN_FILENO : -1, POLLIN, 0}};
    if (::poll(ready.data(), ready.size(), static_cast<int>(left)) <= 0) continue;
    if (ready[0].revents != 0) return 'q';
    if (ready[1].revents == 0) continue;
    char key = 0;
    return ::read(STDIN_FILENO, &key, 1) == 1 ? key : 'q';
  }
}

bool shows_blocks() { return std::string(::nl_langinfo(CODESET)) == "UTF-8"; }

// What one reading tells: of processes the queue pairs, of vdevices the activity.
struct Reading {
  v1::ListActivityResponse activity;
  std::vector<v1::QueuePair> queue_pairs;
  Clock::time_point time;
};

class Top {
 public:
  Top(api::Client& client, const TopSettings& settings)
      : client_(client),
        settings_(settings),
        sort_(settings.sort),
        by_process_(settings.by_process),
        history_(shows_blocks()) {}

  base::Result<void> run();

 private:
  [[nodiscard]] base::Result<Reading> read();
  [[nodiscard]] base::Result<std::vector<TopRow>> rows(const Reading& now);
  void print(const std::vector<TopRow>& rows, double seconds);
  [[nodiscard]] std::string table_of(const std::vector<TopRow>& rows, const Style& style) const;
  // False: the user ends the program.
  [[nodiscard]] bool on_key(char key);

  api::Client& client_;
  const TopSettings& settings_;
  std::string sort_;
  bool by_process_;
  TopHistory history_;
  Reading before_;
  std::vector<v1::Vdev> vdevs_;  // that are shown
  uint64_t revision_ = 0;        // of vdevs_; see ListActivityResponse
  std::unique_ptr<Screen> screen_;
};

base::Result<Reading> Top::read() {
  Reading reading;
  if (by_process_) {
    auto queue_pairs = client_.list_queue_pairs("");
    if (!queue_pairs) return base::pass(std::move(queue_pairs).error());
    reading.queue_pairs = std::move(*queue_pairs);
  } else {
    auto activity = client_.list_activity();
    if (!activity) return base::pass(std::move(activity).error());
    reading.activity = std::move(*activity);
  }
  reading.time = Clock::now();
  return reading;
}

base::Result<std::vector<TopRow>> Top::rows(const Reading& now) {
  const double seconds = std::chrono::duration<double>(now.time - before_.time).count();
  auto rows = by_process_ ? process_rows(before_.queue_pairs, now.queue_pairs, seconds)
                          : top_rows(before_.activity, now.activity, seconds);
  if (by_process_ || revision_ != now.activity.vdevs_revision()) {
    auto vdevs = client_.list_vdevs();
    if (!vdevs) return base::pass(std::move(vdevs).error());
    std::erase_if(*vdevs, [&](const v1::Vdev& vdev) { return !settings_.filter.fits(vdev, true); });
    vdevs_ = std::move(*vdevs);
    revision_ = now.activity.vdevs_revision();  // 0, of none, if by process
  }
  keep_vdevices(vdevs_, &rows);
  if (!settings_.once) history_.add(now.time, &rows);
  sort_rows(sort_, &rows);
  return rows;
}

std::string Top::table_of(const std::vector<TopRow>& rows, const Style& style) const {
  List table(kTopColumns, style);
  std::map<std::string, std::set<uint64_t>> named;
  for (const auto& row : rows) named[row.name].insert(row.id);
  for (const auto& row : rows)
    table.add({named[row.name].size() > 1 ? row.netns + "/" + row.name : row.name, row.tenant,
               row.pid != 0 ? std::to_string(row.pid) : "",
               row.pid != 0 ? "" : std::to_string(row.sessions), std::to_string(row.qps),
               short_number(row.direct.requests), short_number(row.direct.bytes),
               short_number(row.worker.requests), short_number(row.worker.bytes),
               row.pid != 0 ? "" : short_number(row.refused), row.reason, row.minute, row.who,
               row.netns, std::to_string(row.id)});
  std::ostringstream text;
  table.print(text);
  return text.str();
}

void Top::print(const std::vector<TopRow>& rows, double seconds) {
  if (screen_) {
    Style style = settings_.style;
    style.width = screen_->width();
    screen_->draw(table_of(rows, style) + "\nby " + sort_ + "; < > order, p " +
                  (by_process_ ? "vdevices" : "processes") + ", q ends\n");
  } else if (settings_.format == Format::kJson) {
    std::cout << json_of(rows, seconds) << std::endl;
  } else {
    std::cout << table_of(rows, settings_.style) << (settings_.once ? "" : "\n") << std::flush;
  }
}

bool Top::on_key(char key) {
  const auto& keys = top_sort_keys();
  const auto at = static_cast<size_t>(std::find(keys.begin(), keys.end(), sort_) - keys.begin());
  if (key == '>') sort_ = keys[(at + 1) % keys.size()];
  if (key == '<') sort_ = keys[(at + keys.size() - 1) % keys.size()];
  if (key == 'p') by_process_ = !by_process_;
  return key != 'q' && key != 'Q';
}

base::Result<void> Top::run() {
  auto signals = catch_signals();
  if (!signals) return base::pass(std::move(signals).error());
  if (settings_.format == Format::kTable && !settings_.once && ::isatty(STDOUT_FILENO) != 0 &&
      ::isatty(STDIN_FILENO) != 0)
    screen_ = std::make_unique<Screen>();
  auto first = read();
  if (!first) return base::pass(std::move(first).error());
  before_ = std::move(*first);
  const auto interval = std::chrono::duration_cast<Clock::duration>(
      std::chrono::duration<double>(settings_.interval));
  std::vector<TopRow> shown;
  for (;;) {
    if (const char key = wait_for_key(before_.time + interval, *signals, screen_ != nullptr)) {
      const bool was_by_process = by_process_;
      if (!on_key(key)) return {};
      sort_rows(sort_, &shown);
      if (was_by_process == by_process_) {
        print(shown, 0);
        continue;
      }
      auto begun = read();  // of other objects
      if (!begun) return base::pass(std::move(begun).error());
      before_ = std::move(*begun);
      continue;
    }
    auto now = read();
    if (!now) return base::pass(std::move(now).error());
    auto made = rows(*now);
    if (!made) return base::pass(std::move(made).error());
    shown = std::move(*made);
    print(shown, std::chrono::duration<double>(now->time - before_.time).count());
    if (settings_.once || !std::cout) return {};
    before_ = std::move(*now);
  }
}

}  // namespace

base::Result<void> run_top(api::Client& client, const TopSettings& settings) {
  return Top(client, settings).run();
}

}  // namespace vrdma::cli
