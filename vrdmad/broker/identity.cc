#include "vrdmad/broker/identity.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

namespace vrdma::vrdmad {

using base::fail;
using base::fail_errno;
using base::Fd;
using base::pass;
using base::Result;
using Op = IdentityRequest::Op;

namespace {
// Length of the listen queue, and so the most refusals that a flood puts before the next
// connection. When the queue is full, connect(2) blocks.
constexpr int kBacklog = 128;

std::string cannot_be_looked_at(pid_t pid) {
  return "process " + std::to_string(pid) + " cannot be inspected now";
}
}  // namespace

Result<std::unique_ptr<Acceptor>> Identity::listen(base::EventLoop& loop, const std::string& path,
                                                   Reception reception) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path)
    return fail(ENAMETOOLONG, "the path of the session socket is too long for a Unix socket (" +
                                  path + "): use a shorter run directory or name");
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  Fd listener(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!listener.valid()) return fail_errno("make a session socket");
  // Connections inherit it, so messages sent before the accept have credentials too (unix(7)).
  const int on = 1;
  if (::setsockopt(listener.get(), SOL_SOCKET, SO_PASSCRED, &on, sizeof on) != 0)
    return fail_errno("enable SO_PASSCRED");
  if (::bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    return fail_errno("bind " + path);
  if (::chmod(path.c_str(), 0666) != 0) return fail_errno("chmod " + path);
  if (::listen(listener.get(), kBacklog) != 0) return fail_errno("listen on " + path);
  auto closed_for = [self = shared_from_this(), netns = reception.netns,
                     asked = std::move(reception.closed_for)] {
    return std::max(self->bounded_.closed_for(netns), asked ? asked() : base::Duration(0));
  };
  return Acceptor::start(
      loop, std::move(listener),
      [self = shared_from_this(), reception = std::move(reception)](Fd socket) {
        if (!reception.wants(socket)) return;
        auto caller = self->identify(socket.get());
        if (!caller) return reception.lost(std::move(socket));
        reception.accepted({std::move(socket), std::move(*caller)});
      },
      std::move(closed_for));
}

Result<std::shared_ptr<Caller>> Identity::identify(int socket) {
  auto connected = rdma::who_connected(socket);
  if (!connected) return pass(std::move(connected).error());
  struct Look {
    rdma::Connected connected;
    std::optional<Result<rdma::PeerHandle>> found;
  };
  const uint64_t netns = connected->netns_cookie;
  const pid_t pid = connected->pid;
  const auto look = std::make_shared<Look>(Look{std::move(*connected), {}});
  if (!bounded_.run(netns,
                    [look] { look->found = rdma::identify_peer(std::move(look->connected)); }))
    return fail(EAGAIN, cannot_be_looked_at(pid));
  if (!*look->found) return pass(std::move(*look->found).error());
  const rdma::Peer peer = (*look->found)->peer;
  return std::make_shared<Caller>(shared_from_this(), add(std::move(**look->found)), peer);
}

Result<Arrival> Identity::admit(Fd socket) {
  const int on = 1;
  if (::setsockopt(socket.get(), SOL_SOCKET, SO_PASSCRED, &on, sizeof on) != 0)
    return fail_errno("enable SO_PASSCRED");
  auto caller = identify(socket.get());
  if (!caller) return pass(std::move(caller).error());
  return Arrival{std::move(socket), std::move(*caller)};
}

Result<std::shared_ptr<Caller>> Identity::find(const rdma::Peer& peer) {
  IdentityRequest request;
  request.op = Op::kFind;
  request.peer = peer;
  Beside beside;
  const IdentityAnswer answer = serve(request, &beside);
  if (answer.error != 0) return fail(answer.error, answer.reason);
  return std::make_shared<Caller>(shared_from_this(), answer.entry, answer.peer);
}

uint32_t Identity::add(rdma::PeerHandle handle) {
  auto held = std::make_shared<const rdma::PeerHandle>(std::move(handle));
  const std::lock_guard lock(mutex_);
  do {
    ++last_;
  } while (last_ == 0 || entries_.contains(last_));
  entries_.emplace(last_, std::move(held));
  return last_;
}

std::shared_ptr<const rdma::PeerHandle> Identity::at(uint32_t entry) {
  const std::lock_guard lock(mutex_);
  const auto it = entries_.find(entry);
  return it != entries_.end() ? it->second : nullptr;
}

