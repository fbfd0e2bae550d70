// `vrdmactl events`.
#pragma once

#include <vrdma/v1/admin.pb.h>

#include <cstdint>
#include <optional>
#include <string>

namespace vrdma::cli {

// "90s", "10m", "2h", "1d": that long before `now`. "2026-11-29", "2026-11-29 10:05[:30]": the
// local time. All in milliseconds of Unix time. Nothing: it is none of these.
[[nodiscard]] std::optional<int64_t> time_of(const std::string& text, int64_t now_ms);

// One line, without its end.
[[nodiscard]] std::string text_of(const v1::Event& event);
[[nodiscard]] std::string json_of(const v1::Event& event);

}  // namespace vrdma::cli
