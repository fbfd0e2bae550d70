#include "vrdmad/hooks/server.h"

#include <spdlog/spdlog.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "core/base/out_of_files.h"
#include "core/base/printable.h"
#include "core/ipc/socket.h"
#include "vrdmad/hooks/claimed.h"
#include "vrdmad/hooks/person.h"
#include "vrdmad/hooks/witness.h"

namespace vrdma::vrdmad {

using base::fail;
using base::Fd;
using base::pass;
using base::Result;
using broker::put;
using intake::Kind;

namespace {
constexpr int kBacklog = 128;
constexpr auto kLookAway = std::chrono::milliseconds(10);  // while there are kMost connections

Result<Fd> bind_socket(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path)
    return fail(ENAMETOOLONG, path + ": too long for a socket path");
  path.copy(address.sun_path, path.size());
  Fd listener(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!listener.valid()) return base::fail_errno("create a socket");
  if (::bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      ::chmod(path.c_str(), 0666) != 0 || ::listen(listener.get(), kBacklog) != 0)
    return base::fail_errno("listen on " + path);
  return listener;
}

// Containers of two networks may have the same address, as all of rootless slirp4netns have.
base::Error explained(base::Error error) {
  if (base::out_of_files(error.code()))
    return {error.code(), error.message() + ": raise its limit (LimitNOFILE), or end containers"};
  if (error.code() != EADDRINUSE) return error;
  return {error.code(), error.message() +
                            "; give the container a network of its own (`podman network create`), "
                            "or use a class with `fabric = tenant`"};
}

}  // namespace

struct HookServer::Connection {
  Fd socket;
  uid_t uid = 0;
  Intake::AccountRef account;
  base::EventLoop::Watch readable;  // not while the intake receives
  Intake::Ticket at_intake;
  bool silent = true;  // nothing has arrived yet
  base::EventLoop::Timer patience;
  // What the end of the connection takes back.
  std::optional<std::pair<uint64_t, Container>> given;
  bool set_up = false;
  std::string container = "?";  // of the last request that named one
};

HookServer::HookServer(HookBackend& backend, Settings settings,
                       std::unique_ptr<base::EventLoop> loop)
    : backend_(backend), settings_(std::move(settings)), loop_(std::move(loop)) {
  constexpr uint64_t kLogged = 10;  // a second
  refusals_.set(kLogged, kLogged);
}

Result<std::unique_ptr<HookServer>> HookServer::start(HookBackend& backend, Settings settings) {
  auto loop = base::EventLoop::create();
  if (!loop) return pass(std::move(loop.error()));
  auto listener = bind_socket(settings.path);
  if (!listener) return pass(std::move(listener.error()));
  const auto classes = settings.classes->read();
  if (!classes) spdlog::warn("no container gets a vdevice: {}", classes.error().message());
  if (classes)
    for (const auto& [name, error] : classes->wrong())
      spdlog::warn("no container gets a vdevice of this class: {}", error.message());
  std::unique_ptr<HookServer> server(
      new HookServer(backend, std::move(settings), std::move(*loop)));
  auto acceptor = serve::Acceptor::start(
      *server->loop_, std::move(*listener),
      serve::Acceptor::accept([raw = server.get()](Fd socket) { raw->welcome(std::move(socket)); }),
      [raw = server.get()]() -> base::Duration {
        return raw->connections_.size() < kMost ? base::Duration(0) : kLookAway;
      });
  if (!acceptor) return pass(std::move(acceptor.error()));
  server->acceptor_ = std::move(*acceptor);
  server->thread_ = std::thread([raw = server.get()] { raw->loop_->run(); });
  return server;
}

HookServer::~HookServer() {
  ::unlink(settings_.path.c_str());
  if (thread_.joinable()) {
    loop_->stop();
    thread_.join();
  }
}

void HookServer::stop(base::EventLoop& loop, std::function<void()> done) {
  loop_->post([this, &loop, done = std::move(done)] {
    acceptor_.reset();
    end_all();
    loop.post(done);
  });
}

Intake::AccountRef HookServer::account_of(uid_t uid) {
  std::erase_if(accounts_, [](const auto& one) { return one.second.expired(); });
  uid_t whose = person_of(uid);
  // Beyond that, persons share.
  if (uid != 0 && !accounts_.contains(whose) && accounts_.size() >= kMostAccounts)
    whose = std::next(accounts_.begin(), 1 + whose % (kMostAccounts - 1))->first;
  auto account = accounts_[whose].lock();
  if (account == nullptr)
    accounts_[whose] = account = std::make_shared<Intake::Account>(settings_.intake);
  return account;
}

