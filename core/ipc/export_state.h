// What a program says of a virtual machine that it shows its vdevice to (pvrdma/), in its queue
// arena.
//
// The program writes there what has changed. A worker copies it when an operator asks, so it costs
// nothing until then, the next worker finds it, and it goes with the session. A program may write
// anything there: read() copies each word once, and operators see it as what that program says.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>

#include "core/ipc/layout.h"

namespace vrdma::ipc {

// All but grow, also where another process of the program goes on.
struct ExportCounts {
  // Accesses of the machine, each of which leaves it: to doorbells, and to all else.
  uint64_t doorbells = 0, registers = 0;
  uint64_t commands = 0, interrupts = 0;
  uint64_t replaced = 0;  // processes that died, and in whose place another went on
  // What the guest was refused: its driver's attempts to attach, commands, doorbells of no object,
  // and work requests. Rings whose index is none are among the events, or the requests.
  uint64_t attaches_refused = 0, commands_refused = 0, doorbells_refused = 0, requests_refused = 0;
  uint64_t events_lost = 0;  // completions among them: the guest's ring had no room, or was none
  bool operator==(const ExportCounts&) const = default;
};

// How doorbells reach the program.
enum class DoorbellMode : uint32_t {
  kUnknown = 0,
  kTrap = 1,  // each leaves the machine
};

// A copy.
struct Export {
  std::string socket;  // the path to which the VMM connects: any bytes but 0
  bool has_vmm = false;
  DoorbellMode mode{};
  std::optional<uint32_t> driver;  // its version, as the guest said; none: no driver is attached
  ExportCounts counts;
  bool operator==(const Export&) const = default;
};

class ExportState {
 public:
  static constexpr size_t kMostPath = 127;  // bytes; a socket's path has at most 107

  // ---- for the program
  // Exported from now on.
  void begin(const std::string& socket, DoorbellMode mode) {
    socket.copy(socket_, kMostPath);
    mode_.store(static_cast<uint32_t>(mode), std::memory_order_relaxed);
    is_exported_.store(1, std::memory_order_release);
  }
  void set_vmm(bool connected) { has_vmm_.store(connected ? 1 : 0, std::memory_order_relaxed); }
  void set_driver(std::optional<uint32_t> version) {
    driver_.store(version.value_or(0), std::memory_order_relaxed);
    has_driver_.store(version ? 1 : 0, std::memory_order_relaxed);
  }
  void set_counts(const ExportCounts& counts) {
    const auto words = std::bit_cast<Words>(counts);
    for (size_t i = 0; i < words.size(); ++i) counts_[i].store(words[i], std::memory_order_relaxed);
  }

  // ---- for a worker
  // Nothing: the vdevice is not exported by this program.
  [[nodiscard]] std::optional<Export> read() const {
    if (is_exported_.load(std::memory_order_acquire) == 0) return std::nullopt;
    Export copy;
    std::array<char, kMostPath> path;
    std::memcpy(path.data(), socket_, path.size());
    copy.socket.assign(path.begin(), std::find(path.begin(), path.end(), '\0'));
    copy.has_vmm = has_vmm_.load(std::memory_order_relaxed) != 0;
    if (mode_.load(std::memory_order_relaxed) == static_cast<uint32_t>(DoorbellMode::kTrap))
      copy.mode = DoorbellMode::kTrap;
    if (has_driver_.load(std::memory_order_relaxed) != 0)
      copy.driver = driver_.load(std::memory_order_relaxed);
    Words words;
    for (size_t i = 0; i < words.size(); ++i) words[i] = counts_[i].load(std::memory_order_relaxed);
    copy.counts = std::bit_cast<ExportCounts>(words);
    return copy;
  }

 private:
  using Words = std::array<uint64_t, sizeof(ExportCounts) / sizeof(uint64_t)>;
  alignas(64) Word is_exported_{0};
  Word has_vmm_{0}, mode_{0}, has_driver_{0}, driver_{0}, reserved_[3]{};
  char socket_[kMostPath + 1] = {};
  std::array<std::atomic<uint64_t>, std::tuple_size_v<Words>> counts_{};
};
// Versions that count more append it.
static_assert(sizeof(ExportState) <= kKickOffset - kExportOffset);

}  // namespace vrdma::ipc
