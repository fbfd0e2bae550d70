#include "cli/criu/vrdmactl.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
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

namespace {

Result<std::pair<Fd, Fd>> make_pipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return fail_errno("make a pipe");
  return std::pair(Fd(ends[0]), Fd(ends[1]));
}

std::string read_all(const Fd& from) {
  std::string text;
  char bytes[4096];
  for (ssize_t got = 0; (got = ::read(from.get(), bytes, sizeof bytes)) > 0;)
    text.append(bytes, static_cast<size_t>(got));
  return text;
}

// What it prints as JSON. It reads all of its input before it prints.
Result<std::string> vrdmactl(std::vector<std::string> words, const std::string& input = "") {
  // A pipe would raise SIGPIPE in CRIU.
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    return fail_errno("make a pair of sockets");
  Fd in(ends[0]), its_in(ends[1]);
  auto out = make_pipe();
  if (!out) return pass(std::move(out).error());
  words.insert(words.begin(), {"vrdmactl", "-j", "checkpoint"});
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  const pid_t child = ::fork();
  if (child < 0) return fail_errno("start vrdmactl");
  if (child == 0) {
    sigset_t none;
    sigemptyset(&none);
    ::sigprocmask(SIG_SETMASK, &none, nullptr);
    ::dup2(its_in.get(), STDIN_FILENO);
    ::dup2(out->second.get(), STDOUT_FILENO);
    ::dup2(out->second.get(), STDERR_FILENO);
    (void)::close_range(STDERR_FILENO + 1, ~0u, 0);
    ::execvp("vrdmactl", arguments.data());
    ::dprintf(STDOUT_FILENO, "{\"error\": \"vrdmactl cannot be started: %s\"}",
              std::strerror(errno));
    ::_exit(127);
  }
  its_in.reset();
  out->second.reset();
  for (size_t done = 0; done < input.size();) {
    const ssize_t put = ::send(in.get(), input.data() + done, input.size() - done, MSG_NOSIGNAL);
    if (put <= 0) break;
    done += static_cast<size_t>(put);
  }
  in.reset();
  std::string answer = read_all(out->first);
  int status = 0;
  if (::waitpid(child, &status, 0) != child) return fail_errno("wait for vrdmactl");
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return answer;
  const Json json = Json::parse(answer, nullptr, false);
  const auto sentence = json.is_object() ? json.value("error", answer) : answer;
  return fail(json.is_object() ? json.value("errno", EIO) : EIO, sentence);
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

}  // namespace

namespace {

Result<ParkedProgram> program_of(const Result<std::string>& answer) {
  if (!answer) return pass(answer.error());
  try {
    const Json json = Json::parse(*answer);
    ParkedProgram program{json.at("token").get<std::string>(), {}, {}, {}};
    for (const Json& one : json.at("sessions")) program.sessions.push_back(shared_of(one));
    for (const Json& one : json.at("peers")) program.peers.push_back(shared_of(one));
    for (const Json& one : json.at("connections"))
      program.connections.push_back(
          {one.at("socket").get<std::string>(), one.at("channels").get<std::vector<uint64_t>>()});
    return program;
  } catch (const std::exception& error) {
    return fail(EPROTO, std::string("vrdmactl answers in another language: ") + error.what());
  }
}

}  // namespace

Result<ParkedProgram> park(pid_t pid) {
  return program_of(vrdmactl({"park", std::to_string(pid)}));
}

Result<ParkedProgram> show(const std::string& token) {
  return program_of(vrdmactl({"show", token}));
}

Result<ParkedProgram> detach(const std::string& token) {
  return program_of(vrdmactl({"detach", token}));
}

Result<void> resume(const std::string& token) {
  return without_answer(vrdmactl({"resume", token}));
}

Result<void> abandon(const std::string& token) {
  return without_answer(vrdmactl({"abandon", token}));
}

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
  return Json{{"pid", pid}, {"token", program.token}, {"sessions", sessions}}.dump();
}

}  // namespace

Result<std::vector<Shared>> place(pid_t pid, const ParkedProgram& program) {
  auto placed = program_of(vrdmactl({"place", "-"}, text_of(pid, program)));
  if (!placed) return pass(std::move(placed).error());
  return std::move(placed->sessions);
}

Result<void> attach(pid_t pid, const ParkedProgram& program) {
  return without_answer(vrdmactl({"attach", "-"}, text_of(pid, program)));
}

}  // namespace vrdma::cli::criu
