#include "cli/criu/program.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <optional>
#include <set>
#include <utility>

#include "cli/criu/descriptors.h"
#include "cli/criu/mounts.h"
#include "cli/criu/peers.h"
#include "cli/criu/vrdmad.h"
#include "core/base/mapping.h"

namespace vrdma::cli::criu {

using base::fail;
using base::fail_errno;
using base::Fd;
using base::pass;
using base::Result;

namespace {

constexpr uint64_t kArenaBytes = 1ull << 47;  // ipc::kMemoryArenaSize

// The address of the peer of a unix socket of sequenced packets; none: it is not connected to one.
std::optional<std::string> peer_of(const Fd& socket) {
  sockaddr_un address{};
  socklen_t length = sizeof address;
  if (::getpeername(socket.get(), reinterpret_cast<sockaddr*>(&address), &length) != 0 ||
      address.sun_family != AF_UNIX || length <= offsetof(sockaddr_un, sun_path))
    return std::nullopt;
  return std::string(address.sun_path);
}

// "1234/0.sock": what follows the run directory, which may be another one here.
std::string name_of(const std::string& path) {
  const std::filesystem::path its(path);
  return (its.parent_path().filename() / its.filename()).string();
}

bool is_socket(const Descriptor& one) { return one.target.rfind("socket:", 0) == 0; }

bool has_ended(const Fd& socket) {
  pollfd its{socket.get(), POLLRDHUP, 0};
  return ::poll(&its, 1, 0) > 0;
}

// Puts the end of a pipe there that nobody writes to.
Result<void> hang_up(Held& held, const std::vector<int>& sockets) {
  if (sockets.empty()) return {};
  auto at = held.scratch();
  if (!at) return pass(std::move(at).error());
  int pipe[2];
  if (auto made = held.call("make a pipe", SYS_pipe2, *at, O_CLOEXEC); !made)
    return pass(std::move(made).error());
  if (auto done = held.read(*at, pipe, sizeof pipe); !done) return done;
  if (auto done = close(held, pipe[1]); !done) return done;
  return put(held, static_cast<uint64_t>(pipe[0]), sockets);
}

Result<void> watch_again(Held& held, const std::vector<EpollEntry>& entries) {
  auto at = held.scratch();
  if (!at) return pass(std::move(at).error());
  for (const EpollEntry& one : entries) {
    epoll_event event{};
    event.events = one.events;
    event.data.u64 = one.data;
    if (auto done = held.write(*at, &event, sizeof event); !done) return done;
    const auto added =
        held.call("watch a descriptor", SYS_epoll_ctl, static_cast<uint64_t>(one.epoll),
                  EPOLL_CTL_ADD, static_cast<uint64_t>(one.number), *at);
    if (!added && added.error().code() != EEXIST) return pass(added.error());
  }
  return {};
}

// --- memory ---

// A thread of the client library that has nothing but the descriptors by which it watches memory.
bool is_watcher(pid_t pid, pid_t thread) {
  if (thread == pid) return false;
  const auto all = descriptors_of(pid, thread);
  return std::any_of(all.begin(), all.end(),
                     [](const auto& one) { return one.target == kUserfaultfd; }) &&
         std::all_of(all.begin(), all.end(), [](const auto& one) {
           return one.target == kUserfaultfd || one.target.rfind(kMemory, 0) == 0;
         });
}

Result<void> end_watcher(Held& held) {
  for (const pid_t thread : threads_of(held.pid())) {
    if (!is_watcher(held.pid(), thread)) continue;
    user_regs_struct now{};
    if (::ptrace(PTRACE_GETREGS, thread, nullptr, &now) != 0)
      return fail_errno("look at thread " + std::to_string(thread));
    const auto call = static_cast<long>(now.orig_rax);
    if (call != SYS_poll && call != SYS_ppoll)
      return fail(EAGAIN, "the thread that watches memory works");
    if (auto ended = held.end_thread(thread); !ended) return ended;
  }
  return {};
}

// Copies what the arena contains of [start, end) to `to`, in the process.
Result<void> copy_out(const Held& held, const Fd& arena, const MappedFile& one, uint64_t to) {
  std::vector<uint8_t> bytes(1u << 20);
  const uint64_t end = one.offset + (one.end - one.start);
  for (uint64_t at = one.offset; at < end;) {
    const off_t data = ::lseek(arena.get(), static_cast<off_t>(at), SEEK_DATA);
    if (data < 0 || static_cast<uint64_t>(data) >= end) return {};
    at = static_cast<uint64_t>(data);
    const off_t hole = ::lseek(arena.get(), data, SEEK_HOLE);
    const uint64_t until = hole < 0 ? end : std::min(end, static_cast<uint64_t>(hole));
    while (at < until) {
      const size_t size = std::min<uint64_t>(bytes.size(), until - at);
      const ssize_t got = ::pread(arena.get(), bytes.data(), size, static_cast<off_t>(at));
      if (got <= 0) return fail_errno("read a memory arena");
      if (auto done = held.write(to + (at - one.offset), bytes.data(), static_cast<size_t>(got));
          !done)
        return done;
      at += static_cast<uint64_t>(got);
    }
  }
  return {};
}

Result<void> make_private(Held& held, const Fd& arena, const MappedFile& one) {
  const uint64_t size = one.end - one.start;
  auto copy = held.call("map memory", SYS_mmap, 0, size, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, ~0ull, 0);
  if (!copy) return pass(std::move(copy).error());
  if (auto copied = copy_out(held, arena, one, *copy); !copied) {
    (void)held.call("unmap memory", SYS_munmap, *copy, size);
    return copied;
  }
  if (auto done = held.call("protect memory", SYS_mprotect, *copy, size,
                            static_cast<uint64_t>(one.protection));
      !done)
    return pass(std::move(done).error());
  if (auto done = held.call("move memory", SYS_mremap, *copy, size, size,
                            MREMAP_MAYMOVE | MREMAP_FIXED, one.start);
      !done)
    return pass(std::move(done).error());
  return {};
}

// --- events ---

std::vector<pollfd> hang_ups(const std::vector<std::pair<uint64_t, Fd>>& sockets) {
  std::vector<pollfd> all;
  for (const auto& [inode, socket] : sockets) all.push_back({socket.get(), POLLRDHUP, 0});
  (void)::poll(all.data(), all.size(), 0);
  return all;
}

// Sockets of sequenced packets, each once.
std::vector<std::pair<uint64_t, Fd>> sockets_of(const Held& held,
                                                const std::vector<Descriptor>& all) {
  std::vector<std::pair<uint64_t, Fd>> sockets;
  std::set<uint64_t> seen;
  for (const Descriptor& one : all) {
    if (one.target.rfind("socket:", 0) != 0 || !seen.insert(one.inode).second) continue;
    auto socket = held.take(one.number);
    int type = 0, domain = 0;
    socklen_t size = sizeof type;
    if (!socket || ::getsockopt(socket->get(), SOL_SOCKET, SO_TYPE, &type, &size) != 0 ||
        ::getsockopt(socket->get(), SOL_SOCKET, SO_DOMAIN, &domain, &size) != 0 ||
        type != SOCK_SEQPACKET || domain != AF_UNIX)
      continue;
    sockets.emplace_back(one.inode, std::move(*socket));
  }
  return sockets;
}

// Takes it out.
std::vector<std::string> unread_of(const Fd& socket) {
  std::vector<std::string> messages;
  char message[Image::kMostMessage];
  for (ssize_t got = 0; (got = ::recv(socket.get(), message, sizeof message, MSG_DONTWAIT)) > 0;)
    messages.emplace_back(message, static_cast<size_t>(got));
  return messages;
}

// The other end of a pair hangs up when this one sends no more. Both are replaced anyway.
Result<EndPair> drained(const Held& held, const std::vector<Descriptor>& all, uint64_t write_end) {
  EndPair ends;
  ends.writes = numbers_of(all, write_end);
  if (ends.writes.empty()) return fail(ENOENT, "it has closed an end of its events");
  auto writer = held.take(ends.writes.front());
  if (!writer) return pass(std::move(writer).error());
  const auto sockets = sockets_of(held, all);
  const auto before = hang_ups(sockets);
  if (::shutdown(writer->get(), SHUT_WR) != 0) return fail_errno("end a pair of sockets");
  const auto after = hang_ups(sockets);
  const Fd* reader = nullptr;
  for (size_t i = 0; i < sockets.size(); ++i)
    if ((after[i].revents & POLLRDHUP) != 0 && (before[i].revents & POLLRDHUP) == 0 &&
        sockets[i].first != write_end) {
      reader = &sockets[i].second;
      ends.reads = numbers_of(all, sockets[i].first);
    }
  if (reader == nullptr) return fail(ENOENT, "it has closed an end of its events");
  ends.read_flags = ::fcntl(reader->get(), F_GETFL);
  ends.write_flags = ::fcntl(writer->get(), F_GETFL);
  socklen_t size = sizeof ends.room;
  (void)::getsockopt(writer->get(), SOL_SOCKET, SO_SNDBUF, &ends.room, &size);
  ends.messages = unread_of(*reader);
  return ends;
}

Result<std::array<int, 2>> make_sockets(Held& held) {
  auto at = held.scratch();
  if (!at) return pass(std::move(at).error());
  std::array<int, 2> pair{};
  if (auto made = held.call("make a pair of sockets", SYS_socketpair, AF_UNIX,
                            SOCK_SEQPACKET | SOCK_CLOEXEC, 0, *at);
      !made)
    return pass(std::move(made).error());
  if (auto done = held.read(*at, pair.data(), sizeof pair); !done)
    return pass(std::move(done).error());
  return pair;
}

Result<void> make_pair_again(Held& held, const EndPair& ends) {
  auto pair = make_sockets(held);
  if (!pair) return pass(std::move(pair).error());
  if (auto done = put(held, static_cast<uint64_t>((*pair)[0]), ends.reads); !done) return done;
  if (auto done = put(held, static_cast<uint64_t>((*pair)[1]), ends.writes); !done) return done;
  const auto writer = held.take(ends.writes.front());
  const auto reader = held.take(ends.reads.front());
  if (!writer || !reader) return pass((writer ? reader : writer).error());
  const int half = ends.room / 2;  // the kernel doubles the value (socket(7))
  if (::setsockopt(writer->get(), SOL_SOCKET, SO_SNDBUFFORCE, &half, sizeof half) != 0)
    (void)::setsockopt(writer->get(), SOL_SOCKET, SO_SNDBUF, &half, sizeof half);
  for (const std::string& message : ends.messages)
    (void)::send(writer->get(), message.data(), message.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  (void)::fcntl(reader->get(), F_SETFL, ends.read_flags & O_NONBLOCK);
  (void)::fcntl(writer->get(), F_SETFL, ends.write_flags & O_NONBLOCK);
  return {};
}

// The other end is closed: the library reads what was unread, and then asks for another socket.
Result<void> make_channel_again(Held& held, const Channel& channel) {
  auto pair = make_sockets(held);
  if (!pair) return pass(std::move(pair).error());
  {
    const auto writer = held.take((*pair)[1]);
    if (!writer) return pass(writer.error());
    // All must fit, because nothing reads them meanwhile. The kernel counts more than the bytes.
    constexpr size_t kMost = 1u << 30, kEach = 2 * Image::kMostMessage;
    const int room = static_cast<int>(std::min(kMost, (channel.messages.size() + 1) * kEach));
    (void)::setsockopt(writer->get(), SOL_SOCKET, SO_SNDBUFFORCE, &room, sizeof room);
    for (const std::string& message : channel.messages)
      if (::send(writer->get(), message.data(), message.size(), MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
        return fail_errno("give back unread events of rdma_cm");
    const auto reader = held.take((*pair)[0]);
    if (!reader) return pass(reader.error());
    (void)::fcntl(reader->get(), F_SETFL, channel.flags & O_NONBLOCK);
  }
  if (auto done = close(held, (*pair)[1]); !done) return done;
  return put(held, static_cast<uint64_t>((*pair)[0]), channel.numbers);
}

// Numbers of the sockets that are connected to vrdmad. EAGAIN: more of them than it has parked.
Result<std::vector<int>> sockets_to(const Held& held, const std::vector<Descriptor>& all,
                                    const ParkedProgram& program) {
  std::set<std::string> names, of_cm;
  for (const Shared& one : program.sessions) names.insert(name_of(one.socket));
  for (const Connections& one : program.connections) of_cm.insert(name_of(one.socket));
  std::vector<int> numbers;
  std::set<uint64_t> alive;  // of rdma_cm
  for (const Descriptor& one : all) {
    if (!is_socket(one)) continue;
    const auto socket = held.take(one.number);
    const auto peer = socket ? peer_of(*socket) : std::nullopt;
    if (!peer) continue;
    const bool is_cm = peer->ends_with("/rdma_cm");
    if (is_cm && !has_ended(*socket)) alive.insert(one.inode);
    if (is_cm ? of_cm.contains(name_of(*peer)) : names.contains(name_of(*peer)))
      numbers.push_back(one.number);
  }
  if (alive.size() > program.connections.size())
    return fail(EAGAIN, "it began to use rdma_cm when it was parked: try again");
  return numbers;
}

// vrdmad must own the arena, because it opens it anew. This process makes it: what the program has
// under a number, another one that shares its descriptors may exchange at any moment.
Result<void> make_arena_again(Held& held, const std::vector<int>& numbers) {
  const std::string state = run_dir() + "/state";  // of vrdmad's user
  struct stat vrdmad {};
  if (::lstat(state.c_str(), &vrdmad) != 0) return fail_errno("look at " + state);
  auto arena = base::make_memfd("vrdma-memory", kArenaBytes);
  if (!arena) return pass(std::move(arena).error());
  if (::fchown(arena->get(), vrdmad.st_uid, vrdmad.st_gid) != 0)
    return fail_errno("give a memory file to vrdmad");
  auto number = held.give(*arena);
  if (!number) return pass(std::move(number).error());
  return put(held, static_cast<uint64_t>(*number), numbers);
}

}  // namespace

bool has_vdevice(pid_t pid) {
  const auto all = mapped_files_of(pid);
  if (std::any_of(all.begin(), all.end(),
                  [](const MappedFile& one) { return one.name.rfind(kQueues, 0) == 0; }))
    return true;
  const Fd process(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  const auto descriptors = descriptors_of(pid);
  return std::any_of(descriptors.begin(), descriptors.end(), [&](const Descriptor& one) {
    if (!is_socket(one)) return false;
    const Fd socket(static_cast<int>(::syscall(SYS_pidfd_getfd, process.get(), one.number, 0)));
    return peer_of(socket).value_or("").ends_with("/rdma_cm") && !has_ended(socket);
  });
}

std::string obstacle(pid_t pid) {
  size_t watches = 0;
  for (const Descriptor& one : descriptors_of(pid))
    if (one.target == kUserfaultfd && ++watches > 2) return "it has a userfaultfd of its own";
  return {};
}

Result<void> note_sessions(pid_t pid, const ParkedProgram& program, Image* image) {
  for (const Connections& one : program.connections) image->connections.push_back(one.socket);
  const auto& sessions = program.sessions;
  const auto all = descriptors_of(pid);
  for (const Shared& session : sessions) {
    const auto queues = numbers_of(all, session.arena), bells = numbers_of(all, session.bells);
    const auto doorbell = std::find_if(
        all.begin(), all.end(), [&](const auto& one) { return one.eventfd == session.doorbell; });
    image->memory = numbers_of(all, session.memory);
    if (queues.empty() || bells.empty() || doorbell == all.end() || image->memory.empty())
      return fail(ENOENT, "it has closed what it shares with vrdmad");
    if (session.memory != sessions.front().memory)
      return fail(EBUSY, "it has two copies of the client library");
    image->sessions.push_back(
        {session.number, session.socket, queues.front(), bells.front(), doorbell->number});
  }
  return {};
}

Result<void> revert_memory(Held& held, uint64_t arena) {
  if (auto ended = end_watcher(held); !ended) return ended;
  const auto all = descriptors_of(held.pid());
  const auto numbers = numbers_of(all, arena);
  if (numbers.empty()) return fail(ENOENT, "it has closed its memory arena");
  auto file = held.take(numbers.front());
  if (!file) return pass(std::move(file).error());
  // Nobody puts memory in place from here on.
  std::vector<int> watches;
  for (const Descriptor& one : all)
    if (one.target == kUserfaultfd || one.target == kUserfaultDevice) watches.push_back(one.number);
  if (!watches.empty())
    if (auto done = put_eventfd(held, watches); !done) return done;
  if (auto done = put_eventfd(held, numbers); !done) return done;
  for (const MappedFile& one : mapped_files_of(held.pid()))
    if (one.inode == arena)
      if (auto done = make_private(held, *file, one); !done) return done;
  return {};
}

Result<void> take_out(Held& held, const ParkedProgram& program, Image* image) {
  const auto all = descriptors_of(held.pid());
  const auto epolls = epolls_of(held.pid());
  auto sockets = sockets_to(held, all, program);
  if (!sockets) return pass(std::move(sockets).error());
  const auto add_watches_of = [&](const std::vector<int>& numbers, std::vector<EpollEntry>* to) {
    for (const EpollEntry& one : epolls)
      if (std::find(numbers.begin(), numbers.end(), one.number) != numbers.end())
        to->push_back(one);
  };
  const auto replace = [&](const std::vector<int>& numbers) {
    add_watches_of(numbers, &image->epolls);
    return put_eventfd(held, numbers);
  };
  for (const Shared& session : program.sessions) {
    auto channels = session.channels;
    channels[0] = session.events;
    for (const auto& [handle, write_end] : channels) {
      auto ends = drained(held, all, write_end);
      if (!ends) return pass(std::move(ends).error());
      ends->session = session.number;
      ends->channel = handle;
      image->ends.push_back(std::move(*ends));
      const EndPair& noted = image->ends.back();
      std::vector<int> both = noted.reads;
      both.insert(both.end(), noted.writes.begin(), noted.writes.end());
      if (auto done = replace(both); !done) return done;
    }
  }
  for (const Connections& connections : program.connections)
    for (const uint64_t inode : connections.channels) {
      const auto numbers = numbers_of(all, inode);
      if (numbers.empty()) continue;  // it has destroyed the channel
      auto socket = held.take(numbers.front());
      if (!socket) return pass(std::move(socket).error());
      image->channels.push_back({numbers, ::fcntl(socket->get(), F_GETFL), unread_of(*socket)});
      if (auto done = replace(numbers); !done) return done;
    }
  if (auto done = hang_up(held, *sockets); !done) return done;
  image->had_peers = !program.peers.empty();
  if (auto done = take_out_peers(held, program, &image->peers); !done) return done;
  // What has taken their place is watched as they were.
  std::vector<EpollEntry> watched = image->epolls;
  add_watches_of(*sockets, &watched);
  return watch_again(held, watched);
}

Result<std::vector<Shared>> make_again(Held& held, const Image& image) {
  if (!image.sessions.empty())
    if (auto done = make_arena_again(held, image.memory); !done)
      return pass(std::move(done).error());
  for (const EndPair& ends : image.ends)
    if (auto done = make_pair_again(held, ends); !done) return pass(std::move(done).error());
  for (const Channel& channel : image.channels)
    if (auto done = make_channel_again(held, channel); !done) return pass(std::move(done).error());
  if (auto done = watch_again(held, image.epolls); !done) return pass(std::move(done).error());
  const auto all = descriptors_of(held.pid());
  const auto find = [&all](int number) {
    const auto it = std::find_if(all.begin(), all.end(),
                                 [number](const auto& one) { return one.number == number; });
    return it != all.end() ? *it : Descriptor();
  };
  std::vector<Shared> sessions;
  for (const Image::Session& one : image.sessions) {
    Shared now{one.number,
               one.socket,
               find(one.queues).inode,
               find(one.bells).inode,
               find(image.memory.front()).inode,
               find(one.doorbell).eventfd,
               0,
               {}};
    for (const EndPair& ends : image.ends) {
      if (ends.session != one.number) continue;
      const uint64_t inode = find(ends.writes.front()).inode;
      (ends.channel == 0 ? now.events : now.channels[ends.channel]) = inode;
    }
    sessions.push_back(std::move(now));
  }
  return sessions;
}

Result<int> connect(Held& held, const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path)
    return fail(ENAMETOOLONG, "the path of the session socket is too long");
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  auto at = held.scratch();
  if (!at) return pass(std::move(at).error());
  if (auto done = held.write(*at, &address, sizeof address); !done)
    return pass(std::move(done).error());
  auto made = held.call("make a socket", SYS_socket, AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  if (!made) return pass(std::move(made).error());
  if (auto done = held.call("connect to vrdmad", SYS_connect, *made, *at, sizeof address); !done) {
    (void)close(held, static_cast<int>(*made));
    // In a container, the run directory of vrdmad may have another path.
    if (done.error().code() == ENOENT && path.rfind(kSocketPlace, 0) != 0)
      return connect(held, kSocketPlace + name_of(path));
    return pass(std::move(done).error());
  }
  return static_cast<int>(*made);
}

Result<void> close(Held& held, int number) {
  auto done = held.call("close a descriptor", SYS_close, static_cast<uint64_t>(number));
  if (!done) return pass(std::move(done).error());
  return {};
}

Result<void> put(Held& held, uint64_t from, const std::vector<int>& numbers) {
  for (const int number : numbers)
    if (auto done = held.call("replace a descriptor", SYS_dup3, from, static_cast<uint64_t>(number),
                              O_CLOEXEC);
        !done)
      return pass(std::move(done).error());
  return close(held, static_cast<int>(from));
}

Result<void> put_eventfd(Held& held, const std::vector<int>& numbers) {
  auto made = held.call("make an eventfd", SYS_eventfd2, 0, EFD_CLOEXEC);
  if (!made) return pass(std::move(made).error());
  return put(held, *made, numbers);
}

}  // namespace vrdma::cli::criu
