// Sentences for the operator's log, of code that runs in more than one program.
//
// The program decides where they go; until it does, they go to standard error. Any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "core/base/clock.h"

namespace vrdma::base {

enum class LogLevel : uint8_t { kInfo, kWarning };

void log(LogLevel level, const std::string& sentence);
inline void log_info(const std::string& sentence) { log(LogLevel::kInfo, sentence); }
inline void log_warning(const std::string& sentence) { log(LogLevel::kWarning, sentence); }

// Call before the program has threads. `sink` is called on the thread that logs.
void set_log(std::function<void(LogLevel, const std::string&)> sink);
// For a program whose peer could fill the log: at most so many sentences a second come to the sink,
// and as many at once; the next one after a gap is preceded by how many were left out. 0: no limit.
// Call before the program has threads. `clock` must outlive the last log().
void limit_log(uint64_t a_second, const Clock& clock = Clock::steady());

}  // namespace vrdma::base
