// Makes untrusted text safe for a log line, a terminal or a message.
#pragma once

#include <string>
#include <string_view>

namespace vrdma::base {

constexpr size_t kMostPrinted = 2048;  // gRPC carries no sentence of more than 8 KiB

// `text` with each byte written as \xNN that is neither printable ASCII nor part of a character in
// UTF-8, and cut off after `most` bytes. Characters that would change how a terminal shows the line
// (C1 controls, Unicode's bidirectional controls and line separators) are written so too.
// Backslashes are unchanged: names of control groups contain them, and the text is for people, not
// for decoding.
[[nodiscard]] std::string printable(std::string_view text, size_t most = kMostPrinted);

// Whether all of it is (RFC 3629).
[[nodiscard]] bool is_utf8(std::string_view text);

}  // namespace vrdma::base
