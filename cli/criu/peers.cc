#include "cli/criu/peers.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <set>
#include <string>
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

// A file of another process, or nothing: that has closed it, or has ended.
Fd file_of(pid_t pid, uint64_t inode) {
  const Fd process(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  const auto numbers = numbers_of(descriptors_of(pid), inode);
  if (!process.valid() || numbers.empty()) return {};
  return Fd(static_cast<int>(::syscall(SYS_pidfd_getfd, process.get(), numbers.front(), 0)));
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
  const auto its = [owner](uint64_t inode) { return file_of(owner, inode); };
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
  const Fd memory = peer.away ? Fd() : file_of(peer.pid, peer.memory);
  if (peer.memory == of.memory_inode)
    if (auto done = show(held, memory, of_kind(of, What::kMemory)); !done) return done;
  return exchange(held, of, peer.pid, peer, memory);
}

// A peer that maps what `before` shared gets what is shared now, which process `owner` has.
Result<void> show_to_peer(pid_t owner, const Shared& before, const Shared& now, pid_t peer) {
  const OfPeer has = look_for(peer, descriptors_of(peer), before);
  if (!has_something(has)) return {};
  auto there = Held::hold(peer);
  if (!there) return there.error().code() == ESRCH ? Result<void>{} : pass(there.error());
  if (now.memory != before.memory)
    for (const auto& view : of_kind(has, What::kMemory))
      if (auto done = map_nothing(*there, view); !done) return done;
  return exchange(*there, has, owner, now, file_of(owner, now.memory));
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
    return peer == held.pid() ? Result<void>{} : show_to_peer(held.pid(), before, its, peer);
  });
}

void part_from_peers(const ParkedProgram& now, const std::vector<Shared>& made) {
  (void)for_each_peer(now, made, [](const Shared& before, const Shared& its, pid_t peer) {
    (void)show_to_peer(before.pid, its, before, peer);
    return Result<void>{};
  });
}

}  // namespace vrdma::cli::criu