Result<void> Identity::compare(const rdma::PeerHandle& handle, const ipc::Sender* sender) {
  const rdma::Peer& peer = handle.peer;
  if (const std::string reason = rdma::reason_to_refuse(peer); !reason.empty())
    return fail(EACCES, "process " + std::to_string(peer.pid) + ": " + reason);
  if (sender != nullptr &&
      (sender->pid != peer.pid || sender->uid != peer.uid() || sender->gid != peer.gid()))
    return fail(EPERM, "process " + std::to_string(sender->pid) + " of uid " +
                           std::to_string(sender->uid) + " uses a connection of process " +
                           std::to_string(peer.pid) + " of uid " + std::to_string(peer.uid()));
  auto unchanged = rdma::is_unchanged(handle);
  if (!unchanged) return fail(EPERM, unchanged.error().message());
  return {};
}

IdentityAnswer Identity::serve(const IdentityRequest& request, Beside* beside) {
  if (request.op == Op::kForget) return answer(request, beside);
  struct Look {
    IdentityAnswer answer;
    Beside beside;
  };
  const auto known = request.op == Op::kFind ? nullptr : at(request.entry);
  const rdma::Peer& peer = known != nullptr ? known->peer : request.peer;
  const auto look = std::make_shared<Look>();
  const bool looked = bounded_.run(peer.netns_cookie, [self = shared_from_this(), request, look] {
    look->answer = self->answer(request, &look->beside);
  });
  if (!looked) {
    IdentityAnswer late;
    late.error = EAGAIN;
    cannot_be_looked_at(peer.pid).copy(late.reason, sizeof late.reason - 1);
    return late;
  }
  *beside = std::move(look->beside);
  return look->answer;
}

IdentityAnswer Identity::answer(const IdentityRequest& request, Beside* beside) {
  IdentityAnswer answer;
  const auto refuse = [&](int error, const std::string& reason) {
    answer.error = error;
    reason.copy(answer.reason, sizeof answer.reason - 1);
    return answer;
  };
  if (request.op == Op::kForget) {
    std::shared_ptr<const rdma::PeerHandle> held;  // closed after the lock is released
    const std::lock_guard lock(mutex_);
    if (const auto it = entries_.find(request.entry); it != entries_.end()) {
      held = std::move(it->second);
      entries_.erase(it);
    }
    return answer;
  }
  if (request.op == Op::kFind) {
    auto found = rdma::find_peer(request.peer);
    if (!found) return refuse(found.error().code(), found.error().message());
    answer.peer = found->peer;
    answer.entry = add(std::move(*found));
    return answer;
  }
  const auto handle = at(request.entry);
  if (handle == nullptr) return refuse(EINVAL, "there is no such connection");
  const ipc::Sender* sender = request.op == Op::kCheck ? &request.sender : nullptr;
  if (auto same = compare(*handle, sender); !same)
    return refuse(same.error().code(), same.error().message());
  if (request.op == Op::kOpen) {
    auto memory = rdma::open_memory(*handle, request.writable != 0);
    auto pidfd = handle->pidfd.duplicate();
    if (!memory) return refuse(memory.error().code(), memory.error().message());
    if (!pidfd) return refuse(ENFILE, pidfd.error().message());
    *beside = {std::move(memory->memory), std::move(memory->maps), std::move(*pidfd)};
  }
  answer.entry = request.entry;
  answer.peer = handle->peer;
  return answer;
}

Caller::~Caller() {
  Identity::Beside none;
  (void)identity_->serve(request(Op::kForget), &none);
}

IdentityRequest Caller::request(Op op) const {
  IdentityRequest request;
  request.op = op;
  request.entry = entry_;
  return request;
}

Result<void> Caller::check(const ipc::Sender& sender) const {
  Identity::Beside none;
  IdentityRequest asked = request(Op::kCheck);
  asked.sender = sender;
  const IdentityAnswer answer = identity_->serve(asked, &none);
  if (answer.error != 0) return fail(answer.error, answer.reason);
  return {};
}

Result<Caller::Opened> Caller::open(bool writable) const {
  Identity::Beside beside;
  IdentityRequest asked = request(Op::kOpen);
  asked.writable = writable ? 1 : 0;
  const IdentityAnswer answer = identity_->serve(asked, &beside);
  if (answer.error != 0) return fail(answer.error, answer.reason);
  return Opened{{std::move(beside[0]), std::move(beside[1]), writable}, std::move(beside[2])};
}

}  // namespace vrdma::vrdmad
