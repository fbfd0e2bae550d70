#include "cli/criu/peers.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>

#include "cli/criu/descriptors.h"
#include "cli/criu/vrdmad.h"

namespace vrdma::cli::criu {

using base::fail;
using base::fail_errno;
using base::Fd;
using base::pass;
using base::Result;
using What = OfPeer::View::What;

namespace {

// As base::Mapping::shared() and AddressSpace make them.
Result<void> map(Held& held, const OfPeer::View& view, int number) {
  auto done = held.call("map a peer's file", SYS_mmap, view.address, view.length,
                        static_cast<uint64_t>(view.protection), MAP_SHARED | MAP_FIXED,
                        static_cast<uint64_t>(number), view.offset);
  if (!done) return pass(std::move(done).error());
  for (const int advice : {MADV_DONTDUMP, MADV_DONTFORK})
    (void)held.call("advise a mapping", SYS_madvise, view.address, view.length,
                    static_cast<uint64_t>(advice));
  return {};
}

// The addresses stay taken, so that the library can unmap them.
Result<void> map_nothing(Held& held, const OfPeer::View& view) {
  auto done = held.call("map nothing", SYS_mmap, view.address, view.length, PROT_NONE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, ~0ull, 0);
  if (!done) return pass(std::move(done).error());
  return {};
}

OfPeer::View view_of(const MappedFile& file, What what) {
  return {what, file.start, file.end - file.start, file.offset, file.protection};
}

// Whom to believe: control, which names processes and files, may be a tenant's by now.

struct User {
  uid_t uid = 0;
  uint64_t device = 0, inode = 0;  // of the user namespace
  bool operator==(const User&) const = default;
};
std::optional<User> user_of(pid_t pid) {
  std::istringstream uids(status_of(pid, "Uid"));
  uid_t real = 0, effective = 0;
  struct stat space {};
  if (!(uids >> real >> effective) ||
      ::stat(("/proc/" + std::to_string(pid) + "/ns/user").c_str(), &space) != 0)
    return {};
  return User{effective, space.st_dev, space.st_ino};
}

// Whether the other process may have a direct link with `pid`: rdma::Process::may_share_with().
bool is_fellow(pid_t other, pid_t pid) {
  const auto user = user_of(other);
  struct stat file {};  // of root, if the process is not dumpable
  return user && user == user_of(pid) &&
         ::stat(("/proc/" + std::to_string(other) + "/status").c_str(), &file) == 0 &&
         file.st_uid == user->uid;
}

// A worker has the files of programs that are away. Without worker processes, control is it.
bool is_worker(pid_t pid) {
  const std::string exe = "/proc/" + std::to_string(pid) + "/exe";
  char path[4096];
  const ssize_t length = ::readlink(exe.c_str(), path, sizeof path);
  std::string_view name(path, length > 0 ? static_cast<size_t>(length) : 0);
  constexpr std::string_view kDeleted = " (deleted)";
  if (name.ends_with(kDeleted)) name.remove_suffix(kDeleted.size());
  struct stat program {};  // anybody can have one of that name
  const bool is_roots = ::stat(exe.c_str(), &program) == 0 && program.st_uid == 0 &&
                        (program.st_mode & (S_IWGRP | S_IWOTH)) == 0;
  return (is_roots && name.ends_with("/vrdmad-worker")) || pid == control_pid();
}

// Programs share memory files that cannot shrink, and ends of sockets; nothing else is handed on.
bool is_shared(const Fd& file, uint64_t inode) {
  struct stat status {};
  if (!file.valid() || ::fstat(file.get(), &status) != 0 || status.st_ino != inode) return false;
  if (const int seals = ::fcntl(file.get(), F_GET_SEALS); seals >= 0)
    return (seals & F_SEAL_SHRINK) != 0;
  const auto has = [&file](int option, int wanted) {
    int is = 0;
    socklen_t size = sizeof is;
    return ::getsockopt(file.get(), SOL_SOCKET, option, &is, &size) == 0 && is == wanted;
  };
  return has(SO_DOMAIN, AF_UNIX) && has(SO_TYPE, SOCK_SEQPACKET) && has(SO_ACCEPTCONN, 0);
}

// A file of another process, for `to`; or nothing: that has closed it, has ended, or is another
// user's.
Fd file_of(const Held& to, pid_t pid, uint64_t inode) {
  const Fd process(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (!process.valid() || !(is_fellow(pid, to.pid()) || is_worker(pid))) return {};
  const auto numbers = numbers_of(descriptors_of(pid), inode);
  if (numbers.empty()) return {};
  Fd file(static_cast<int>(::syscall(SYS_pidfd_getfd, process.get(), numbers.front(), 0)));
  return is_shared(file, inode) ? std::move(file) : Fd();
}

// A file that is not there leaves all as it is.
template <class Then>
Result<void> with_file(Held& held, const Fd& file, Then then) {
  if (!file.valid()) return {};
  auto number = held.give(file);
  if (!number) return pass(std::move(number).error());
  return then(*number);
}

Result<void> replace(Held& held, const Fd& file, const std::vector<int>& numbers) {
  if (numbers.empty()) return {};
  return with_file(held, file,
                   [&](int number) { return put(held, static_cast<uint64_t>(number), numbers); });
}

// Whether accesses to the views will never fault, whatever the file's owner does.
bool holds(const Fd& file, const std::vector<OfPeer::View>& views) {
  struct stat status {};
  const int seals = ::fcntl(file.get(), F_GET_SEALS);
  return seals >= 0 && (seals & F_SEAL_SHRINK) != 0 && ::fstat(file.get(), &status) == 0 &&
         std::all_of(views.begin(), views.end(), [&](const auto& view) {
           return view.offset + view.length <= static_cast<uint64_t>(status.st_size);
         });
}

Result<void> show(Held& held, const Fd& file, const std::vector<OfPeer::View>& views) {
  if (views.empty()) return {};
  if (file.valid() && !holds(file, views)) return fail(EINVAL, "a file of it is not vrdma's");
  return with_file(held, file, [&](int number) -> Result<void> {
    for (const auto& view : views)
      if (auto done = map(held, view, number); !done) return done;
    return close(held, number);
  });
}

std::vector<OfPeer::View> of_kind(const OfPeer& peer, What what) {
  std::vector<OfPeer::View> views;
  std::copy_if(peer.views.begin(), peer.views.end(), std::back_inserter(views),
               [what](const auto& view) { return view.what == what; });
  return views;
}

// What `pid` has of a session that shares `files`.
OfPeer look_for(pid_t pid, const std::vector<Descriptor>& descriptors, const Shared& files) {
  OfPeer found;
  found.session = files.number;
  found.memory_inode = files.memory;
  for (const MappedFile& one : mapped_files_of(pid))
    for (const auto& [inode, what] : {std::pair(files.arena, What::kArena),
                                      {files.bells, What::kBells},
                                      {files.memory, What::kMemory}})
      if (inode != 0 && one.inode == inode) found.views.push_back(view_of(one, what));
  found.memory = numbers_of(descriptors, files.memory);
  for (const auto& [handle, inode] : files.channels)
    if (auto numbers = numbers_of(descriptors, inode); !numbers.empty())
      found.ends[handle] = std::move(numbers);
  return found;
}

bool has_something(const OfPeer& of) {
  return !of.views.empty() || !of.memory.empty() || !of.ends.empty();
}

// Of sessions that have ended: nothing executes there, and CRIU cannot write it to disk.
Result<void> take_out_strangers(Held& held) {
  for (const MappedFile& one : mapped_files_of(held.pid()))
    if (one.name.rfind(kMemory, 0) == 0)
      if (auto done = map_nothing(held, view_of(one, What::kMemory)); !done) return done;
  std::vector<int> numbers;
  for (const Descriptor& one : descriptors_of(held.pid()))
    if (one.target.rfind(kMemory, 0) == 0) numbers.push_back(one.number);
  return numbers.empty() ? Result<void>{} : put_eventfd(held, numbers);
}

// The files of a session as `now` tells, which process `owner` has, where `held` had others;
// `memory` is its memory's file. The windows into that are the caller's.
Result<void> exchange(Held& held, const OfPeer& had, pid_t owner, const Shared& now,
                      const Fd& memory) {
  const auto its = [&](uint64_t inode) { return file_of(held, owner, inode); };
  if (auto done = show(held, its(now.arena), of_kind(had, What::kArena)); !done) return done;
  if (auto done = show(held, its(now.bells), of_kind(had, What::kBells)); !done) return done;
  if (auto done = replace(held, memory, had.memory); !done) return done;
  for (const auto& [handle, numbers] : had.ends) {
    const auto end = now.channels.find(handle);
    if (end == now.channels.end()) continue;
    if (auto done = replace(held, its(end->second), numbers); !done) return done;
  }
  return {};
}

// The peer's files as they are now in `held`, which had `of`.
Result<void> show_peer(Held& held, const OfPeer& of, const Shared& peer) {
  // While it is away, and afterwards, its memory is reached.
  const Fd memory = peer.away ? Fd() : file_of(held, peer.pid, peer.memory);
  if (peer.memory == of.memory_inode)
    if (auto done = show(held, memory, of_kind(of, What::kMemory)); !done) return done;
  return exchange(held, of, peer.pid, peer, memory);
}

// A peer of `held` that maps what `before` shared gets what is shared now, which process `owner`
// has.
Result<void> show_to_peer(const Held& held, pid_t owner, const Shared& before, const Shared& now,
                          pid_t peer) {
  const OfPeer has = look_for(peer, descriptors_of(peer), before);
  if (!has_something(has) || !is_fellow(peer, held.pid())) return {};
  auto there = Held::hold(peer);
  if (!there) return there.error().code() == ESRCH ? Result<void>{} : pass(there.error());
  if (!is_fellow(peer, held.pid())) return {};  // another one may have had the number
  if (now.memory != before.memory)
    for (const auto& view : of_kind(has, What::kMemory))
      if (auto done = map_nothing(*there, view); !done) return done;
  return exchange(*there, has, owner, now, file_of(*there, owner, now.memory));
}

// show(before, now, peer) for each session and each process that may map what it shares.
template <class Show>
Result<void> for_each_peer(const ParkedProgram& now, const std::vector<Shared>& made, Show show) {
  std::set<pid_t> peers;
  for (const Shared& peer : now.peers)
    if (!peer.away) peers.insert(peer.pid);
  for (const Shared& before : now.sessions) {
    const auto its = std::find_if(made.begin(), made.end(),
                                  [&](const Shared& one) { return one.number == before.number; });
    if (its == made.end()) continue;
    for (const pid_t peer : peers)
      if (auto done = show(before, *its, peer); !done) return done;
  }
  return {};
}

}  // namespace

Result<void> take_out_peers(Held& held, const ParkedProgram& program, std::vector<OfPeer>* had) {
  const auto descriptors = descriptors_of(held.pid());
  for (const Shared& peer : program.peers) {
    OfPeer of = look_for(held.pid(), descriptors, peer);
    if (!has_something(of)) continue;
    had->push_back(of);
    for (const auto& view : of_kind(of, What::kMemory))
      if (auto done = map_nothing(held, view); !done) return done;
    std::vector<int> numbers = of.memory;
    for (const auto& [handle, ends] : of.ends)
      numbers.insert(numbers.end(), ends.begin(), ends.end());
    if (!numbers.empty())
      if (auto done = put_eventfd(held, numbers); !done) return done;
  }
  return take_out_strangers(held);
}

// The directory is one that only vrdmad and root can open.
Result<Meeting> Meeting::begin() {
  constexpr int kTries = 1000;
  constexpr useconds_t kPause = 10'000;
  const std::string path = run_dir() + "/state";
  Fd lock(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!lock.valid()) return fail_errno("open " + path);
  for (int tries = 0; ::flock(lock.get(), LOCK_EX | LOCK_NB) != 0; ++tries) {
    if (errno != EWOULDBLOCK && errno != EINTR) return fail_errno("lock " + path);
    if (tries == kTries)
      return fail(ETIMEDOUT, "another process has been coming back for 10 s: try again");
    ::usleep(kPause);
  }
  return Meeting(std::move(lock));
}

Result<void> meet_peers(Held& held, const std::vector<OfPeer>& had, const ParkedProgram& now,
                        const std::vector<Shared>& made) {
  for (const OfPeer& of : had) {
    const auto peer = std::find_if(now.peers.begin(), now.peers.end(),
                                   [&](const Shared& one) { return one.number == of.session; });
    if (peer == now.peers.end()) continue;
    if (auto done = show_peer(held, of, *peer); !done) return done;
  }
  return for_each_peer(now, made, [&](const Shared& before, const Shared& its, pid_t peer) {
    return peer == held.pid() ? Result<void>{} : show_to_peer(held, held.pid(), before, its, peer);
  });
}

void part_from_peers(const Held& held, const ParkedProgram& now, const std::vector<Shared>& made) {
  (void)for_each_peer(now, made, [&](const Shared& before, const Shared& its, pid_t peer) {
    (void)show_to_peer(held, before.pid, its, before, peer);
    return Result<void>{};
  });
}

}  // namespace vrdma::cli::criu
