#include "vrdmad/admin_server.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <chrono>
#include <fstream>
#include <optional>

namespace vrdma::vrdmad {

namespace {

constexpr int kBacklog = 64;
constexpr auto kRetry = std::chrono::seconds(1);

// Who is at the other end, if he may use the socket.
std::optional<AdminPeer> welcome(const base::Fd& client) {
  ucred peer{};
  socklen_t size = sizeof peer;
  if (::getsockopt(client.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return {};
  if (peer.uid != 0 && peer.uid != ::geteuid()) return {};
  AdminPeer who{peer.uid, peer.pid, "?"};
  std::ifstream comm("/proc/" + std::to_string(peer.pid) + "/comm");
  std::getline(comm, who.program);
  return who;
}

}  // namespace

base::Result<std::unique_ptr<AdminServer>> AdminServer::start(base::EventLoop& loop,
                                                              AdminBackend& backend,
                                                              const std::string& path,
                                                              AuditSink audit) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path)
    return base::fail(ENAMETOOLONG, path + ": too long for the path of a socket");
  path.copy(address.sun_path, path.size());
  base::Fd listener(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!listener.valid()) return base::fail_errno("create a socket");
  // The mode is set before bind(2) makes the path, so that it never stands there with another.
  if (::fchmod(listener.get(), 0600) != 0) return base::fail_errno("set the mode of a socket");
  if (::bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    return base::fail_errno("bind " + path);
  std::unique_ptr<AdminServer> server(
      new AdminServer(loop, backend, path, std::move(listener), std::move(audit)));
  if (::listen(server->listener_.get(), kBacklog) != 0)
    return base::fail_errno("listen on " + path);
  if (auto watching = server->listen(); !watching) return base::pass(std::move(watching).error());
  return server;
}

AdminServer::AdminServer(base::EventLoop& loop, AdminBackend& backend, std::string path,
                         base::Fd listener, AuditSink audit)
    : loop_(loop),
      backend_(backend),
      path_(std::move(path)),
      audit_(std::move(audit)),
      listener_(std::move(listener)) {}

AdminServer::~AdminServer() {
  if (listener_.valid()) ::unlink(path_.c_str());
  if (service_ && !ending_) service_->stop();
}

base::Result<void> AdminServer::listen() {
  auto watch = loop_.watch(listener_.get(), EPOLLIN, [this](uint32_t) { accept_clients(); });
  if (!watch) return base::pass(std::move(watch).error(), path_);
  incoming_ = std::move(*watch);
  return {};
}

void AdminServer::accept_clients() {
  for (;;) {
    base::Fd client(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (client.valid()) {
      auto peer = welcome(client);
      if (!peer) {
        ++refused_;
        continue;
      }
      ++accepted_;
      admit(std::move(client), std::move(*peer));
      continue;
    }
    if (errno == EINTR || errno == ECONNABORTED) continue;
    if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
      // The client stays in the queue and the socket readable: look away, or the loop would spin.
      incoming_.reset();
      retry_ = loop_.after(kRetry, [this] {
        if (!listen()) accept_clients();  // no watch: accept fails too, and the timer starts again
      });
    }
    return;
  }
}

void AdminServer::admit(base::Fd client, AdminPeer peer) {
  if (ending_) {
    waiting_.emplace_back(std::move(client), std::move(peer));
    return;
  }
  auto duplicate = client.duplicate();
  if (!duplicate) return;  // out of descriptors: the client sees its connection closed
  const uint64_t id = next_id_++;
  auto hangup = loop_.watch(duplicate->get(), EPOLLRDHUP, [this, id](uint32_t) { drop(id); });
  if (!hangup) return;
  clients_.emplace(id, Client{std::move(*duplicate), std::move(*hangup)});
  if (!service_) {
    ++service_starts_;
    service_ = std::make_unique<AdminService>(
        backend_, [this] { return counters(); }, audit_,
        [this] { loop_.post([this] { on_service_stopped(); }); });
  }
  service_->add_client(std::move(client), std::move(peer));
}

void AdminServer::drop(uint64_t id) {
  clients_.erase(id);
  if (clients_.empty()) end_service();
}

void AdminServer::end_service() {
  if (!service_ || ending_) return;
  ending_ = true;
  service_->stop();
}

void AdminServer::on_service_stopped() {
  service_.reset();
  ending_ = false;
  clients_.clear();
  if (done_) {
    // `done` may destroy this object.
    const auto done = std::exchange(done_, nullptr);
    done();
    return;
  }
  for (auto& [client, peer] : std::exchange(waiting_, {}))
    admit(std::move(client), std::move(peer));
}

void AdminServer::stop(std::function<void()> done) {
  incoming_.reset();
  retry_.reset();
  if (listener_.valid()) {
    listener_.reset();
    ::unlink(path_.c_str());
  }
  waiting_.clear();
  if (!service_) {
    loop_.post(std::move(done));
    return;
  }
  done_ = std::move(done);
  end_service();
}

std::vector<CounterRow> AdminServer::counters() const {
  return {{"daemon", "admin_clients", accepted_},
          {"daemon", "admin_clients_refused", refused_},
          {"daemon", "admin_grpc_starts", service_starts_}};
}

}  // namespace vrdma::vrdmad
