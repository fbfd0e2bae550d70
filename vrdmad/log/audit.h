// Who changed what: a line for each call of the admin API that changes something, done or refused.
//
// The line goes to the log and, if one was named, to the audit file, there always as JSON:
//
//   {"time":"...","level":"info","message":"audit: uid 0 pid 4711 (vrdmactl): vdev create red0
//    netns=red netdev=eth0: done","audit":"vdev create","object":"red0","arguments":"netns=red
//    ...", "uid":0,"pid":4711,"program":"vrdmactl","result":"done"}
//
// A refusal has "result":"refused", "errno" and "error", the sentence. Who: as the kernel says of
// the peer of the admin socket when it connected.
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
  std::string program;  // its comm; whoever runs it may have chosen it
};

struct AuditRecord {
  AdminPeer who;
  std::string action;     // "vdev create", ...
  std::string object;     // what it is done to
  std::string arguments;  // "netns=red netdev=eth0"
  int error = 0;          // 0: done
  std::string sentence;   // why it was refused
};

// Any thread.
using AuditSink = std::function<void(const AuditRecord&)>;

// `file` may be empty: then to the log only. It is opened anew for each line, so that it may be
// moved away; a line that cannot be written is said in the log. An error: it cannot be opened now.
[[nodiscard]] base::Result<AuditSink> open_audit(const std::string& file);

}  // namespace vrdma::vrdmad
