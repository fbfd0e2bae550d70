#include "core/rdma/peer.h"

#include <elf.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string_view>
#include <utility>

#include "core/base/out_of_files.h"

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif
#ifndef SO_NETNS_COOKIE
#define SO_NETNS_COOKIE 71
#endif

namespace vrdma::rdma {

using base::fail;
using base::fail_errno;
using base::Fd;
using base::Result;

namespace {

Result<std::string> read_file(const Fd& directory, const char* name) {
  const Fd file(::openat(directory.get(), name, O_RDONLY | O_CLOEXEC));
  if (!file.valid()) return fail_errno(std::string("open /proc/PID/") + name);
  std::string text;
  char piece[4096];
  for (;;) {
    const ssize_t count = ::read(file.get(), piece, sizeof piece);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return fail_errno(std::string("read /proc/PID/") + name);
    if (count == 0) return text;
    text.append(piece, static_cast<size_t>(count));
  }
}

// Field `wanted` of /proc/PID/stat; the second, the name, may contain anything.
uint64_t field_of(std::string_view stat, int wanted) {
  size_t at = stat.rfind(')');
  for (int field = 2; at != std::string_view::npos && field < wanted; ++field)
    at = stat.find(' ', at + 1);
  return at == std::string_view::npos ? 0 : std::strtoull(stat.data() + at, nullptr, 10);
}

// The numbers after `key` at the start of a line of /proc/PID/status.
bool read_numbers(const std::string& status, const char* key, int base, uint64_t* out,
                  size_t count) {
  const size_t line = status.find(std::string("\n") + key);
  if (line == std::string::npos) return false;
  const char* at = status.c_str() + line + 1 + std::strlen(key);
  for (size_t i = 0; i < count; ++i) {
    char* end = nullptr;
    out[i] = std::strtoull(at, &end, base);
    if (end == at) return false;
    at = end;
  }
  return true;
}

bool read_ids(const std::string& status, const char* key, Peer::Ids* ids) {
  std::array<uint64_t, 4> wide{};
  if (!read_numbers(status, key, 10, wide.data(), wide.size())) return false;
  std::transform(wide.begin(), wide.end(), ids->begin(),
                 [](uint64_t id) { return static_cast<uint32_t>(id); });
  return true;
}

// A program of 32 bits has another layout and is not found to be free of privilege.
bool is_secure(const std::string& auxv) {
  Elf64_auxv_t entry{};
  for (size_t at = 0; at + sizeof entry <= auxv.size(); at += sizeof entry) {
    std::memcpy(&entry, auxv.data() + at, sizeof entry);
    if (entry.a_type == AT_SECURE) return entry.a_un.a_val != 0;
    if (entry.a_type == AT_NULL) break;
  }
  return true;
}

// What is known of the file without asking its file system, which may be a tenant's.
bool read_file_id(const Fd& directory, const char* name, Peer::File* out) {
  struct statx status {};
  if (::statx(directory.get(), name, AT_STATX_DONT_SYNC | AT_NO_AUTOMOUNT, STATX_INO, &status) != 0)
    return false;
  *out = {uint64_t{status.stx_dev_major} << 32 | status.stx_dev_minor, status.stx_ino};
  return true;
}

Result<Peer> look_at(const Fd& directory) {
  auto status = read_file(directory, "status");
  if (!status) return base::pass(std::move(status).error());
  auto stat = read_file(directory, "stat");
  if (!stat) return base::pass(std::move(stat).error());
  auto auxv = read_file(directory, "auxv");
  if (!auxv) return base::pass(std::move(auxv).error());
  Peer peer;
  uint64_t pid = 0;
  struct stat owner {};
  if (!read_numbers(*status, "Pid:", 10, &pid, 1) ||
      !read_numbers(*status, "CapPrm:", 16, &peer.permitted, 1) ||
      !read_ids(*status, "Uid:", &peer.uids) || !read_ids(*status, "Gid:", &peer.gids) ||
      !read_file_id(directory, "exe", &peer.executable) ||
      !read_file_id(directory, "ns/user", &peer.user_namespace) ||
      !read_file_id(directory, "ns/net", &peer.network_namespace) ||
      ::fstatat(directory.get(), "status", &owner, 0) != 0)
    return fail(EPERM, "a process cannot be looked at: it has ended, or may not be traced");
  peer.pid = static_cast<int32_t>(pid);
  peer.start_time = field_of(*stat, 22);
  peer.program = field_of(*stat, 28) * 31 + field_of(*stat, 26);
  peer.secure = is_secure(*auxv) ? 1 : 0;
  peer.dumpable = owner.st_uid == peer.uid() ? 1 : 0;
  return peer;
}

Fd pidfd_of(pid_t pid) { return Fd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0))); }

