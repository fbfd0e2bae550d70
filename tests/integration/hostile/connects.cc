// Floods of connections and requests, which any process can make.
//
//   vrdma_connects MODE SOCKET SECONDS
//
// connect     connections that say nothing and go
// die         processes that connect, begin to prove who they are, and are killed
// hold        600 connections that stay
// ask         200 connections, each of which asks again when it is answered
// cm-connect  connections to the rdma_cm socket beside it
// cm-ask      requests there, 32 in flight, without an end
//
// SOCKET may be a neighbour's. Writes "begun", and at the end "COUNT done": the number of
// connections, processes, remaining connections, or replies.
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "core/ipc/cm_messages.h"
#include "tests/integration/hostile/client.h"
#include "tests/integration/hostile/connections.h"

namespace vrdma::hostile {
namespace {

using base::Fd;
using ipc::Call;
using Clock = std::chrono::steady_clock;

class Span {
 public:
  explicit Span(int seconds) : end_(Clock::now() + std::chrono::seconds(seconds)) {}
  [[nodiscard]] bool lasts() const { return Clock::now() < end_; }

 private:
  Clock::time_point end_;
};

// Invalid: the listen queue is full.
Fd connect_at_once(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  Fd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (::connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0)
    return socket;
  ::usleep(50);
  return {};
}

uint64_t connect_and_go(const std::string& path, const Span& span) {
  uint64_t count = 0;
  while (span.lasts())
    if (connect_at_once(path).valid()) ++count;
  return count;
}

uint64_t connect_and_die(const std::string& path, const Span& span) {
  uint64_t count = 0;
  for (; span.lasts(); ++count) {
    const pid_t child = ::fork();
    expect(child >= 0, "fork");
    if (child == 0) {
      const Fd socket = connect_at_once(path);
      ipc::Request hello = request_of(Call::kHello);
      hello.hello.challenge_addr = reinterpret_cast<uint64_t>(&hello);
      hello.sequence = 1;
      if (socket.valid()) (void)::send(socket.get(), &hello, sizeof hello, MSG_NOSIGNAL);
      ::kill(::getpid(), SIGKILL);
    }
    expect(::waitpid(child, nullptr, 0) == child, "wait for a child");
  }
  return count;
}

uint64_t connect_and_hold(const std::string& path, const Span& span) {
  std::vector<Fd> held;
  while (held.size() < 600 && span.lasts())
    if (Fd socket = connect_at_once(path); socket.valid()) held.push_back(std::move(socket));
  while (span.lasts()) ::usleep(10'000);
  uint64_t left = 0;
  for (const Fd& socket : held) {
    pollfd state{socket.get(), POLLIN, 0};
    if (::poll(&state, 1, 0) == 0) ++left;
  }
  return left;
}

uint64_t ask(const std::string& path, const Span& span) {
  std::vector<std::unique_ptr<Client>> clients;
  std::vector<pollfd> states;
  ipc::Request probe = request_of(Call::kProbe);
  for (int i = 0; i < 200; ++i) {
    clients.push_back(std::make_unique<Client>(path));
    states.push_back({clients.back()->fd(), POLLIN, 0});
    clients.back()->send(probe);
  }
  uint64_t answers = 0;
  while (span.lasts()) {
    if (::poll(states.data(), states.size(), 100) <= 0) continue;
    for (size_t i = 0; i < states.size(); ++i) {
      if (states[i].revents == 0) continue;
      ipc::Reply reply;
      expect(::recv(states[i].fd, &reply, sizeof reply, MSG_DONTWAIT) > 0,
             "a session was ended whose requests came too fast");
      ++answers;
      clients[i]->send(probe);
    }
  }
  return answers;
}

uint64_t ask_at_rdma_cm(const std::string& path, const Span& span) {
  auto client = std::make_unique<CmClient>(path);
  // Connections are closed while the rate is exhausted by an earlier attack.
  while (client->call(ipc::CmCall::kDevices) != 0 && span.lasts())
    client = std::make_unique<CmClient>(path);
  // Several requests are in flight, so that the limit bounds their rate, and not how soon each is
  // answered.
  ipc::CmRequest request;
  request.call = ipc::CmCall::kDevices;
  for (int i = 0; i < 32; ++i) client->ask(request);
  uint64_t answers = 1;
  for (; span.lasts(); ++answers) {
    expect(client->answer() == 0, "the rdma_cm session has ended");
    client->ask(request);
  }
  return answers;
}

uint64_t attack(const std::string& mode, const std::string& path, const Span& span) {
  const std::string beside = path.substr(0, path.rfind('/') + 1) + ipc::kCmSocket;
  if (mode == "connect") return connect_and_go(path, span);
  if (mode == "die") return connect_and_die(path, span);
  if (mode == "hold") return connect_and_hold(path, span);
  if (mode == "ask") return ask(path, span);
  if (mode == "cm-connect") return connect_and_go(beside, span);
  if (mode == "cm-ask") return ask_at_rdma_cm(path, span);
  failed("there is no attack " + mode);
}

}  // namespace
}  // namespace vrdma::hostile

int main(int argc, char** argv) {
  using namespace vrdma::hostile;
  if (argc != 4) return 2;
  rlimit files{};
  ::getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &files);
  std::cout << "begun" << std::endl;
  std::cout << attack(argv[1], argv[2], Span(std::atoi(argv[3]))) << " done" << std::endl;
  return 0;
}
