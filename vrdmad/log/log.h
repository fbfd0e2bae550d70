// The daemon's log: one line per message on standard error, as text or as JSON. Rooms call spdlog
// directly; log_fields() adds fields to a message.
//
//   2026-11-21T20:22:10+0000 info vdevice red0: deleted
//   {"time":"2026-11-21T20:22:10.123+00:00","level":"info","message":"vdevice red0: deleted"}
//
// A message may contain text of a tenant: it is always one line, and always valid JSON.
#pragma once

#include <spdlog/common.h>
#include <spdlog/formatter.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace vrdma::vrdmad {

enum class LogFormat { kText, kJson };

// Creates the default logger. Call before any thread exists.
void start_log(LogFormat format, spdlog::level::level_enum level);

// Text lines by spdlog's pattern; %* is the message.
[[nodiscard]] std::unique_ptr<spdlog::formatter> text_formatter(const std::string& pattern);

using LogFields = std::vector<std::pair<std::string, std::variant<std::string, int64_t>>>;

// Logs `sentence` as text, or in JSON with the fields. Any thread.
void log_fields(spdlog::level::level_enum level, const std::string& sentence,
                const LogFields& fields);

// {"time":...,"level":...,"message":...,<fields>}, without a newline.
[[nodiscard]] std::string json_line(spdlog::log_clock::time_point time, const std::string& level,
                                    const std::string& sentence, const LogFields& fields);

}  // namespace vrdma::vrdmad