// Why a process is not the one that was seen before.
tl::unexpected<base::Error> is_another(const Peer& peer) {
  const Fd now = pidfd_of(peer.pid);
  return fail(
      ESRCH,
      "process " + std::to_string(peer.pid) +
          (now.valid() && is_alive(now)
               ? " has changed its ids, namespaces or program, or is another one with that number"
               : " has ended"));
}

Fd pidfd_of_peer(int socket, pid_t pid) {
  int pidfd = -1;
  socklen_t size = sizeof pidfd;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERPIDFD, &pidfd, &size) == 0) return Fd(pidfd);
  return errno == ENOPROTOOPT ? pidfd_of(pid) : Fd();
}

// The number cannot get another owner while the process of the pidfd is not reaped, so a directory
// that was opened before the process was seen alive is that process's.
Result<Fd> open_directory(const Fd& pidfd, pid_t pid) {
  const std::string path = "/proc/" + std::to_string(pid);
  if (!pidfd.valid()) return fail(EPERM, "process " + std::to_string(pid) + " has ended");
  Fd directory(::open(path.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!directory.valid()) return fail_errno("open " + path);
  if (!is_alive(pidfd)) return fail(EPERM, "process " + std::to_string(pid) + " has ended");
  return directory;
}

Result<PeerHandle> hold(Fd pidfd, pid_t pid) {
  const auto directory = open_directory(pidfd, pid);
  if (!directory) return base::pass(directory.error());
  auto peer = look_at(*directory);
  if (!peer) return base::pass(std::move(peer).error());
  return PeerHandle{*peer, std::move(pidfd)};
}

Result<MemoryFiles> open_files(const Fd& directory, pid_t pid, bool writable) {
  MemoryFiles files;
  files.writable = writable;
  files.memory = Fd(::openat(directory.get(), "mem", (writable ? O_RDWR : O_RDONLY) | O_CLOEXEC));
  files.maps = Fd(::openat(directory.get(), "maps", O_RDONLY | O_CLOEXEC));
  if (!files.memory.valid() || !files.maps.valid())
    return fail_errno("open the memory of process " + std::to_string(pid));
  return files;
}

Result<void> is_unchanged(const PeerHandle& handle, const Fd& directory) {
  auto now = look_at(directory);
  if (!now) return base::pass(std::move(now).error());
  now->netns_cookie = handle.peer.netns_cookie;
  if (*now != handle.peer || !is_alive(handle.pidfd))
    return fail(EPERM, "process " + std::to_string(handle.peer.pid) +
                           " changed its ids, namespaces or program since it connected");
  return {};
}

bool all_equal(const Peer::Ids& ids) {
  return std::all_of(ids.begin(), ids.end(), [&](uint32_t id) { return id == ids[0]; });
}

}  // namespace

Result<void> check_kernel() {
  const Fd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  uint64_t cookie = 0;
  socklen_t length = sizeof cookie;
  if (::getsockopt(socket.get(), SOL_SOCKET, SO_NETNS_COOKIE, &cookie, &length) != 0)
    return fail(ENOTSUP,
                "the kernel has no SO_NETNS_COOKIE (Linux 5.14), without which a network namespace "
                "cannot be told from a later one");
  if (!pidfd_of(::getpid()).valid())
    return fail(ENOTSUP,
                "the kernel has no pidfd_open (Linux 5.3), or forbids it here, without "
                "which a process cannot be told from a later one");
  return {};
}

Result<Connected> who_connected(int socket) {
  ucred credentials{};
  socklen_t length = sizeof credentials;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &length) != 0)
    return fail_errno("ask who connected");
  if (credentials.pid <= 0)
    return fail(EPERM, "a process connected that no pid namespace of vrdmad contains");
  Connected connected{credentials.pid, credentials.uid, credentials.gid, 0,
                      pidfd_of_peer(socket, credentials.pid)};
  length = sizeof connected.netns_cookie;
  if (::getsockopt(socket, SOL_SOCKET, SO_NETNS_COOKIE, &connected.netns_cookie, &length) != 0)
    return fail_errno("ask for the cookie of a network namespace");
  return connected;
}

