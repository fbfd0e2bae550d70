#include "cli/bad_wire/options.h"

#include <charconv>
#include <cmath>
#include <span>
#include <string_view>

#include "cli/bad_wire/direction.h"
#include "core/base/option_check.h"

namespace vrdma::cli::bad_wire {

namespace {

constexpr double kPercent = 100, kNanoseconds = 1e6;  // of a millisecond

struct Unit {
  std::string_view name;
  double factor;
};
using Units = std::span<const Unit>;
constexpr Unit kPercents[] = {{"%", 1}};
constexpr Unit kMilliseconds[] = {{"ms", 1}, {"us", 1e-3}, {"s", 1e3}};
constexpr Unit kBits[] = {{"bit", 1}, {"kbit", 1e3}, {"mbit", 1e6}, {"gbit", 1e9}};

// Changes a number with a unit into one without. `form` ends the sentence of an error.
CLI::Validator number(Units units, double least, double most, const char* form) {
  return CLI::Validator(
      [units, least, most, form](std::string& text) -> std::string {
        const std::string lower = CLI::detail::to_lower(text);
        double value = 0;
        const auto [end, error] = std::from_chars(lower.data(), lower.data() + lower.size(), value);
        const std::string_view unit(end, static_cast<size_t>(lower.data() + lower.size() - end));
        double factor = unit.empty() ? 1 : 0;
        for (const auto& [name, its] : units)
          if (unit == name) factor = its;
        value *= factor;
        if (error != std::errc() || factor == 0 || !(value >= least && value <= most))
          return base::in_quotes(text) + " is not " + form;
        text = std::to_string(value);
        return {};
      },
      "");
}

struct Chance {
  const char *name, *help;
  double Faults::*member;
};
constexpr Chance kChances[] = {
    {"--loss", "packets that are lost", &Faults::loss},
    {"--reorder", "packets that are held until others have passed", &Faults::reorder},
    {"--duplicate", "packets that arrive twice", &Faults::duplicate},
    {"--corrupt", "packets in which one bit behind the IP header is flipped", &Faults::corrupt},
    {"--mark", "packets that are marked (ECN: CE); with --rate, of those that wait",
     &Faults::mark}};
struct Time {
  const char *name, *help;
  Duration Faults::*member;
};
constexpr Time kTimes[] = {
    {"--delay", "for each packet", &Faults::delay},
    {"--jitter", "up to so much more for each packet, in the same order", &Faults::jitter},
    {"--queue", "with --rate: the longest wait; packets that find a longer queue are lost",
     &Faults::queue}};

}  // namespace

void add_options(CLI::App& app, Faults& faults) {
  for (const Chance& chance : kChances)
    app.add_option_function<double>(
           chance.name,
           [&faults, &chance](double percent) { faults.*chance.member = percent / kPercent; },
           chance.help)
        ->transform(number(kPercents, 0, 100, "0 to 100 percent, such as 1 or 0.5%"))
        ->type_name("PERCENT");
  for (const Time& time : kTimes)
    app.add_option_function<double>(
           time.name,
           [&faults, &time](double milliseconds) {
             faults.*time.member = Duration(std::llround(milliseconds * kNanoseconds));
           },
           time.help)
        ->transform(number(kMilliseconds, 0, 60'000, "0 to 60 seconds, such as 2, 2ms or 0.5s"))
        ->type_name("MILLISECONDS");
  app.add_option_function<double>(
         "--rate",
         [&faults](double bits) { faults.rate = static_cast<uint64_t>(std::llround(bits)); },
         "bits a second, each way")
      ->transform(number(kBits, 1000, 1e12,
                         "1000 to 10^12 bits a second, such as 20000000, 20mbit or 10gbit"))
      ->type_name("BITS");
  app.add_option("--behind", faults.behind, "how many packets pass one that is held")
      ->check(base::number(1, 1000, "1 to 1000"), "")
      ->type_name("N")
      ->capture_default_str()
      ->needs("--reorder");
  app.add_flag("--right-checksum", faults.right_checksum,
               "corrupted packets have the right UDP checksum, so that only the ICRC tells")
      ->needs("--corrupt");
  app.add_flag("--all", faults.all, "not only RoCE v2 (UDP port 4791)");
  app.get_option("--queue")->needs("--rate");
}

std::string without_effect(const CLI::App& app) {
  for (const CLI::Option* option : app.get_options()) {
    const std::string name = option->get_name();
    if (option->count() > 0 && name != "--all" && name != "--seed") return {};
  }
  for (const char* name : {"--all", "--seed"})
    if (const CLI::Option* option = app.get_option_no_throw(name); option && option->count() > 0)
      return std::string(name) + " has no effect without what it is for, such as --loss 1";
  return {};
}

std::vector<std::string> words_of(const Faults& faults) {
  std::vector<std::string> words;
  for (const Chance& chance : kChances)
    words.insert(words.end(), {chance.name, std::to_string(faults.*chance.member * kPercent)});
  for (const Time& time : kTimes)
    if (time.member != &Faults::queue || faults.rate > 0)
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
