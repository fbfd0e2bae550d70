#include "netns/netns.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <linux/nsfs.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include <algorithm>
#include <system_error>
#include <thread>

#include "core/base/netns_cookie.h"

namespace vrdma::netns {

namespace {

// Quotes operator input for a one-line sentence.
std::string quoted(std::string text) {
  for (char& c : text)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  return "'" + text + "'";
}

bool all_digits(const std::string& text) {
  return !text.empty() &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

// Both files are open, so equal numbers mean the same file.
bool is_own(const base::Fd& nsfs) {
  struct stat own {
  }, other{};
  return ::stat("/proc/thread-self/ns/net", &own) == 0 && ::fstat(nsfs.get(), &other) == 0 &&
         own.st_dev == other.st_dev && own.st_ino == other.st_ino;
}

base::Result<uint64_t> cookie_of(const base::Fd& nsfs) {
  if (is_own(nsfs)) return base::own_netns_cookie();
  base::Result<uint64_t> cookie = base::fail(EAGAIN, "cannot create a thread to enter a netns");
  try {
    // The calling thread does not change its namespace, so there is nothing to undo.
    std::thread([&] {
      if (::setns(nsfs.get(), CLONE_NEWNET) != 0)
        cookie = base::fail_errno("enter a netns");
      else
        cookie = base::own_netns_cookie();
    }).join();
  } catch (const std::system_error&) {
  }
  return cookie;
}

// `place` is an O_PATH descriptor of the file that `spec` names.
base::Result<Netns> open_nsfs(const base::Fd& place, const std::string& spec) {
  struct statfs filesystem {};
  if (::fstatfs(place.get(), &filesystem) != 0) return base::fail_errno("examine " + quoted(spec));
  const auto wrong =
      base::fail(EINVAL, quoted(spec) + " is not a network namespace (see ip-netns(8))");
  if (filesystem.f_type != NSFS_MAGIC) return wrong;
  auto fd = place.reopen(O_RDONLY | O_CLOEXEC);
  if (!fd) return base::pass(std::move(fd).error(), "open netns " + quoted(spec));
  if (::ioctl(fd->get(), NS_GET_NSTYPE) != CLONE_NEWNET) return wrong;
  auto cookie = cookie_of(*fd);
  if (!cookie) return base::pass(std::move(cookie).error(), "identify netns " + quoted(spec));
  return Netns{std::move(*fd), *cookie};
}

base::Fd open_place(const std::string& path) {
  return base::Fd(::open(path.c_str(), O_PATH | O_CLOEXEC));
}

base::Result<Netns> of_process(const std::string& spec) {
  const std::string pid = spec.substr(4);
  if (!all_digits(pid) || pid.find_first_not_of('0') == std::string::npos)
    return base::fail(EINVAL, quoted(spec) + " names no process: write pid: and a number");
  const std::string process = "/proc/" + pid;
  const base::Fd place = open_place(process + "/ns/net");
  if (place.valid()) return open_nsfs(place, spec);
  if (errno != ENOENT) return base::fail_errno("open netns " + quoted(spec));
  if (::access(process.c_str(), F_OK) == 0)
    return base::fail(ESRCH, "process " + pid + " has no network namespace: it is exiting");
  return base::fail(ESRCH, "there is no process " + pid);
}

base::Result<Netns> of_name(const std::string& spec) {
  if (spec.find('/') != std::string::npos || spec == "." || spec == "..")
    return base::fail(EINVAL, quoted(spec) +
                                  " is no netns: give a name in /run/netns, an absolute "
                                  "path, or pid:N");
  for (const auto* directory : {"/run/netns/", "/var/run/netns/"}) {
    const base::Fd place = open_place(directory + spec);
    if (place.valid()) return open_nsfs(place, spec);
    if (errno != ENOENT && errno != ENOTDIR) return base::fail_errno("open netns " + quoted(spec));
  }
  return base::fail(ENOENT, "there is no netns " + quoted(spec) + " in /run/netns");
}

}  // namespace

base::Result<Netns> resolve(const std::string& spec) {
  if (spec.empty())
    return base::fail(EINVAL, "no netns is given: write a name, an absolute path or pid:N");
  if (spec.find('\0') != std::string::npos)
    return base::fail(EINVAL, "the name of a netns cannot contain a NUL");
  if (spec.rfind("pid:", 0) == 0) return of_process(spec);
  if (spec[0] != '/') return of_name(spec);
  const base::Fd place = open_place(spec);
  if (!place.valid()) return base::fail_errno("open netns " + quoted(spec));
  return open_nsfs(place, spec);
}

base::Result<Netns> current() {
  const std::string path = "/proc/thread-self/ns/net";
  const base::Fd place = open_place(path);
  if (!place.valid()) return base::fail_errno("open " + path);
  return open_nsfs(place, path);
}

base::Result<void> enter(const Netns& netns) {
  if (::setns(netns.fd.get(), CLONE_NEWNET) != 0) return base::fail_errno("enter a netns");
  return {};
}

}  // namespace vrdma::netns
