#include "cli/events.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <ctime>
#include <iostream>
#include <nlohmann/json.hpp>

#include "cli/connect.h"

namespace vrdma::cli {

namespace {

std::string local_time(int64_t ms) {
  const std::time_t seconds = ms / 1000;
  std::tm parts{};
  std::string text(32, '\0');
  ::localtime_r(&seconds, &parts);
  text.resize(std::strftime(text.data(), text.size(), "%F %T", &parts));
  return text;
}

int64_t now_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

}  // namespace

std::optional<int64_t> time_of(const std::string& text, int64_t now) {
  int64_t number = 0;
  const char* const last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), last, number);
  constexpr int64_t kMost = 100'000'000;
  if (error == std::errc() && end + 1 == last && number >= 0 && number < kMost)
    for (const auto& [unit, ms] :
         {std::pair{'s', 1000}, {'m', 60'000}, {'h', 3'600'000}, {'d', 86'400'000}})
      if (*end == unit) return std::max<int64_t>(now - number * ms, 0);
  for (const char* const form :
       {"%Y-%m-%d", "%Y-%m-%d %H:%M", "%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S"}) {
    std::tm parts{};
    parts.tm_isdst = -1;
    const char* const rest = ::strptime(text.c_str(), form, &parts);
    if (rest == nullptr || *rest != '\0') continue;
    if (const std::time_t seconds = std::mktime(&parts); seconds >= 0)
      return int64_t{seconds} * 1000;
  }
  return {};
}

std::string text_of(const v1::Event& event) {
  std::string text = local_time(event.last_ms()) + " " + event.type();
  if (!event.vdev().empty()) text += " " + event.netns() + "/" + event.vdev();
  const bool is_tenant = !event.tenant().empty() && !event.tenant().starts_with("vdev/");
  if (is_tenant) text += (event.type() == "hook" ? " " : " tenant ") + event.tenant();
  if (!event.who().empty()) text += " of " + event.who();
  if (event.pid() != 0)
    text += " " + (event.program().empty() ? "process" : event.program()) + "[" +
            std::to_string(event.pid()) + "]";
  text += ": " + event.reason();
  if (event.count() > 1)
    text += ", " + std::to_string(event.count()) + " times since " + local_time(event.first_ms());
  return text;
}

std::string json_of(const v1::Event& event) {
  const nlohmann::ordered_json json{
      {"number", event.number()},   {"type", event.type()},   {"first_ms", event.first_ms()},
      {"last_ms", event.last_ms()}, {"count", event.count()}, {"vdev", event.vdev()},
      {"vdev_id", event.vdev_id()}, {"netns", event.netns()}, {"tenant", event.tenant()},
      {"who", event.who()},         {"pid", event.pid()},     {"program", event.program()},
      {"reason", event.reason()},   {"share", event.share()}};
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

// JSON of -f is a line for each, as that of `watch`.
Outcome events(const Options& options, Output&) {
  const int64_t since = options.since.empty() ? 0 : time_of(options.since, now_ms()).value_or(0);
  const bool json = options.format == Format::kJson;
  return with_client(options, [&](api::Client& client) -> Outcome {
    if (options.follow)
      return client.watch_events(since, [&](const v1::Event& event) {
        std::cout << (json ? json_of(event) : text_of(event)) << std::endl;
        return static_cast<bool>(std::cout);
      });
    const auto all = client.list_events(since);
    if (!all) return base::pass(all.error());
    if (!json)
      for (const auto& event : *all) std::cout << text_of(event) << '\n';
    if (!json) return {};
    std::cout << '[';
    for (const auto& event : *all)
      std::cout << (&event == all->data() ? "\n  " : ",\n  ") << json_of(event);
    std::cout << (all->empty() ? "]\n" : "\n]\n");
    return {};
  });
}

}  // namespace vrdma::cli
