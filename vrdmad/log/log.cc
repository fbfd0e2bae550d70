#include "vrdmad/log/log.h"

#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <ctime>
#include <memory>
#include <nlohmann/json.hpp>

#include "core/base/log.h"
#include "core/base/printable.h"

namespace vrdma::vrdmad {

namespace {

// The fields of the line that this thread logs: the logger calls the formatter on the same thread.
thread_local const LogFields* current_fields = nullptr;

class JsonFormatter final : public spdlog::formatter {
 public:
  void format(const spdlog::details::log_msg& message, spdlog::memory_buf_t& out) override {
    static const LogFields kNone;
    const auto level = spdlog::level::to_string_view(message.level);
    const std::string line = json_line(message.time, {level.data(), level.size()},
                                       {message.payload.data(), message.payload.size()},
                                       current_fields != nullptr ? *current_fields : kNone) +
                             "\n";
    out.append(line.data(), line.data() + line.size());
  }
  [[nodiscard]] std::unique_ptr<spdlog::formatter> clone() const override {
    return std::make_unique<JsonFormatter>();
  }
};

// The message in a text pattern, made printable because names in it may be a tenant's.
class Sentence final : public spdlog::custom_flag_formatter {
 public:
  void format(const spdlog::details::log_msg& message, const std::tm&,
              spdlog::memory_buf_t& out) override {
    const std::string text = base::printable({message.payload.data(), message.payload.size()});
    out.append(text.data(), text.data() + text.size());
  }
  [[nodiscard]] std::unique_ptr<spdlog::custom_flag_formatter> clone() const override {
    return std::make_unique<Sentence>();
  }
};

// RFC 3339, in the time zone of the host.
std::string time_text(spdlog::log_clock::time_point time) {
  const std::time_t seconds = spdlog::log_clock::to_time_t(time);
  std::tm parts{};
  ::localtime_r(&seconds, &parts);
  std::array<char, 32> day{}, zone{}, text{};
  (void)std::strftime(day.data(), day.size(), "%Y-%m-%dT%H:%M:%S", &parts);
  (void)std::strftime(zone.data(), zone.size(), "%z", &parts);
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(time.time_since_epoch());
  (void)std::snprintf(text.data(), text.size(), ".%03d%.3s:%.2s",
                      static_cast<int>(ms.count() % 1000), zone.data(), zone.data() + 3);
  return std::string(day.data()) + text.data();
}

}  // namespace

void start_log(LogFormat format, spdlog::level::level_enum level) {
  spdlog::set_default_logger(spdlog::stderr_logger_mt("vrdmad"));
  if (format == LogFormat::kJson)
    spdlog::set_formatter(std::make_unique<JsonFormatter>());
  else
    spdlog::set_formatter(
        text_formatter(::isatty(STDERR_FILENO) ? "%H:%M:%S %l %*" : "%Y-%m-%dT%H:%M:%S%z %l %*"));
  spdlog::set_level(level);
  base::set_log([](base::LogLevel how, const std::string& sentence) {
    spdlog::log(how == base::LogLevel::kInfo ? spdlog::level::info : spdlog::level::warn, "{}",
                sentence);
  });
}

std::unique_ptr<spdlog::formatter> text_formatter(const std::string& pattern) {
  auto formatter = std::make_unique<spdlog::pattern_formatter>();
  formatter->add_flag<Sentence>('*').set_pattern(pattern);
  return formatter;
}

void log_fields(spdlog::level::level_enum level, const std::string& sentence,
                const LogFields& fields) {
  current_fields = &fields;
  spdlog::log(level, "{}", sentence);
  current_fields = nullptr;
}

std::string json_line(spdlog::log_clock::time_point time, const std::string& level,
                      const std::string& sentence, const LogFields& fields) {
  nlohmann::ordered_json line{{"time", time_text(time)}, {"level", level}, {"message", sentence}};
  for (const auto& [name, value] : fields)
    std::visit([&, &key = name](const auto& held) { line[key] = held; }, value);
  return line.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace vrdma::vrdmad
