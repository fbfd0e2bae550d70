#include "client/device/complaint.h"

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace vrdma::client {

namespace {

bool is_quiet() {
  const char* value = ::secure_getenv("VRDMA_QUIET");
  return value != nullptr && std::strcmp(value, "1") == 0;
}

// nullptr: use strerror(3).
const char* reason_of(int error) {
  switch (error) {
    case EPROTONOSUPPORT:
      return "vrdmad and this program's libibverbs.so.1 speak different versions of the session "
             "protocol; start the program again with the library that came with vrdmad";
    case EACCES:
      return "this program gained ids or capabilities when it was started (set-user-id, "
             "set-group-id or file capabilities), or its real and effective ids differ, or it may "
             "not enter the run directory";
    case EPERM:
      return "vrdmad does not recognise this process: it changed its ids, namespaces or program "
             "after it had connected, or is in a pid namespace that vrdmad cannot see";
    case ECONNREFUSED:
      return "vrdmad is not running; start it again";
    case ECHILD:
      return "vrdmad cannot start the worker that would serve this program; its log and 'vrdmactl "
             "doctor' say why";
    case EIO:
      return "vrdmad closed the connection; see its log and 'vrdmactl quota show' (conns)";
    case ENOMEM:
      return "its quota of open contexts is used up ('vrdmactl quota show'), or address space is "
             "limited (ulimit -v; about 9 GiB are needed)";
    case EMFILE:
      return "this program has no more file descriptors (ulimit -n)";
    case ENFILE:
      return "vrdmad has no more file descriptors (its ulimit -n, LimitNOFILE=); see its log";
    case ENOBUFS:
      return "vrdmad has no more address space or memory (its ulimit -v, -f; a program takes about "
             "10 GiB of address space there, too); see its log";
    default:
      return nullptr;
  }
}

}  // namespace

void complain(int error) {
  static std::atomic<bool> said = false;
  if (error == 0 || error == ENODEV || error == ENOENT || is_quiet() || said.exchange(true)) return;
  const int saved = errno;
  const char* const reason = reason_of(error);
  std::fprintf(stderr, "vrdma: a vdevice cannot be used: %s\n",
               reason != nullptr ? reason : std::strerror(error));
  errno = saved;
}

void complain_of_variable(const char* name, const char* value, const char* what) {
  if (is_quiet()) return;
  const int saved = errno;
  char shown[256];
  size_t length = 0;
  for (; value[length] != '\0' && length + 1 < sizeof shown; ++length) {
    const char c = value[length];
    shown[length] = c >= 0x20 && c < 0x7f ? c : '?';  // it may not steer a terminal
  }
  shown[length] = '\0';
  std::fprintf(stderr, "vrdma: %s is '%s': %s\n", name, shown, what);
  errno = saved;
}

}  // namespace vrdma::client