Result<PeerHandle> identify_peer(Connected connected) {
  auto handle = hold(std::move(connected.pidfd), connected.pid);
  if (!handle) return handle;
  Peer& peer = handle->peer;
  if (connected.uid != peer.uid() || connected.gid != peer.gid())
    return fail(EPERM,
                "process " + std::to_string(peer.pid) + " changed its ids since it connected");
  peer.netns_cookie = connected.netns_cookie;
  return handle;
}

Result<PeerHandle> identify_peer(int socket) {
  auto connected = who_connected(socket);
  if (!connected) return base::pass(std::move(connected).error());
  return identify_peer(std::move(*connected));
}

Result<PeerHandle> find_peer(const Peer& peer) { return find_peer(peer, pidfd_of(peer.pid)); }

Result<PeerHandle> find_peer(const Peer& peer, Fd pidfd) {
  auto handle = hold(std::move(pidfd), peer.pid);
  if (handle) handle->peer.netns_cookie = peer.netns_cookie;
  if (!handle || handle->peer != peer) return is_another(peer);
  return handle;
}

Result<Fd> open_directory(const PeerHandle& handle) {
  return open_directory(handle.pidfd, handle.peer.pid);
}

Result<void> is_unchanged(const PeerHandle& handle) {
  const auto directory = open_directory(handle);
  if (!directory) return base::pass(directory.error());
  return is_unchanged(handle, *directory);
}

Result<MemoryFiles> open_memory(const PeerHandle& handle, bool writable) {
  const auto directory = open_directory(handle);
  if (!directory) return base::pass(directory.error());
  auto files = open_files(*directory, handle.peer.pid, writable);
  if (!files) return files;
  if (auto after = is_unchanged(handle, *directory); !after)
    return base::pass(std::move(after).error());
  return files;
}

Result<FoundPeer> find_peer_and_open(const Peer& peer, bool writable) {
  PeerHandle handle{peer, pidfd_of(peer.pid)};
  const auto directory = open_directory(handle);
  if (!directory) return is_another(peer);
  auto files = open_files(*directory, peer.pid, writable);
  if (!is_unchanged(handle, *directory)) return is_another(peer);
  if (!files) return base::pass(std::move(files).error());
  return FoundPeer{std::move(handle), std::move(*files)};
}

std::string reason_to_refuse(const Peer& peer) {
  if (!all_equal(peer.uids) || !all_equal(peer.gids))
    return "its real, effective, saved and file-system ids are not all equal";
  if (peer.secure != 0) return "it gained ids or capabilities by exec (AT_SECURE)";
  return {};
}

bool is_alive(const Fd& pidfd) {
  pollfd state{pidfd.get(), POLLIN, 0};
  return ::poll(&state, 1, 0) == 0;
}

Result<pid_t> pid_of(const Fd& pidfd) {
  errno = 0;
  std::ifstream info("/proc/self/fdinfo/" + std::to_string(pidfd.get()));
  if (!info.is_open()) return base::fail_errno("look at a process");
  std::string word;
  while (info >> word)
    if (pid_t pid = 0; word == "Pid:" && info >> pid) return std::max(pid, 0);
  return 0;
}

bool exists(pid_t pid) {
  const Fd pidfd = pidfd_of(pid);
  return pidfd.valid() ? is_alive(pidfd) : errno != ESRCH;
}

Result<uint64_t> start_time_of(pid_t pid) {
  const std::string path = "/proc/" + std::to_string(pid);
  const Fd directory(::open(path.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  auto stat = directory.valid() ? read_file(directory, "stat") : fail_errno("open " + path);
  if (!stat && base::out_of_files(stat.error().code()))
    return fail(stat.error().code(), "vrdmad has too many open files to look at a process");
  const uint64_t time = stat ? field_of(*stat, 22) : 0;
  if (time == 0) return fail(ESRCH, "process " + std::to_string(pid) + " has ended");
  return time;
}

}  // namespace vrdma::rdma
