#include "vrdmad/privileges.h"

#include <cap-ng.h>
#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <fstream>

#include "core/base/fd.h"

namespace vrdma::vrdmad {

namespace fs = std::filesystem;

using base::fail;
using base::fail_errno;
using base::Fd;
using base::pass;
using base::Result;

namespace {

// Not listed: what only main.cc needs, before this: CAP_SYS_RESOURCE, to raise RLIMIT_NOFILE;
// CAP_CHOWN, to give the daemon's user its directories. The reader of the unit file relies on these
// comments, so each states a purpose.
constexpr std::array kNeeded{
    // setns(2) into a vdevice's network namespace, to create sockets there: netns/netns.cc,
    // vrdmad/broker/local_broker.cc
    unsigned{CAP_SYS_ADMIN},
    // /proc/PID/mem, /proc/PID/ns/net and descriptors of processes of other users:
    // core/rdma/peer.cc, vrdmad/broker/held_files.cc, netns/netns.cc
    unsigned{CAP_SYS_PTRACE},
    // to open the same for writing, which their mode permits only to their owner, and
    // /dev/userfaultfd if a host gives it to a group: core/rdma/peer.cc,
    // vrdmad/broker/local_broker.cc
    unsigned{CAP_DAC_OVERRIDE},
    // links and addresses of other namespaces (IFA_TARGET_NETNSID), numbers for them
    // (RTM_NEWNSID), large receive buffers for their events: netns/route_socket.cc
    unsigned{CAP_NET_ADMIN},
    // links of all namespaces by one socket (NETLINK_LISTEN_ALL_NSID): netns/route_socket.cc
    unsigned{CAP_NET_BROADCAST},
    // packet sockets for raw packet queue pairs: vrdmad/broker/local_broker.cc
    unsigned{CAP_NET_RAW},
    // the empty root of worker processes: vrdmad/broker/worker_child.cc, as for all below
    unsigned{CAP_SYS_CHROOT},
    // to make worker processes those of the daemon's user, without groups
    unsigned{CAP_SETUID},
    unsigned{CAP_SETGID},
    // to empty their capability bounding set
    unsigned{CAP_SETPCAP},
    // to kill them, as they have another user; also for the signal at the end of their parent
    unsigned{CAP_KILL},
};

bool is_mapped(const char* map, uint64_t id) {
  std::ifstream file(map);
  for (uint64_t inside = 0, outside = 0, count = 0; file >> inside >> outside >> count;)
    if (id >= inside && id - inside < count) return true;
  return false;
}

// Opens a directory. No other user than root can have replaced a part of its path: no part is a
// link, and each belongs to root and can be written by no other user, or has the sticky bit. Makes
// missing parts. Returns no descriptor if another user can have replaced a part.
Result<Fd> open_roots(const fs::path& path) {
  Fd at(::open("/", O_PATH | O_DIRECTORY | O_CLOEXEC));
  for (const fs::path& part : path.relative_path()) {
    if (part.empty()) continue;
    if (::mkdirat(at.get(), part.c_str(), 0755) != 0 && errno != EEXIST && errno != EROFS)
      return fail_errno("make " + path.string());
    at = Fd(::openat(at.get(), part.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
    struct stat status {};
    if (!at.valid() || ::fstat(at.get(), &status) != 0) return fail_errno("open " + path.string());
    const bool others = (status.st_mode & (S_IWGRP | S_IWOTH)) != 0;
    if (!S_ISDIR(status.st_mode) || status.st_uid != ::geteuid() ||
        (others && (status.st_mode & S_ISVTX) == 0))
      return Fd();
  }
  return at;
}

bool matches(const std::string& pattern, const std::string& name) {
  if (pattern.ends_with('*')) return name.starts_with(pattern.substr(0, pattern.size() - 1));
  return name == pattern;
}

// libcap-ng keeps what it was told in a thread-local variable.
Result<void> apply(bool bounds) {
  if (const int failed = ::capng_apply(bounds ? CAPNG_SELECT_BOTH : CAPNG_SELECT_CAPS); failed != 0)
    return fail(EPERM, "drop capabilities: libcap-ng returns " + std::to_string(failed));
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return fail_errno("set no-new-privs");
  return {};
}

// Without CAP_SETPCAP the bounding set cannot be reduced; no-new-privileges suffices then.
bool can_reduce_bounds() { return ::capng_have_capability(CAPNG_EFFECTIVE, CAP_SETPCAP) != 0; }

}  // namespace

Result<User> find_user(const std::string& name) {
  User user;
  const passwd* entry = ::getpwnam(name.c_str());
  if (entry == nullptr) {
    const char* const end = name.data() + name.size();
    const auto number = std::from_chars(name.data(), end, user.uid);
    if (number.ec != std::errc() || number.ptr != end)
      return fail(ENOENT, "there is no user '" + name + "'");
    user.gid = user.uid;  // unless the number is that of a known user
    entry = ::getpwuid(user.uid);
  }
  if (entry != nullptr) user = {entry->pw_uid, entry->pw_gid};
  if (!is_mapped("/proc/self/uid_map", user.uid) || !is_mapped("/proc/self/gid_map", user.gid))
    return fail(EINVAL, "this user namespace has no user " + std::to_string(user.uid));
  return user;
}

Result<void> give(const OwnDirectory& directory, const User& user) {
  std::error_code error;
  const fs::path path = fs::absolute(directory.path, error).lexically_normal();
  if (user.uid == ::geteuid()) {
    if (!fs::create_directories(path, error) && error)
      return fail(error.value(), "make " + path.string() + ": " + error.message());
    return {};
  }
  auto parent = open_roots(path.parent_path());
  if (!parent) return pass(std::move(parent).error());
  if (!parent->valid()) return {};
  const std::string name = path.filename();
  if (::mkdirat(parent->get(), name.c_str(), directory.mode) != 0 && errno != EEXIST)
    return fail_errno("make the directory " + path.string());
  const Fd top(
      ::openat(parent->get(), name.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct stat status {};
  if (!top.valid() || ::fstat(top.get(), &status) != 0 || status.st_uid != ::geteuid()) return {};
  if ((status.st_mode & (S_IWGRP | S_IWOTH)) != 0)
    return fail(EPERM, path.string() + " is writable by other users");
  std::vector<std::string> all;
  for (const auto& entry : fs::directory_iterator(path, error)) {
    const std::string each = entry.path().filename();
    if (each == directory.kept) continue;
    if (std::none_of(directory.ours.begin(), directory.ours.end(),
                     [&](const std::string& pattern) { return matches(pattern, each); }))
      return fail(EPERM, path.string() + " has files of others (" + each +
                             "): choose another directory, or give it to user " +
                             std::to_string(user.uid));
    all.push_back(entry.path());
    if (entry.is_directory() && !entry.is_symlink())
      for (const auto& below : fs::recursive_directory_iterator(entry.path(), error))
        all.push_back(below.path());
  }
  if (error) return fail(error.value(), "read " + path.string() + ": " + error.message());
  all.push_back(path);
  for (const std::string& each : all) {
    // A second name of a file may be that of a file elsewhere.
    if (::lstat(each.c_str(), &status) == 0 && !S_ISDIR(status.st_mode) && status.st_nlink > 1)
      continue;
    if (::lchown(each.c_str(), user.uid, user.gid) != 0 && errno != ENOENT)
      return fail_errno("give " + each + " to user " + std::to_string(user.uid));
  }
  return {};
}

Result<void> give_file(const std::string& path, const User& user) {
  if (user.uid == ::geteuid()) return {};
  std::error_code error;
  const fs::path whole = fs::absolute(path, error).lexically_normal();
  auto directory = open_roots(whole.parent_path());
  if (!directory) return pass(std::move(directory).error());
  if (!directory->valid()) return {};
  const Fd file(::openat(directory->get(), whole.filename().c_str(),
                         O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC,
                         0600));
  struct stat status {};
  if (!file.valid() || ::fstat(file.get(), &status) != 0) return fail_errno("open " + path);
  if (!S_ISREG(status.st_mode) || status.st_nlink > 1 || status.st_uid != ::geteuid()) return {};
  if (::fchown(file.get(), user.uid, user.gid) != 0)
    return fail_errno("give " + path + " to user " + std::to_string(user.uid));
  return {};
}

std::vector<std::string> missing_capabilities() {
  std::vector<std::string> missing;
  ::capng_get_caps_process();
  for (const unsigned each : kNeeded)
    if (::capng_have_capability(CAPNG_PERMITTED, each) == 0)
      missing.emplace_back(::capng_capability_to_name(each));
  return missing;
}

Result<void> keep_broker_privileges() {
  ::capng_get_caps_process();
  std::array<bool, kNeeded.size()> held{};
  for (size_t i = 0; i < kNeeded.size(); ++i)
    held[i] = ::capng_have_capability(CAPNG_PERMITTED, kNeeded[i]) != 0;
  const bool bounds = can_reduce_bounds();
  ::capng_clear(CAPNG_SELECT_ALL);
  for (size_t i = 0; i < kNeeded.size(); ++i)
    if (held[i])
      ::capng_update(
          CAPNG_ADD,
          static_cast<capng_type_t>(CAPNG_EFFECTIVE | CAPNG_PERMITTED | CAPNG_BOUNDING_SET),
          kNeeded[i]);
  return apply(bounds);
}

Result<void> drop_privileges(const User& user) {
  ::capng_get_caps_process();
  const bool bounds = can_reduce_bounds();
  ::capng_clear(CAPNG_SELECT_ALL);
  if (bounds && ::capng_apply(CAPNG_SELECT_BOUNDS) != 0)
    return fail(EPERM, "reduce the capability bounding set");
  if (user.uid != ::geteuid()) {
    if (::setgroups(0, nullptr) != 0 || ::setresgid(user.gid, user.gid, user.gid) != 0 ||
        ::setresuid(user.uid, user.uid, user.uid) != 0)
      return fail_errno("become the user " + std::to_string(user.uid));
  }
  ::capng_clear(CAPNG_SELECT_ALL);
  if (auto done = apply(false); !done) return done;
    // A process of the same user could attach to it otherwise. A sanitizer attaches to itself.
#if defined(__SANITIZE_ADDRESS__)
  constexpr unsigned long kDumpable = 1;
#else
  constexpr unsigned long kDumpable = 0;
#endif
  if (::prctl(PR_SET_DUMPABLE, kDumpable, 0, 0, 0) != 0) return fail_errno("forbid tracing");
  return {};
}

}  // namespace vrdma::vrdmad
