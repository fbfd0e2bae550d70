// The audit log: one line for each call of the admin API that changes something, done or refused.
//
// The line goes to the log and, if configured, to the audit file, where it is always JSON:
//
//   {"time":"...","level":"info","message":"audit: uid 0 pid 4711 (vrdmactl): vdev create red0
//    netns=red netdev=eth0: done","audit":"vdev create","object":"red0","arguments":"netns=red
//    ...", "uid":0,"pid":4711,"program":"vrdmactl","result":"done"}
//
// A refusal has "result":"refused", "errno" and "error" (the sentence). uid and pid are those that
// the kernel recorded when the client connected to the admin socket.
#pragma once

#include <sys/types.h>

#include <functional>
#include <mutex>
#include <string>

#include "core/base/error.h"

namespace vrdma::vrdmad {

struct AdminPeer {
  uid_t uid = 0;
  pid_t pid = 0;        // in the daemon's pid namespace
  std::string program;  // its comm, which the client can choose
};

struct AuditRecord {
  AdminPeer who;
  std::string action;     // "vdev create", ...
  std::string object;     // the name of what it changes
  std::string arguments;  // "netns=red netdev=eth0"
  int error = 0;          // 0: done
  std::string sentence;   // the reason of a refusal
};

// Any thread.
using AuditSink = std::function<void(const AuditRecord&)>;

// `file` may be empty: then only to the log. It is reopened for each line, so that it may be
// rotated; an error of a write is logged. Error: it cannot be opened now.
[[nodiscard]] base::Result<AuditSink> open_audit(const std::string& file);

}  // namespace vrdma::vrdmad
