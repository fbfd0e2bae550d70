// What a system call that a thread sits in makes of a stop: ptrace(2) interrupts it as a signal
// would.
//
// Most calls are begun again by the kernel and the program sees nothing. Some return EINTR though
// nothing has been done yet: these can be begun again by the tracer. Some return early with a part
// of their work done, or cannot be repeated: a thread in one of these is left alone.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "core/ipc/messages.h"

namespace vrdma::vrdmad::stopper {

struct SystemCall {
  int64_t number = -1;  // of the x86-64 table; -1: none
  std::array<uint64_t, 6> arguments{};
};

// What /proc/PID/task/TID/syscall says; none if the thread runs, or sits in no call.
[[nodiscard]] std::optional<SystemCall> parse_call(std::string_view text);

// Why a thread in this call cannot be stopped: kBusyCall, kVfork; kNot: it can.
[[nodiscard]] ipc::Reached obstacle_in(const SystemCall& call);

// Whether EINTR of this call says that nothing has been done, so that it may be begun again.
[[nodiscard]] bool may_begin_again(int64_t number);

}  // namespace vrdma::vrdmad::stopper
