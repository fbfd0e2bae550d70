#include "vrdmad/admin/checkpoint_server.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <charconv>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "api/parked_text.h"
#include "core/base/printable.h"
#include "vrdmad/admin/root_socket.h"
#include "vrdmad/admin/translation.h"

namespace vrdma::vrdmad {

using base::fail;
using base::Fd;
using base::pass;
using base::Result;

namespace {

constexpr auto kLookAway = std::chrono::milliseconds(10);  // while there are kMost connections

// Blocks, up to kPatience.
bool make_patient(int socket) {
  const timeval patience{CheckpointServer::kPatience.count(), 0};
  const int flags = ::fcntl(socket, F_GETFL);
  return flags >= 0 && ::fcntl(socket, F_SETFL, flags & ~O_NONBLOCK) == 0 &&
         ::setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) == 0 &&
         ::setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience) == 0;
}

Result<std::string> read_request(int socket) {
  std::string text;
  char some[16'384];
  for (;;) {
    const ssize_t got = ::recv(socket, some, sizeof some, 0);
    if (got == 0) return text;
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return base::fail_errno("receive a request");
    text.append(some, static_cast<size_t>(got));
    if (text.size() > CheckpointServer::kMostBytes) return fail(EFBIG, "the request is too long");
  }
}

void send_all(int socket, const std::string& text) {
  for (size_t sent = 0; sent < text.size();) {
    const ssize_t put = ::send(socket, text.data() + sent, text.size() - sent, MSG_NOSIGNAL);
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return;
    sent += static_cast<size_t>(put);
  }
}

std::string text_of(const base::Error& error) {
  return nlohmann::ordered_json{{"error", error.message()}, {"errno", error.code()}}.dump(
      -1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string text_of(const ParkedProcess& process) {
  v1::ParkedProcess message;
  fill(message, process);
  return api::text_of(message);
}

Result<std::string> text_of(Result<ParkedProcess> process) {
  if (!process) return pass(std::move(process).error());
  return text_of(*process);
}

Result<std::string> nothing_after(Result<void> done) {
  if (!done) return pass(std::move(done).error());
  return std::string("{}");
}

Result<int32_t> pid_of(const std::string& text) {
  int32_t pid = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), pid);
  if (error != std::errc() || end != text.data() + text.size() || pid <= 0)
    return fail(EINVAL, "'" + base::printable(text, 32) + "' is not the number of a process");
  return pid;
}

}  // namespace

Result<std::unique_ptr<CheckpointServer>> CheckpointServer::start(base::EventLoop& loop,
                                                                  AdminBackend& backend,
                                                                  const std::string& path,
                                                                  AuditSink audit) {
  auto listener = listen_for_root(path);
  if (!listener) return pass(std::move(listener).error());
  std::unique_ptr<CheckpointServer> server(
      new CheckpointServer(loop, backend, path, std::move(audit)));
  auto* const raw = server.get();
  auto acceptor = serve::Acceptor::start(
      loop, std::move(*listener),
      serve::Acceptor::accept([raw](Fd client) { raw->welcome(std::move(client)); }),
      [raw]() -> base::Duration {
        return raw->conversations_.size() < kMost ? base::Duration(0) : kLookAway;
      });
  if (!acceptor) return pass(std::move(acceptor).error(), path);
  server->acceptor_ = std::move(*acceptor);
  return server;
}

CheckpointServer::~CheckpointServer() {
  if (acceptor_) ::unlink(path_.c_str());
  for (auto& [id, one] : conversations_) one.thread.join();
}

void CheckpointServer::stop(std::function<void()> done) {
  acceptor_.reset();
  ::unlink(path_.c_str());
  if (conversations_.empty()) return loop_.post(std::move(done));
  done_ = std::move(done);
  // A call that has begun is finished, and its client gets the answer.
  for (auto& [id, one] : conversations_) (void)::shutdown(one.socket.get(), SHUT_RD);
}

void CheckpointServer::welcome(Fd client) {
  auto who = allowed_peer(client);
  if (!who || !make_patient(client.get())) return;
  const uint64_t id = next_id_++;
  Conversation& one = conversations_[id];
  one.socket = std::move(client);
  try {
    one.thread = std::thread([this, id, socket = one.socket.get(), who = std::move(*who)] {
      converse(socket, who);
      loop_.post([this, id] { on_over(id); });
    });
  } catch (const std::system_error&) {  // no thread: closes the connection
    conversations_.erase(id);
    return;
  }
  ::pthread_setname_np(one.thread.native_handle(), "vrdma-park");
}

void CheckpointServer::on_over(uint64_t id) {
  auto over = conversations_.extract(id);
  over.mapped().thread.join();
  // `done` may destroy this object.
  if (conversations_.empty() && done_) std::exchange(done_, nullptr)();
}

void CheckpointServer::converse(int socket, const AdminPeer& who) const {
  const auto request = read_request(socket);
  auto answer = request ? serve(*request, who) : pass(request.error());
  send_all(socket, answer ? *answer : text_of(answer.error()));
  (void)::shutdown(socket, SHUT_RDWR);
}

// Each call that changes something passes through here. A token is a secret.
template <class Result>
Result CheckpointServer::audited(const AdminPeer& who, const std::string& action,
                                 const std::string& object, Result result) const {
  constexpr size_t kMostDigits = 10;
  if (!audit_) return result;
  AuditRecord record{who,
                     "checkpoint " + action,
                     object.size() <= kMostDigits ? base::printable(object) : "by its token",
                     "",
                     0,
                     ""};
  if (!result) record.error = result.error().code();
  if (!result) record.sentence = result.error().message();
  audit_(record);
  return result;
}

Result<std::string> CheckpointServer::serve(const std::string& request,
                                            const AdminPeer& who) const {
  const std::string line = request.substr(0, request.find('\n'));
  const std::string word = line.substr(0, line.find(' '));
  const std::string object = line.size() > word.size() ? line.substr(word.size() + 1) : "";
  if (word == "park") {
    const auto pid = pid_of(object);
    if (!pid) return pass(pid.error());
    return text_of(audited(who, word, object, backend_.park_process(*pid)));
  }
  if (word == "show") return text_of(backend_.parked_process(object));
  if (word == "detach") {
    auto done = audited(who, word, object, backend_.detach_process(object));
    if (!done) return pass(std::move(done).error());
    return text_of(backend_.parked_process(object));
  }
  if (word == "resume")
    return nothing_after(audited(who, word, object, backend_.resume_process(object)));
  if (word == "abandon")
    return nothing_after(audited(who, word, object, backend_.abandon_process(object)));
  if (word != "place" && word != "attach")
    return fail(EPROTO, "there is no such request as '" + base::printable(word, 32) +
                            "': install plugin and vrdmad of one version");
  const auto process = api::parked_process_of(request.substr(line.size()));
  if (!process) return pass(process.error());
  if (word == "place") return text_of(backend_.place_process(process_of(*process)));
  return nothing_after(audited(who, word, std::to_string(process->pid()),
                               backend_.attach_process(process_of(*process))));
}

}  // namespace vrdma::vrdmad
