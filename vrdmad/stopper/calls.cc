#include "vrdmad/stopper/calls.h"

#include <sys/socket.h>
#include <sys/syscall.h>

#include <algorithm>
#include <cstdlib>
#include <string>

namespace vrdma::vrdmad::stopper {

std::optional<SystemCall> parse_call(std::string_view text) {
  const std::string line(text);
  SystemCall call;
  char* end = nullptr;
  call.number = std::strtoll(line.c_str(), &end, 10);
  if (end == line.c_str() || call.number < 0) return std::nullopt;  // "running" or "-1 ..."
  for (uint64_t& argument : call.arguments) {
    const char* const at = end;
    argument = std::strtoull(at, &end, 16);
    if (end == at) return std::nullopt;
  }
  return call;
}

ipc::Reached obstacle_in(const SystemCall& call) {
  const auto& with = call.arguments;
  switch (call.number) {
    // These may have done a part of their work.
    case SYS_write:
    case SYS_writev:
    case SYS_sendto:
    case SYS_sendmsg:
    case SYS_sendmmsg:
    case SYS_sendfile:
    case SYS_splice:
    case SYS_tee:
    case SYS_vmsplice:
    case SYS_copy_file_range:
    case SYS_recvmmsg:
    case SYS_io_getevents:
    case SYS_io_pgetevents:
    case SYS_io_uring_enter:
    // These cannot be repeated, whatever they return.
    case SYS_close:
    case SYS_execve:
    case SYS_execveat:
      return ipc::Reached::kBusyCall;
    case SYS_recvfrom:
      return (with[3] & MSG_WAITALL) != 0 ? ipc::Reached::kBusyCall : ipc::Reached::kNot;
    case SYS_recvmsg:
      return (with[2] & MSG_WAITALL) != 0 ? ipc::Reached::kBusyCall : ipc::Reached::kNot;
    // A thread blocks in these only while its child uses its memory.
    case SYS_clone:
    case SYS_clone3:
    case SYS_vfork:
      return ipc::Reached::kVfork;
    default:
      return ipc::Reached::kNot;
  }
}

bool may_begin_again(int64_t number) {
  // Of the socket calls, the kernel itself restarts those without a timeout (SO_RCVTIMEO,
  // SO_SNDTIMEO).
  constexpr std::array kCalls{SYS_epoll_wait, SYS_epoll_pwait, SYS_epoll_pwait2,    SYS_read,
                              SYS_readv,      SYS_recvfrom,    SYS_recvmsg,         SYS_accept,
                              SYS_accept4,    SYS_connect,     SYS_rt_sigtimedwait, SYS_semop,
                              SYS_semtimedop, SYS_msgrcv,      SYS_msgsnd};
  return std::find(kCalls.begin(), kCalls.end(), number) != kCalls.end();
}

}  // namespace vrdma::vrdmad::stopper
