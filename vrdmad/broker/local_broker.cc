#include "vrdmad/broker/local_broker.h"

#include <fcntl.h>
#include <linux/if_packet.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include "core/base/cpu_meter.h"
#include "core/base/netns_cookie.h"
#include "core/verbs/socket_address.h"
#include "netns/route_socket.h"
#include "vrdmad/broker/local_broker_process.h"
#include "vrdmad/broker/worker_child.h"

namespace vrdma::vrdmad {

using base::fail;
using base::fail_errno;
using base::Fd;
using base::pass;
using base::Result;
using broker::get;
using broker::put;
using Op = broker::Request::Op;

namespace {

// Length of the listen queue, and so the most refusals that a flood puts before the next
// connection. When the queue is full, connect(2) blocks.
constexpr int kBacklog = 128;

std::string cannot_be_inspected(pid_t pid) {
  return "process " + std::to_string(pid) + " cannot be inspected now";
}

// Runs `make` in the namespace that the process has now, which must be that from which it
// connected.
Result<void> run_in_netns(const rdma::PeerHandle& process,
                          const std::function<Result<void>()>& make) {
  const uint64_t cookie = process.peer.netns_cookie;
  const auto directory = rdma::open_directory(process);
  if (!directory) return pass(directory.error());
  const netns::Netns netns{Fd(::openat(directory->get(), "ns/net", O_RDONLY | O_CLOEXEC)), cookie};
  if (!netns.fd.valid()) return fail_errno("open the netns of a process");
  Result<void> made = fail(EAGAIN, "cannot create a thread to enter a netns");
  const auto enter_and_make = [&]() -> Result<void> {
    if (auto done = netns::enter(netns); !done) return done;
    const auto entered = base::own_netns_cookie();
    if (!entered || *entered != cookie)
      return fail(EPERM, "the process has another netns than when it connected");
    return make();
  };
  try {
    std::thread([&] { made = enter_and_make(); }).join();
  } catch (const std::system_error&) {
  }
  return made;
}

Result<Fd> make_packet_socket(uint32_t ifindex) {
  // Of no protocol: it receives nothing.
  Fd socket(::socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.valid()) return fail_errno("make a packet socket");
  const int on = 1;
  sockaddr_ll address{};
  address.sll_family = AF_PACKET;
  address.sll_ifindex = static_cast<int>(ifindex);
  if (::setsockopt(socket.get(), SOL_PACKET, PACKET_IGNORE_OUTGOING, &on, sizeof on) != 0 ||
      ::setsockopt(socket.get(), SOL_PACKET, PACKET_AUXDATA, &on, sizeof on) != 0 ||
      ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    return fail_errno("bind a packet socket");
  return socket;
}

Result<void> may_have_session(const rdma::Peer& peer) {
  if (const std::string reason = rdma::reason_to_refuse(peer); !reason.empty())
    return fail(EACCES, "process " + std::to_string(peer.pid) + ": " + reason);
  return {};
}

Result<void> compare(const rdma::PeerHandle& handle, const ipc::Sender* sender) {
  const rdma::Peer& peer = handle.peer;
  if (auto may = may_have_session(peer); !may) return may;
  if (sender != nullptr &&
      (sender->pid != peer.pid || sender->uid != peer.uid() || sender->gid != peer.gid()))
    return fail(EPERM, "process " + std::to_string(sender->pid) + " of uid " +
                           std::to_string(sender->uid) + " uses a connection of process " +
                           std::to_string(peer.pid) + " of uid " + std::to_string(peer.uid()));
  auto unchanged = rdma::is_unchanged(handle);
  if (!unchanged) return fail(EPERM, unchanged.error().message());
  return {};
}

}  // namespace

namespace {
uint64_t descriptor_limit() {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  return limit.rlim_cur;
}
}  // namespace

LocalBroker::LocalBroker(BrokerPlace place, std::shared_ptr<WorkerGround> ground)
    : place_(std::move(place)),
      seats_(Seats::limits_for(descriptor_limit())),
      ground_(std::move(ground)),
      known_(place_.run_dir) {
  if (const auto own = base::own_netns_cookie()) own_netns_ = *own;
}

LocalBroker::~LocalBroker() = default;

bool LocalBroker::is_daemon(const rdma::Peer& peer) {
  const bool has_its_user = place_.daemon != 0 && std::find(peer.uids.begin(), peer.uids.end(),
                                                            place_.daemon) != peer.uids.end();
  const std::lock_guard lock(mutex_);
  return (ground_ != nullptr && peer.netns_cookie == ground_->netns_cookie) ||
         (has_its_user && peer.netns_cookie == own_netns_);
}

Result<uint32_t> LocalBroker::add(Entry entry) {
  const std::lock_guard lock(mutex_);
  if (entries_.size() >= kMostEntries) return fail(ENFILE, "the broker has too many entries");
  do {
    ++last_;
  } while (last_ == 0 || entries_.contains(last_));
  entries_.emplace(last_, std::move(entry));
  return last_;
}

Result<Seats::Seat> LocalBroker::seat_for(uint64_t netns, uid_t user, bool had_one) {
  auto seat = seats_.take(netns, user, had_one);
  if (!seat) return fail(ENFILE, "the broker holds too many processes");
  return std::move(*seat);
}

void LocalBroker::forget(uint32_t entry) {
  Entry held;  // closed after the lock is released
  const std::lock_guard lock(mutex_);
  if (const auto it = entries_.find(entry); it != entries_.end()) {
    held = std::move(it->second);
    entries_.erase(it);
  }
}

Broker::Answer LocalBroker::refusal(const base::Error& why) {
  Answer answer;
  answer.error = why.code();
  if (!put(why.message(), answer.reason))
    (void)put(std::string_view(why.message()).substr(0, sizeof answer.reason - 1), answer.reason);
  return answer;
}

Broker::Answer LocalBroker::serve(const Request& request, Beside* beside) {
  Answer answer;
  if (auto done = dispatch(request, &answer, beside); !done) {
    const Answer refused = refusal(done.error());
    answer.error = refused.error;
    std::copy(std::begin(refused.reason), std::end(refused.reason), answer.reason);
  }
  return answer;
}

Result<void> LocalBroker::dispatch(const Request& request, Answer* answer, Beside* beside) {
  switch (request.op) {
    case Op::kListen:
      return listen(request, answer, beside);
    case Op::kAccept: {
      if (at<Connection>(request.entry)) return inspect_connection(request, answer, beside);
      if (auto came = accept(request, answer, beside); !came || request.which == 0) return came;
      Request its = request;
      its.entry = answer->entry;
      return inspect_connection(its, answer, beside);
    }
    case Op::kForget:
      forget(request.entry);
      return {};
    case Op::kNetns:
      return netns(request, answer, beside);
    case Op::kLink:
      return link(request, answer);
    case Op::kStartWorker:
      return start_worker(answer, beside);
    case Op::kCheck:
      return inspect(&LocalBroker::check, request, answer, beside);
    case Op::kFind:
      return inspect(request.peer, &LocalBroker::find, request, answer, beside);
    case Op::kPacketSocket:
      return inspect(&LocalBroker::packet_socket, request, answer, beside);
    case Op::kRoceSockets:
      return inspect(&LocalBroker::roce_sockets, request, answer, beside);
    default:
      return fail(EINVAL, "there is no such request");
  }
}

Result<void> LocalBroker::inspect_connection(const Request& request, Answer* answer,
                                             Beside* beside) {
  const auto connection = at<Connection>(request.entry);
  if (!connection) return base::pass(connection.error());
  rdma::Peer peer;
  peer.pid = (*connection)->connected.pid;
  peer.netns_cookie = (*connection)->connected.netns_cookie;
  return inspect(peer, &LocalBroker::identify, request, answer, beside);
}

Result<void> LocalBroker::inspect(Look look, const Request& request, Answer* answer,
                                  Beside* beside) {
  const auto process = at<Process>(request.entry);
  if (!process) return base::pass(process.error());
  return inspect((*process)->handle.peer, look, request, answer, beside);
}

Result<void> LocalBroker::inspect(const rdma::Peer& whom, Look look, const Request& request,
                                  Answer* answer, Beside* beside) {
  struct Seen {
    Answer answer;
    Beside beside;
    Result<void> done;
  };
  const auto seen = std::make_shared<Seen>();
  const auto job = [this, keep = shared_from_this(), look, request, seen] {
    seen->done = (this->*look)(request, &seen->answer, &seen->beside);
  };
  const bool pays = look != &LocalBroker::find;  // its search has a limit of its own
  if (!bounded_.run(whom.netns_cookie, job, pays))
    return fail(EAGAIN, cannot_be_inspected(whom.pid));
  const uint32_t entry = answer->entry;  // of kAccept, also if its process cannot be identified
  *answer = seen->answer;
  if (answer->entry == 0) answer->entry = entry;
  for (size_t i = 0; i < beside->size(); ++i)
    if (seen->beside[i].valid()) (*beside)[i] = std::move(seen->beside[i]);
  return seen->done;
}

// Without a run directory all listeners have the same name.
Result<ListenerName> LocalBroker::name(const Request& request) const {
  if (run_dir_.empty()) return ListenerName{};
  return listener_name(run_dir_, std::string(get(request.text)));
}

// The directory of a session socket; none: anywhere. The user of the daemon owns it, and may put a
// link in its place before the socket is bound; listen() checks for that afterwards.
Result<Fd> LocalBroker::open_place(const std::string& path) const {
  if (run_dir_.empty()) return Fd();
  const size_t below = run_dir_.size() + std::strlen("/netns/"), slash = path.rfind('/');
  // Not openat2(2), which RestrictSUIDSGID= of systemd.exec(5) forbids.
  Fd directory(::open(run_dir_.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  for (const std::string& each : {std::string("netns"), path.substr(below, slash - below)}) {
    directory =
        Fd(::openat(directory.get(), each.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (!directory.valid()) return fail_errno("open " + path.substr(0, slash));
  }
  return directory;
}

Result<void> LocalBroker::listen(const Request& request, Answer* answer, Beside* beside) {
  const std::string path(get(request.text));
  const auto its_name = name(request);
  if (!its_name) return base::pass(its_name.error());
  auto directory = open_place(path);
  if (!directory) return pass(std::move(directory).error());
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path)
    return fail(ENAMETOOLONG, "the path of the session socket is too long for a Unix socket (" +
                                  path + "): use a shorter run directory or name");
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  Listener listener{Fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)),
                    request.number, *its_name};
  if (!listener.socket.valid()) return fail_errno("make a session socket");
  // Connections inherit it, so messages sent before the accept have credentials too (unix(7)).
  const int on = 1;
  if (::setsockopt(listener.socket.get(), SOL_SOCKET, SO_PASSCRED, &on, sizeof on) != 0)
    return fail_errno("enable SO_PASSCRED");
  // The mode of the file; the umask applies.
  if (::fchmod(listener.socket.get(), 0666) != 0) return fail_errno("set the mode of a socket");
  if (::bind(listener.socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) !=
      0)
    return fail_errno("bind " + path);
  struct stat status {};
  if (directory->valid() && (::fstatat(directory->get(), path.c_str() + path.rfind('/') + 1,
                                       &status, AT_SYMLINK_NOFOLLOW) != 0 ||
                             !S_ISSOCK(status.st_mode)))
    return fail(EPERM, path + " was made elsewhere");
  if (::listen(listener.socket.get(), kBacklog) != 0) return fail_errno("listen on " + path);
  auto polled = listener.socket.duplicate();
  if (!polled) return pass(std::move(polled).error());
  auto entry = add(std::make_shared<const Listener>(std::move(listener)));
  if (!entry) return pass(std::move(entry).error());
  (*beside)[0] = std::move(*polled);
  answer->entry = *entry;
  return {};
}

Result<void> LocalBroker::accept(const Request& request, Answer* answer, Beside* beside) {
  auto listener = at<const Listener>(request.entry);
  if (!listener) return pass(std::move(listener).error());
  if (request.which != 0)
    if (const auto its = recipient(request); !its) return base::pass(its.error());
  if (const auto closed = bounded_.closed_for((*listener)->netns); closed.count() > 0) {
    answer->number = static_cast<uint64_t>(closed.count());
    return fail(EAGAIN, "a process of this netns cannot be inspected now");
  }
  // Whoever connects there waits.
  if (!seats_.has_room((*listener)->netns))
    return fail(ENFILE, "the broker holds too many processes of this netns");
  Fd socket(::accept4((*listener)->socket.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!socket.valid()) return fail(errno, "accept a connection");
  auto connected = rdma::who_connected(socket.get());
  (*beside)[0] = std::move(socket);
  if (!connected || connected->netns_cookie != (*listener)->netns)
    return fail(EXDEV, "it connected from another netns");
  answer->peer.pid = connected->pid;
  answer->peer.uids.fill(connected->uid);
  answer->peer.gids.fill(connected->gid);
  answer->peer.netns_cookie = connected->netns_cookie;
  auto seat = seat_for(connected->netns_cookie, connected->uid);
  if (!seat) return pass(std::move(seat).error());
  auto entry = add(std::make_shared<Connection>(
      Connection{std::move(*connected), (*listener)->name, std::move(*seat)}));
  if (!entry) return pass(std::move(entry).error());
  answer->entry = *entry;
  return {};
}

Result<void> LocalBroker::identify(const Request& request, Answer* answer, Beside*) {
  auto connection = at<Connection>(request.entry);
  if (!connection) return pass(std::move(connection).error());
  auto whose = recipient(request);
  if (!whose) return pass(std::move(whose).error());
  {
    const std::lock_guard lock(mutex_);  // one of two requests at a time gets it
    const auto it = entries_.find(request.entry);
    if (it == entries_.end() || it->second != Entry(*connection)) return no_such_entry();
    it->second = std::shared_ptr<Process>();
  }
  auto handle = rdma::identify_peer(std::move((*connection)->connected));
  if (handle && is_daemon(handle->peer)) handle = fail(EPERM, "it is a process of the daemon");
  if (!handle) {
    forget(request.entry);
    return pass(std::move(handle).error());
  }
  answer->peer = handle->peer;
  answer->entry = request.entry;
  const std::lock_guard lock(mutex_);
  const auto it = entries_.find(request.entry);
  if (it != entries_.end())
    it->second = std::make_shared<Process>(std::move(*handle), (*connection)->listener, *whose,
                                           std::move((*connection)->seat));
  return {};
}

Result<void> LocalBroker::give(const rdma::PeerHandle& handle, rdma::MemoryFiles memory,
                               Beside* beside) {
  auto pidfd = handle.pidfd.duplicate();
  if (!pidfd) return fail(ENFILE, pidfd.error().message());
  *beside = {std::move(memory.memory), std::move(memory.maps), std::move(*pidfd)};
  return {};
}

Result<void> LocalBroker::check(const Request& request, Answer* answer, Beside* beside) {
  auto process = at<Process>(request.entry);
  if (!process) return pass(std::move(process).error());
  const rdma::PeerHandle& handle = (*process)->handle;
  const ipc::Sender* sender = request.first != 0 ? &request.sender : nullptr;
  if (auto same = compare(handle, sender); !same) return same;
  {
    const std::lock_guard lock((*process)->mutex);
    if (!std::exchange((*process)->noted, true)) known_.add(handle.peer, (*process)->listener);
  }
  switch (request.files) {
    case Request::kNone:
      break;
    case Request::kMemory:
    case Request::kWritableMemory: {
      auto memory = rdma::open_memory(handle, request.files == Request::kWritableMemory);
      if (!memory) return pass(std::move(memory).error());
      return give(handle, std::move(*memory), beside);
    }
    case Request::kUserfaultfd:
      (*beside)[0] = Fd(::open("/dev/userfaultfd", O_RDWR | O_CLOEXEC));
      if (!(*beside)[0].valid()) return fail_errno("open /dev/userfaultfd");
      break;
    case Request::kHeld:
      return take_from(**process, request, answer, beside->begin());
    default:
      return fail(EINVAL, "there are no such files");
  }
  return {};
}

Result<void> LocalBroker::find(const Request& request, Answer* answer, Beside* beside) {
  const auto listener = name(request);
  if (!listener) return base::pass(listener.error());
  if (auto known = known_.find(request.peer, *listener); !known) return known;
  auto whose = recipient(request);
  if (!whose) return pass(std::move(whose).error());
  auto found = rdma::find_peer_and_open(request.peer, false);
  if (!found) return pass(std::move(found).error());
  if (auto may = may_have_session(found->handle.peer); !may) return may;
  if (auto given = give(found->handle, std::move(found->memory), beside); !given) return given;
  answer->peer = found->handle.peer;
  auto seat = seat_for(request.peer.netns_cookie, request.peer.uid(), true);
  if (!seat) return pass(std::move(seat).error());
  const auto process =
      std::make_shared<Process>(std::move(found->handle), *listener, *whose, std::move(*seat));
  if (const auto earlier = at<Process>(request.entry);
      earlier && (*earlier)->handle.peer == process->handle.peer)
    process->search = (*earlier)->search;
  if (auto taken = take_from(*process, request, answer, beside->begin() + Request::kMemoryFiles);
      !taken)
    return taken;
  auto entry = add(process);
  if (!entry) return pass(std::move(entry).error());
  answer->entry = *entry;
  return {};
}

// queries_mutex_ is held.
Result<void> LocalBroker::prepare_queries() {
  if (queries_ != nullptr) return {};
  auto made = netns::RouteQueries::open();
  if (!made) return pass(std::move(made).error());
  queries_ = std::make_unique<netns::RouteQueries>(std::move(*made));
  return {};
}

Result<void> LocalBroker::netns(const Request& request, Answer* answer, Beside* beside) {
  auto found = netns::resolve(std::string(get(request.text)));
  if (!found) return pass(std::move(found).error());
  if (found->cookie != own_netns_) {
    const std::lock_guard lock(queries_mutex_);
    if (auto ready = prepare_queries(); !ready) return ready;
    if (auto nsid = queries_->nsid_of(found->fd, true); !nsid) return pass(std::move(nsid).error());
  }
  answer->number = found->cookie;
  (*beside)[0] = std::move(found->fd);
  return {};
}

Result<void> LocalBroker::link(const Request& request, Answer* answer) {
  std::unique_lock lock(queries_mutex_);
  if (auto ready = prepare_queries(); !ready) return ready;
  const auto link = queries_->link(static_cast<int>(static_cast<uint32_t>(request.number)),
                                   std::string(get(request.text)), request.which);
  lock.unlock();
  if (!link) return base::pass(link.error());
  Answer::Link& part = answer->link;
  if (!put(link->name, part.name)) return fail(EPROTO, "the name of a netdev is too long");
  part.ifindex = link->ifindex;
  part.mtu = link->mtu;
  part.up = link->up ? 1 : 0;
  part.loopback = link->loopback ? 1 : 0;
  part.has_mac = link->mac ? 1 : 0;
  part.has_more = link->has_more ? 1 : 0;
  if (link->mac) part.mac = *link->mac;
  answer->number = link->addresses.size();
  for (size_t i = request.first;
       i < link->addresses.size() && part.addresses < Answer::Link::kAddresses; ++i) {
    const bool is_tentative = std::find(link->tentative.begin(), link->tentative.end(),
                                        link->addresses[i]) != link->tentative.end();
    part.tentative |= (is_tentative ? 1u : 0u) << part.addresses;
    part.address[part.addresses++] = link->addresses[i];
  }
  return {};
}

// In the namespace of the process of the entry, which must be unchanged.
Result<void> LocalBroker::make_in_netns(uint32_t entry, const std::function<Result<void>()>& make) {
  auto process = at<Process>(entry);
  if (!process) return pass(std::move(process).error());
  const rdma::PeerHandle& handle = (*process)->handle;
  if (auto same = compare(handle, nullptr); !same) return same;
  return run_in_netns(handle, make);
}

Result<void> LocalBroker::packet_socket(const Request& request, Answer*, Beside* beside) {
  return make_in_netns(request.entry, [&]() -> Result<void> {
    auto socket = make_packet_socket(request.which);
    if (!socket) return pass(std::move(socket).error());
    (*beside)[0] = std::move(*socket);
    return {};
  });
}

Result<void> LocalBroker::roce_sockets(const Request& request, Answer* answer, Beside* beside) {
  static_assert(verbs::kMostSourcePorts <= std::tuple_size_v<Beside>);
  const verbs::Gid address{request.address};
  return make_in_netns(request.entry, [&]() -> Result<void> {
    if (address.is_multicast()) {
      auto member = make_group_socket(address, request.which);
      if (!member) return pass(std::move(member).error());
      (*beside)[0] = std::move(*member);
    } else if (request.first == 0) {
      auto sockets = make_roce_sockets(address, request.which);
      if (!sockets) return pass(std::move(sockets).error());
      *beside = {std::move(sockets->gsi), std::move(sockets->data), std::move(sockets->routes)};
    } else {
      auto sockets = make_source_sockets(address, request.which, request.first);
      if (!sockets) return pass(std::move(sockets).error());
      auto next = beside->begin();
      for (size_t i = 0; i < sockets->size(); ++i) {
        if (!(*sockets)[i].valid()) continue;
        answer->found |= 1u << i;
        *next++ = std::move((*sockets)[i]);
      }
    }
    return {};
  });
}

// Of a process that was found unchanged just now.
Result<void> LocalBroker::take_from(const Process& process, const Request& request, Answer* answer,
                                    Fd* next) {
  if (request.which == 0) return {};
  const base::Duration begun = base::thread_cpu_time();
  auto taken = take_held(process, request, answer, next);
  answer->number = static_cast<uint64_t>((base::thread_cpu_time() - begun).count());
  return taken;
}

Result<void> LocalBroker::take_held(const Process& process, const Request& request, Answer* answer,
                                    Fd* next) {
  const rdma::PeerHandle& handle = process.handle;
  const std::lock_guard lock(process.search->mutex);
  auto& held = process.search->held;
  if (!held) {
    auto searched =
        HeldFiles::of(handle.peer.pid, base::Duration(static_cast<int64_t>(request.time_ns)));
    if (!searched) return pass(std::move(searched).error());
    held = std::move(*searched);
  }
  for (uint32_t i = 0; i < std::min<size_t>(request.which, request.wanted.size()); ++i) {
    const Request::Wanted& wanted = request.wanted[i];
    auto fd = held->take(handle.pidfd.get(), wanted.kind, wanted.id);
    if (!fd && fd.error().code() != ENOENT) return pass(std::move(fd).error());
    if (!fd) continue;
    answer->found |= 1u << i;
    *next++ = std::move(*fd);
  }
  return {};
}

Result<Arrival> LocalBroker::admit(Fd socket) {
  const int on = 1;
  if (::setsockopt(socket.get(), SOL_SOCKET, SO_PASSCRED, &on, sizeof on) != 0)
    return fail_errno("enable SO_PASSCRED");
  auto connected = rdma::who_connected(socket.get());
  if (!connected) return pass(std::move(connected).error());
  Request request;
  request.op = Op::kAccept;
  auto seat = seat_for(connected->netns_cookie, connected->uid);
  if (!seat) return pass(std::move(seat).error());
  auto entry =
      add(std::make_shared<Connection>(Connection{std::move(*connected), {}, std::move(*seat)}));
  if (!entry) return pass(std::move(entry).error());
  request.entry = *entry;
  Beside none;
  const auto answer = ask(request, &none);
  if (!answer) return base::pass(answer.error());
  return Arrival{std::move(socket), caller(answer->entry, answer->peer)};
}

}  // namespace vrdma::vrdmad
