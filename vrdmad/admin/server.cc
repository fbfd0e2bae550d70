#include "vrdmad/admin/server.h"

#include <sys/epoll.h>
#include <unistd.h>

#include <utility>

#include "api/keep_grpc.h"
#include "vrdmad/admin/root_socket.h"

namespace vrdma::vrdmad {

base::Result<std::unique_ptr<AdminServer>> AdminServer::start(base::EventLoop& loop,
                                                              AdminBackend& backend,
                                                              const std::string& path,
                                                              AuditSink audit) {
  auto listener = listen_for_root(path);
  if (!listener) return base::pass(std::move(listener).error());
  std::unique_ptr<AdminServer> server(new AdminServer(loop, backend, path, std::move(audit)));
  auto acceptor = serve::Acceptor::start(
      loop, std::move(*listener), serve::Acceptor::accept([raw = server.get()](base::Fd client) {
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
