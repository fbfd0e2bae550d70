#include "cli/bad_wire/options.h"

#include <cmath>

#include "cli/bad_wire/direction.h"

namespace vrdma::cli::bad_wire {

namespace {

constexpr double kPercent = 100, kNanoseconds = 1e6;  // of a millisecond

struct Chance {
  const char *name, *help;
  double Faults::*member;
};
constexpr Chance kChances[] = {
    {"--loss", "packets that are lost", &Faults::loss},
    {"--reorder", "packets that are held until others have passed", &Faults::reorder},
    {"--duplicate", "packets that arrive twice", &Faults::duplicate},
    {"--corrupt", "packets of which a bit flips, behind the IP header", &Faults::corrupt},
    {"--mark", "packets that are marked (ECN: CE); with --rate, of those that wait",
     &Faults::mark}};
struct Time {
  const char *name, *help;
  Duration Faults::*member;
};
constexpr Time kTimes[] = {
    {"--delay", "that each packet takes", &Faults::delay},
    {"--jitter", "that it may take in addition, without a change of the order", &Faults::jitter},
    {"--queue", "with --rate: the longest wait; packets that find a longer queue are lost",
     &Faults::queue}};

}  // namespace

void add_options(CLI::App& app, Faults& faults) {
  for (const Chance& chance : kChances)
    app.add_option_function<double>(
           chance.name,
           [&faults, &chance](double percent) { faults.*chance.member = percent / kPercent; },
           chance.help)
        ->check(CLI::Range(0.0, 100.0))
        ->type_name("PERCENT");
  for (const Time& time : kTimes)
    app.add_option_function<double>(
           time.name,
           [&faults, &time](double milliseconds) {
             faults.*time.member = Duration(std::llround(milliseconds * kNanoseconds));
           },
           time.help)
        ->check(CLI::Range(0.0, 60000.0))
        ->type_name("MILLISECONDS");
  app.add_option("--rate", faults.rate, "bits a second, each way")
      ->check(CLI::Range(uint64_t{1000}, uint64_t{1} << 40))
      ->type_name("BITS");
  app.add_option("--behind", faults.behind, "how many packets pass one that is held")
      ->check(CLI::Range(1u, 1000u))
      ->type_name("N")
      ->capture_default_str();
  app.add_flag("--right-checksum", faults.right_checksum,
               "corrupted packets have the right UDP checksum, so that only the ICRC tells");
  app.add_flag("--all", faults.all, "not only RoCE v2 (UDP port 4791)");
}

std::vector<std::string> words_of(const Faults& faults) {
  std::vector<std::string> words;
  for (const Chance& chance : kChances)
    words.insert(words.end(), {chance.name, std::to_string(faults.*chance.member * kPercent)});
  for (const Time& time : kTimes)
    words.insert(words.end(),
                 {time.name, std::to_string(static_cast<double>((faults.*time.member).count()) /
                                            kNanoseconds)});
  if (faults.rate > 0) words.insert(words.end(), {"--rate", std::to_string(faults.rate)});
  words.insert(words.end(), {"--behind", std::to_string(faults.behind)});
  if (faults.right_checksum) words.emplace_back("--right-checksum");
  if (faults.all) words.emplace_back("--all");
  return words;
}

}  // namespace vrdma::cli::bad_wire
