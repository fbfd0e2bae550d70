#include "cli/criu/vrdmad.h"

#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/base/fd.h"

namespace vrdma::cli::criu {

using base::fail;
using base::fail_errno;
using base::Fd;
using base::pass;
using base::Result;
using Json = nlohmann::ordered_json;

std::string run_dir() {
  const char* const directory = std::getenv("VRDMA_RUN_DIR");
  return directory != nullptr && *directory != 0 ? directory : "/run/vrdma";
}

namespace {

constexpr timeval kMostWait{30, 0};  // as vrdmactl

Result<Fd> connect_to_vrdmad() {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string path = run_dir() + "/checkpoint.sock";
  if (path.size() >= sizeof address.sun_path)
    return fail(ENAMETOOLONG, path + ": too long for a socket path");
  path.copy(address.sun_path, path.size());
  Fd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!socket.valid()) return fail_errno("create a socket");
  (void)::setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &kMostWait, sizeof kMostWait);
  (void)::setsockopt(socket.get(), SOL_SOCKET, SO_SNDTIMEO, &kMostWait, sizeof kMostWait);
  int result = 0;
  do {
    result = ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address);
  } while (result != 0 && errno == EINTR);
  if (result != 0)
    return fail(errno, "vrdmad cannot be asked at " + path + ": " + std::strerror(errno) +
                           "; start it, or name its run directory with VRDMA_RUN_DIR");
  return socket;
}

base::Error lost() {
  if (errno == EAGAIN || errno == EWOULDBLOCK) return {ETIMEDOUT, "vrdmad does not answer"};
  return {errno, std::string("vrdmad cannot be asked: ") + std::strerror(errno)};
}

// Without SIGPIPE, which would end CRIU.
Result<void> send_all(const Fd& socket, const std::string& text) {
  for (size_t sent = 0; sent < text.size();) {
    const ssize_t put = ::send(socket.get(), text.data() + sent, text.size() - sent, MSG_NOSIGNAL);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0 && errno == EPIPE) return {};  // it has refused the rest, and says why
    if (put < 0) return pass(lost());
    sent += static_cast<size_t>(put);
  }
  (void)::shutdown(socket.get(), SHUT_WR);
  return {};
}

// vrdmad's answer to a request (vrdmad/admin/checkpoint_server.h). `process`: the lines after the
// first.
Result<std::string> ask(const std::string& line, const std::string& process = "") {
  auto socket = connect_to_vrdmad();
  if (!socket) return pass(std::move(socket).error());
  if (auto sent = send_all(*socket, line + "\n" + process); !sent)
    return pass(std::move(sent).error());
  std::string answer;
  char some[16'384];
  for (;;) {
    const ssize_t got = ::recv(socket->get(), some, sizeof some, 0);
    if (got == 0) break;
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return pass(lost());
    answer.append(some, static_cast<size_t>(got));
  }
  if (answer.empty()) return fail(ECONNRESET, "vrdmad ended instead of an answer");
  if (answer.rfind("{\"error\"", 0) != 0) return answer;
  const Json json = Json::parse(answer, nullptr, false);
  try {
    return fail(json.at("errno").get<int>(), json.at("error").get<std::string>());
  } catch (const std::exception&) {
    return fail(EPROTO, answer);
  }
}

Result<void> without_answer(const Result<std::string>& answer) {
  if (!answer) return pass(answer.error());
  return {};
}

Shared shared_of(const Json& json) {
  Shared session;
  json.at("number").get_to(session.number);
  json.at("socket").get_to(session.socket);
  json.at("arena").get_to(session.arena);
  json.at("bells").get_to(session.bells);
  json.at("memory").get_to(session.memory);
  json.at("doorbell").get_to(session.doorbell);
  json.at("events").get_to(session.events);
  for (const auto& [handle, inode] : json.at("channels").items())
    session.channels[static_cast<uint32_t>(std::stoul(handle))] = inode.get<uint64_t>();
  json.at("pid").get_to(session.pid);
  json.at("away").get_to(session.away);
  if (!json.contains("image")) return session;
  Json portable;
  for (const char* const name : {"vdev", "image", "gids", "known_as"})
    portable[name] = json.at(name);
  session.portable = portable.dump();
  return session;
}

Result<ParkedProgram> program_of(const Result<std::string>& answer) {
  if (!answer) return pass(answer.error());
  try {
    const Json json = Json::parse(*answer);
    ParkedProgram program{json.at("token").get<std::string>(), {}, {}, {}};
    for (const Json& one : json.at("sessions")) program.sessions.push_back(shared_of(one));
    for (const Json& one : json.at("peers")) program.peers.push_back(shared_of(one));
    for (const Json& one : json.at("connections")) {
      program.connections.push_back(
          {one.at("socket").get<std::string>(), one.at("channels").get<std::vector<uint64_t>>()});
      if (one.contains("image"))
        program.connections.back().portable = Json{{"image", one.at("image")}}.dump();
    }
    return program;
  } catch (const std::exception& error) {
    return fail(EPROTO, std::string("vrdmad answers in another language: ") + error.what());
  }
}

}  // namespace

pid_t control_pid() {
  const auto socket = connect_to_vrdmad();
  ucred peer{};
  socklen_t size = sizeof peer;
  const bool known =
      socket && ::getsockopt(socket->get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0;
  return known ? peer.pid : -1;
}

Result<ParkedProgram> park(pid_t pid) { return program_of(ask("park " + std::to_string(pid))); }

Result<ParkedProgram> show(const std::string& token) { return program_of(ask("show " + token)); }

Result<ParkedProgram> detach(const std::string& token) {
  return program_of(ask("detach " + token));
}

Result<void> resume(const std::string& token) { return without_answer(ask("resume " + token)); }

Result<void> abandon(const std::string& token) { return without_answer(ask("abandon " + token)); }

namespace {

std::string text_of(pid_t pid, const ParkedProgram& program) {
  Json sessions = Json::array();
  for (const Shared& one : program.sessions) {
    Json channels = Json::object();
    for (const auto& [handle, inode] : one.channels) channels[std::to_string(handle)] = inode;
    sessions.push_back({{"number", one.number},
                        {"arena", one.arena},
                        {"bells", one.bells},
                        {"memory", one.memory},
                        {"doorbell", one.doorbell},
                        {"events", one.events},
                        {"channels", channels}});
    const Json portable = Json::parse(one.portable, nullptr, false);
    if (portable.is_object()) sessions.back().update(portable);
  }
  Json connections = Json::array();
  for (const Connections& one : program.connections) {
    const Json portable = Json::parse(one.portable, nullptr, false);
    connections.push_back(portable.is_object() ? portable : Json::object());
  }
  return Json{
      {"pid", pid}, {"token", program.token}, {"sessions", sessions}, {"connections", connections}}
      .dump();
}

}  // namespace

Result<ParkedProgram> place(pid_t pid, const ParkedProgram& program) {
  return program_of(ask("place", text_of(pid, program)));
}

Result<void> attach(pid_t pid, const ParkedProgram& program) {
  return without_answer(ask("attach", text_of(pid, program)));
}

}  // namespace vrdma::cli::criu
