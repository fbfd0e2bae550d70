// A network namespace of a test's own.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <string>
#include <thread>

#include "core/base/fd.h"

namespace vrdma::vrdmad {

inline void write_file(const char* path, const std::string& text) {
  const base::Fd file(::open(path, O_WRONLY | O_CLOEXEC));
  EXPECT_EQ(::write(file.get(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
}

// A network namespace whose lo is up. False: the host does not let this user make one.
inline bool enter_own_netns() {
  const std::string user = "0 " + std::to_string(::geteuid()) + " 1";
  const std::string group = "0 " + std::to_string(::getegid()) + " 1";
  if (::unshare(CLONE_NEWNET) != 0) {
    if (::unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0) return false;
    write_file("/proc/self/setgroups", "deny");
    write_file("/proc/self/uid_map", user);
    write_file("/proc/self/gid_map", group);
  }
  const base::Fd socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ifreq lo{};
  std::strcpy(lo.ifr_name, "lo");
  lo.ifr_flags = IFF_UP | IFF_RUNNING;
  return ::ioctl(socket.get(), SIOCSIFFLAGS, &lo) == 0;
}

// Runs `test` on a thread in such a namespace, or skips it.
template <class Test>
void in_own_netns(Test test) {
  bool entered = false;
  std::thread([&] {
    entered = enter_own_netns();
    if (entered) test();
  }).join();
  if (!entered) GTEST_SKIP() << "no network namespace";
}

}  // namespace vrdma::vrdmad
