#include "vrdmad/admin/server.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <fstream>
#include <optional>
#include <utility>

#include "api/keep_grpc.h"

namespace vrdma::vrdmad {

namespace {

constexpr int kBacklog = 64;

// The process at the other end, if it may use the socket.
std::optional<AdminPeer> allowed_peer(const base::Fd& client) {
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
    return base::fail(ENAMETOOLONG, path + ": too long for a socket path");
  path.copy(address.sun_path, path.size());
  base::Fd listener(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!listener.valid()) return base::fail_errno("create a socket");
  // Set the mode before bind(2) creates the path, so that the path never has another mode.
  if (::fchmod(listener.get(), 0600) != 0) return base::fail_errno("set the mode of a socket");
  if (::bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    return base::fail_errno("bind " + path);
  std::unique_ptr<AdminServer> server(new AdminServer(loop, backend, path, std::move(audit)));
  if (::listen(listener.get(), kBacklog) != 0) return base::fail_errno("listen on " + path);
  auto acceptor = serve::Acceptor::start(
      loop, std::move(listener), serve::Acceptor::accept([raw = server.get()](base::Fd client) {
        raw->welcome(std::move(client));
      }));
  if (!acceptor) return base::pass(std::move(acceptor).error(), path);
  server->acceptor_ = std::move(*acceptor);
  return server;
}

AdminServer::AdminServer(base::EventLoop& loop, AdminBackend& backend, std::string path,
                         AuditSink audit)
    : loop_(loop), backend_(backend), path_(std::move(path)), audit_(std::move(audit)) {}

AdminServer::~AdminServer() {
  if (!path_.empty()) ::unlink(path_.c_str());
  if (service_ && !ending_) service_->stop();
}

void AdminServer::welcome(base::Fd client) {
  auto peer = allowed_peer(client);
  if (!peer) {
    ++refused_;
    return;
  }
  ++accepted_;
  admit(std::move(client), std::move(*peer));
}

void AdminServer::admit(base::Fd client, AdminPeer peer) {
  if (ending_) {
    waiting_.emplace_back(std::move(client), std::move(peer));
    return;
  }
  auto duplicate = client.duplicate();
  if (!duplicate) return;  // out of descriptors: closes the connection
  const uint64_t id = next_id_++;
  auto hangup = loop_.watch(duplicate->get(), EPOLLRDHUP, [this, id](uint32_t) { drop(id); });
  if (!hangup) return;
  if (!service_) {
    auto started = AdminService::start(
        backend_, [this] { return counters(); }, audit_,
        [this] { loop_.post([this] { on_service_stopped(); }); });
    if (!started) {  // no thread: closes the connection
      ++refused_;
      return;
    }
    ++service_starts_;
    release_.reset();
    service_ = std::move(*started);
  }
  clients_.emplace(id, Client{std::move(*duplicate), std::move(*hangup)});
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
  release_ = loop_.after(api::kGrpcEndsAfter, [] { api::release_grpc(); });
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
  acceptor_.reset();
  if (!path_.empty()) ::unlink(std::exchange(path_, {}).c_str());
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
