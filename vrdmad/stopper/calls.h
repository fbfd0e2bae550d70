// How a stop affects the system call that a thread blocks in: ptrace(2) interrupts the call like a
// signal.
//
// The kernel restarts most calls, invisibly to the program. Some return EINTR although nothing was
// done yet; the tracer can restart these. Others return early with part of their work done, or
// cannot be repeated; a thread in one of these is not stopped.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "core/ipc/messages.h"

namespace vrdma::vrdmad::stopper {

struct SystemCall {
  int64_t number = -1;  // in the x86-64 table; -1: none
  std::array<uint64_t, 6> arguments{};
};

// Parses /proc/PID/task/TID/syscall; none if the thread runs or blocks outside of a call.
[[nodiscard]] std::optional<SystemCall> parse_call(std::string_view text);

// Why a thread in this call cannot be stopped: kBusyCall or kVfork; kNot: it can.
[[nodiscard]] ipc::Reached obstacle_in(const SystemCall& call);

// Whether EINTR from this call means that nothing was done, so that it may be restarted.
[[nodiscard]] bool may_begin_again(int64_t number);

}  // namespace vrdma::vrdmad::stopper
