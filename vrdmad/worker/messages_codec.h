// The messages of control and workers as bytes.
//
// A message is its alternative's number and its fields in order, without padding; numbers are
// little-endian. decode() takes the bytes of a stranger: it checks each bound, enumerator and flag,
// and refuses what is too short or goes on after the end. What decode() accepts, encode() gives
// back byte for byte.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "vrdmad/worker/messages.h"

namespace vrdma::vrdmad {

constexpr size_t kMostGids = verbs::kMaxGids;
constexpr size_t kMostName = 255;           // bytes of a name
constexpr size_t kMostText = 4096;          // bytes of a sentence or a path
constexpr size_t kMostMessage = 192 << 10;  // bytes: fits a SOCK_SEQPACKET's buffer

// Nothing: a bound does not hold.
[[nodiscard]] std::optional<std::vector<uint8_t>> encode(const ToWorker& message);
[[nodiscard]] std::optional<std::vector<uint8_t>> encode(const ToControl& message);
[[nodiscard]] std::optional<ToWorker> decode_to_worker(std::span<const uint8_t> bytes);
[[nodiscard]] std::optional<ToControl> decode_to_control(std::span<const uint8_t> bytes);

}  // namespace vrdma::vrdmad
