// vrdma-bad-wire: makes a tap in each of two network namespaces and is the wire between them.
//
// Prints "ready" when both exist, and at SIGINT or SIGTERM the counts as JSON.
#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdio>
#include <iostream>

#include "cli/bad_wire/direction.h"
#include "cli/bad_wire/options.h"
#include "cli/bad_wire/tap.h"
#include "core/base/option_check.h"
#include "core/base/option_sentence.h"

namespace {

using namespace vrdma::cli::bad_wire;
using vrdma::base::Fd;
using Clock = std::chrono::steady_clock;

constexpr int kUsage = 2;
constexpr size_t kMostFrame = 65536;
constexpr int kFramesPerTurn = 64;

int complain(const std::string& sentence, int status = 1) {
  std::cerr << "vrdma-bad-wire: " << sentence << '\n';
  return status;
}

struct End {
  std::string name;  // as on the command line
  Fd tap;
  uint64_t refused = 0;  // frames that the kernel did not take, because the interface is down
};

class Wire {
 public:
  Wire(std::array<End, 2> ends, const Faults& faults, uint64_t seed)
      : ends_(std::move(ends)), directions_{{{faults, 2 * seed}, {faults, 2 * seed + 1}}} {}

  // Until the descriptor `stop` is readable, or an interface has gone.
  void run(int stop) {
    std::array<pollfd, 3> waiting{
        {{stop, POLLIN, 0}, {ends_[0].tap.get(), POLLIN, 0}, {ends_[1].tap.get(), POLLIN, 0}}};
    while ((waiting[0].revents & POLLIN) == 0) {
      for (size_t i = 0; i < 2; ++i) {
        if ((waiting[i + 1].revents & (POLLERR | POLLHUP | POLLNVAL)) != 0) return;
        if ((waiting[i + 1].revents & POLLIN) != 0) read(i);
        write(i);
      }
      const timespec left = time_left();
      if (::ppoll(waiting.data(), waiting.size(), left.tv_sec < 0 ? nullptr : &left, nullptr) < 0)
        waiting[1].revents = waiting[2].revents = 0;
    }
  }

  void print(uint64_t seed) const {
    std::printf("{\"seed\": %llu, \"directions\": [", static_cast<unsigned long long>(seed));
    for (size_t i = 0; i < 2; ++i) {
      const Counts& counts = directions_[i].counts();
      std::printf("%s\n  {\"from\": \"%s\"", i == 0 ? "" : ",", ends_[i].name.c_str());
      for (const auto& [name, count] : {std::pair{"received", counts.received},
                                        {"others", counts.others},
                                        {"lost", counts.lost},
                                        {"overflowed", counts.overflowed},
                                        {"duplicated", counts.duplicated},
                                        {"corrupted", counts.corrupted},
                                        {"marked", counts.marked},
                                        {"reordered", counts.reordered},
                                        {"forwarded", counts.forwarded},
                                        {"inside", uint64_t{directions_[i].inside()}},
                                        {"refused", ends_[1 - i].refused}})
        std::printf(", \"%s\": %llu", name, static_cast<unsigned long long>(count));
      std::printf("}");
    }
    std::printf("]}\n");
  }

 private:
  void read(size_t from) {
    for (int i = 0; i < kFramesPerTurn; ++i) {
      const ssize_t size = ::read(ends_[from].tap.get(), room_.data(), room_.size());
      if (size <= 0) return;
      directions_[from].take(Frame(room_.begin(), room_.begin() + size), Clock::now());
    }
  }
  void write(size_t from) {
    End& to = ends_[1 - from];
    while (const auto frame = directions_[from].give(Clock::now()))
      if (::write(to.tap.get(), frame->data(), frame->size()) < 0) ++to.refused;
  }
  // tv_sec is -1 if nothing waits.
  [[nodiscard]] timespec time_left() const {
    std::optional<TimePoint> first;
    for (const Direction& each : directions_)
      if (const auto next = each.next()) first = first ? std::min(*first, *next) : *next;
    if (!first) return {-1, 0};
    const auto left = std::max(Duration(0), *first - Clock::now()).count();
    return {left / 1'000'000'000, left % 1'000'000'000};
  }

  std::array<End, 2> ends_;
  std::array<Direction, 2> directions_;  // from the end of that index
  std::array<uint8_t, kMostFrame> room_;
};

// A descriptor that is readable when the program shall end.
Fd await_signals() {
  sigset_t signals;
  ::sigemptyset(&signals);
  for (const int signal : {SIGINT, SIGTERM}) ::sigaddset(&signals, signal);
  ::sigprocmask(SIG_BLOCK, &signals, nullptr);
  return Fd(::signalfd(-1, &signals, SFD_CLOEXEC));
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app(
      "a link between two network namespaces that loses, repeats, reorders, damages, delays and "
      "marks packets",
      "vrdma-bad-wire");
  app.set_version_flag("--version", "vrdma-bad-wire " VRDMA_VERSION);
  Faults faults;
  std::vector<std::string> words;
  uint64_t seed = 1;
  unsigned mtu = 4200;
  app.add_option(
         "ENDS", words,
         "each a network namespace (a path) and the name of the interface that is made in it")
      ->expected(2)
      ->required()
      ->type_name("NETNS:NETDEV");
  add_options(app, faults);
  app.add_option("--seed", seed, "of what happens to which packet")->capture_default_str();
  app.add_option("--mtu", mtu, "of the interfaces")
      ->check(vrdma::base::number(68, 65521, "68 to 65521 bytes"), "")
      ->capture_default_str();
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& wanted) {
    return app.exit(wanted);
  } catch (const CLI::ParseError& wrong) {
    return complain(vrdma::base::sentence_of(app, wrong) + "; see --help", kUsage);
  }
  const Fd stop = await_signals();
  std::array<End, 2> ends;
  for (size_t i = 0; i < 2; ++i) {
    const size_t colon = words[i].rfind(':');
    if (colon == std::string::npos)
      return complain("'" + words[i] + "' is no end: give NETNS:NETDEV", kUsage);
    auto tap = make_tap(words[i].substr(0, colon), words[i].substr(colon + 1), mtu);
    if (!tap) return complain(words[i] + ": " + tap.error().message());
    ends[i].name = words[i];
    ends[i].tap = std::move(*tap);
  }
  std::printf("ready\n");
  std::fflush(stdout);
  Wire wire(std::move(ends), faults, seed);
  wire.run(stop.get());
  wire.print(seed);
  return 0;
}