void HookServer::welcome(Fd socket) {
  ucred peer{};
  socklen_t size = sizeof peer;
  if (::getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return;
  auto connection = std::make_unique<Connection>();
  connection->uid = peer.uid;
  connection->account = account_of(peer.uid);
  connection->socket = std::move(socket);
  if (peer.uid != 0 &&
      (has_its_share(peer.uid) || connection->account->crowded() || !make_room())) {
    refuse_crowd(*connection);
    return close_connection(connection->account, std::move(connection->socket));
  }
  const uint64_t id = next_id_++;
  Connection& kept = *connections_.emplace(id, std::move(connection)).first->second;
  kept.patience =
      loop_->after(peer.uid == 0 ? kPatience : kPatienceOfUsers, [this, id] { end(id); });
  receive(id);
}

template <class Is>
size_t HookServer::count(Is is) const {
  return static_cast<size_t>(std::count_if(connections_.begin(), connections_.end(),
                                           [&](const auto& one) { return is(one.second->uid); }));
}

bool HookServer::has_its_share(uid_t uid) const {
  if (count([&](uid_t its) { return its == uid; }) >= kMostOfUser) return true;
  return count([](uid_t its) { return its != 0; }) >= kMostOfUsers / 2 &&
         count([&](uid_t its) { return person_of(its) == person_of(uid); }) >= kMostOfPerson;
}

// For one more user. A hook sends its request at once, so the oldest connection without one ends.
bool HookServer::make_room() {
  if (count([](uid_t its) { return its != 0; }) < kMostOfUsers) return true;
  const auto oldest = std::find_if(connections_.begin(), connections_.end(), [](const auto& one) {
    return one.second->uid != 0 && one.second->silent;
  });
  if (oldest == connections_.end()) return false;
  refuse_crowd(*oldest->second);
  end(oldest->first);
  return true;
}

void HookServer::refuse_crowd(const Connection& connection) {
  const hook::Answer answer =
      refusal({EAGAIN, "user " + std::to_string(connection.uid) +
                           " has too many hooks connected to vrdmad: try again"});
  (void)ipc::send_message(connection.socket.get(), &answer, sizeof answer);
}

// Waits for the next message, which the intake receives.
void HookServer::receive(uint64_t id) {
  Connection& connection = *connections_.at(id);
  auto readable = loop_->watch(connection.socket.get(), EPOLLIN | EPOLLRDHUP, [this, id](uint32_t) {
    Connection& its = *connections_.at(id);
    its.readable.reset();
    if (std::exchange(its.silent, false))
      its.patience = loop_->after(kPatience, [this, id] { end(id); });
    its.at_intake = settings_.intake->receive_process(its.account, its.socket, *loop_,
                                                      [this, id](Intake::Received received) {
                                                        if (connections_.contains(id))
                                                          on_message(id, std::move(received));
                                                      });
  });
  if (!readable) return end(id);
  connection.readable = std::move(*readable);
}

void HookServer::on_message(uint64_t id, Intake::Received received) {
  Connection& connection = *connections_.at(id);
  const intake::Report& report = received.report;
  if (report.error != 0 || report.length == 0) return end(id);
  auto request = received.lost ? fail(EMFILE, "vrdmad has too many open files to serve a hook")
                 : report.truncated != 0
                     ? fail(EPROTO, "the hook sent too many descriptors")
                     : read_request(report.bytes.data(), report.bytes.size(), report.length);
  if (request && !request->container.empty()) connection.container = request->container;
  auto answer =
      request ? serve(connection, *request, received) : Result<hook::Answer>(pass(request.error()));
  if (!answer) {
    const base::Error why = explained(answer.error());
    log_refusal(connection, why);
    answer = refusal(why);
  }
  if (!ipc::send_message(connection.socket.get(), &*answer, sizeof *answer) || answer->error != 0)
    return end(id);
  if (request->op == hook::Request::Op::kSetUp)
    connection.patience = loop_->after(kPatience, [this, id] { end(id); });
  receive(id);
}

Result<hook::Answer> HookServer::serve(Connection& connection, const HookRequest& request,
                                       const Intake::Received& received) {
  using Op = hook::Request::Op;
  switch (request.op) {
    case Op::kSetUp:
      return set_up(connection, request, received);
    case Op::kDone:
      if (!connection.set_up)
        return fail(EPROTO,
                    "the hook has finished what it did not begin: install hook and vrdmad "
                    "of one version");
      connection.given.reset();
      return hook::Answer();
    case Op::kEnded:  // the daemon's pidfd of the container has told it so already
      return hook::Answer();
    case Op::kFailed:
      return fail(ECANCELED, "its hook failed: " + request.reason);
  }
  return fail(EPROTO, "there is no such request");
}

Result<hook::Answer> HookServer::set_up(Connection& connection, const HookRequest& request,
                                        const Intake::Received& received) {
  const intake::Report& report = received.report;
  if (connection.set_up)
    return fail(EALREADY, "the hook asked for its container before: it must ask once");
  if (report.count != 2 || received.passed.size() != 2 || report.verdicts[0].kind != Kind::kNetns ||
      report.verdicts[1].kind != Kind::kPidfd)
    return fail(EINVAL, "the hook must pass a network namespace and a pidfd, and nothing else");
  auto seen = witness(*settings_.broker, received.passed[0], received.passed[1]);
  if (!seen) return pass(std::move(seen.error()));
  auto granted = grant_to(request, {connection.uid, seen->owner, seen->host});
  if (!granted) return pass(std::move(granted.error()));
  const Container container{request.container, seen->init};
  granted->spec.containers = {container};
  granted->spec.netns = "pid:" + std::to_string(seen->init.pid);
  auto given = backend_.give(granted->spec, seen->netns, granted->terms);
  if (!given) return pass(std::move(given.error()));
  connection.set_up = true;
  if (given->added) connection.given.emplace(given->vdevice, container);
  hook::Answer answer;
  answer.vdevices = 1;
  answer.memory_reached = granted->memory_reached ? 1 : 0;
  if (!put(settings_.run_dir, answer.run_dir) || !put(given->sockets, answer.sockets) ||
      !put(given->name, answer.vdevice[0].name) || !put(given->tree, answer.vdevice[0].tree))
    return fail(ENAMETOOLONG,
                "the path of the run directory is too long for a hook: choose a "
                "shorter one with --run-dir");
  return answer;
}

Result<HookServer::Granted> HookServer::grant_to(const HookRequest& request,
                                                 const HookCaller& caller) {
  HookBackend::Terms terms;
  std::string name = request.device_class.empty() ? api::kDefaultClass : request.device_class;
  std::optional<ClaimShare> share;
  if (!request.claim.empty() || !request.share.empty()) {
    if (auto may = may_claim(request, caller); !may) return pass(std::move(may.error()));
    auto claim = backend_.find_claim(request.claim);
    if (!claim) return pass(std::move(claim.error()));
    auto its = share_of(*claim, request);
    if (!its) return pass(std::move(its.error()));
    name = its->device_class;
    share = std::move(*its);
    terms.claim = std::move(*claim);
  }
  auto found = find_class(name);
  if (!found) return pass(std::move(found.error()));
  const api::Class its = share ? claimed(std::move(*found), *share) : std::move(*found);
  auto spec = grant(its, request, caller);
  if (!spec) return pass(std::move(spec.error()));
  terms.owner = caller.owner;
  terms.shared = !its.per_container;
  terms.most = its.most;
  terms.reach = reach_of(its.reach);
  terms.peers = its.peers;
  if (share)
    add_claim(*terms.claim, *share, &*spec);
  else
    terms.lowered = only_lowered(its, *spec);
  return Granted{std::move(*spec), std::move(terms), its.memory_reached};
}

Result<api::Class> HookServer::find_class(const std::string& name) {
  auto classes = settings_.classes->read();
  if (!classes) return pass(std::move(classes.error()));
  return classes->find(name);
}

// A user could fill the log.
void HookServer::log_refusal(const Connection& connection, const base::Error& why) {
  if (connection.uid != 0 && !refusals_.take(loop_->now())) return;
  backend_.refused(connection.container, connection.uid, why.message());
  spdlog::warn("container {} of user {} gets no vdevice: {}", connection.container, connection.uid,
               base::printable(why.message()));
}

void HookServer::end(uint64_t id) {
  const std::unique_ptr<Connection> ended = std::move(connections_.extract(id).mapped());
  if (ended->given) backend_.take_back(ended->given->first, ended->given->second);
  ended->readable.reset();
  ended->at_intake.reset();
  close_connection(ended->account, std::move(ended->socket));
}

void HookServer::end_all() {
  while (!connections_.empty()) end(connections_.begin()->first);
}

}  // namespace vrdma::vrdmad
