// How the daemon speaks: one line a thing, on standard error, as text for people or as JSON for
// programs. Everybody logs by spdlog's own calls; what has more to say than a sentence uses
// log_fields().
//
//   2026-11-21T20:22:10+0000 info vdevice red0: deleted
//   {"time":"2026-11-21T20:22:10.123+00:00","level":"info","message":"vdevice red0: deleted"}
//
// A sentence may have come from anywhere: it is always one line, and always JSON's.
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

// Makes the default logger. Before any thread.
void start_log(LogFormat format, spdlog::level::level_enum level);

// Lines of text by spdlog's pattern, in which %* is the sentence.
[[nodiscard]] std::unique_ptr<spdlog::formatter> text_formatter(const std::string& pattern);

using LogFields = std::vector<std::pair<std::string, std::variant<std::string, int64_t>>>;

// `sentence` as text, and in JSON the fields beside it. Any thread.
void log_fields(spdlog::level::level_enum level, const std::string& sentence,
                const LogFields& fields);

// {"time":...,"level":...,"message":...,<fields>}, without a newline.
[[nodiscard]] std::string json_line(spdlog::log_clock::time_point time, const std::string& level,
                                    const std::string& sentence, const LogFields& fields);

}  // namespace vrdma::vrdmad
