// The output of `support`: "yes", or "no" for the errors that verbs prescribes for a missing
// feature, EOPNOTSUPP (or ENOSYS). Any other error of a call that should succeed is printed by its
// name.
#pragma once

#include <infiniband/verbs.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>

inline void line(const char* section, const std::string& name, const std::string& value) {
  std::printf("%s\t%s\t%s\n", section, name.c_str(), value.c_str());
}

inline std::string answer(int error) {
  if (error == 0) return "yes";
  if (error == EOPNOTSUPP || error == ENOSYS) return "no";
  return ::strerrorname_np(error);
}

// A verb that returns an errno, or -1 with errno, or IBV_REREG_MR_ERR_*.
inline int result(int returned) { return returned < 0 ? errno : returned; }
// A verb that returns an object; destroys it at once.
template <class T, class F>
int made(T* object, F destroy) {
  if (object == nullptr) return errno;
  destroy(object);
  return 0;
}

template <class F>
void verb(const std::string& name, F call) {
  errno = 0;
  line("verbs", name, answer(call()));
}

// support_newer.cc: the verbs that came after Debian 12's rdma-core.
void newer_verbs(ibv_context* context, ibv_pd* pd);
