// hostile SOCKET [SEED [ATTACK...]]: attacks the daemon behind a session socket.
//
// Runs the attacks one after the other, each in a process that is killed afterwards. During and
// after each attack the daemon must answer other clients; the longest time of a reply is printed.
// Exits with 1 when an attack found a violation.
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <random>

#include "tests/integration/hostile/attack.h"
#include "tests/integration/hostile/client.h"
#include "tests/integration/hostile/connections.h"

namespace {

using std::chrono::steady_clock;
using vrdma::hostile::Answer;
using vrdma::hostile::Attack;
using vrdma::hostile::Client;
using vrdma::hostile::CmClient;
using vrdma::hostile::Target;

// Beyond these times something hangs, even on a busy machine with a sanitizer.
constexpr auto kLongest = std::chrono::seconds(120);  // an attack
constexpr auto kPatience = std::chrono::seconds(20);  // a reply to others

// With AddressSanitizer long attacks take minutes, and find no more than their first calls.
#ifdef __SANITIZE_ADDRESS__
constexpr bool kTedious = false;
#else
constexpr bool kTedious = true;
#endif

// The requests of a well-behaved client; at the rdma_cm socket of one that existed before.
steady_clock::duration ask(const std::string& socket) {
  static CmClient neighbour(socket);
  const auto begin = steady_clock::now();
  Client client(socket);
  const Answer answer = client.call(vrdma::ipc::Call::kProbe);
  const int error = neighbour.call(vrdma::ipc::CmCall::kDevices);
  const auto took = steady_clock::now() - begin;
  if (!answer.came || answer.error != 0 || error != 0 || took > kPatience) {
    std::cout << "FAILED: the daemon does not answer others" << std::endl;
    std::exit(1);
  }
  return took;
}

// A complete session that must work.
void use(const std::string& socket) {
  Client client(socket);
  client.open();
  const uint32_t pd = client.alloc_pd();
  const auto qp = client.create_qp(pd, client.create_cq());
  client.loop(qp);
  const auto mr = client.reg_mr(pd, 1u << 20, 4096, vrdma::ipc::Way::kInPlace);
  const auto map =
      vrdma::base::Mapping::shared(client.memory_fd, 4096, 1u << 20, PROT_READ | PROT_WRITE);
  std::memset(map->bytes(), 0x5a, 64);
  vrdma::ipc::SendWqe wqe{};
  wqe.opcode = static_cast<uint8_t>(vrdma::verbs::Opcode::kRdmaWrite);
  wqe.num_sge = 1;
  wqe.rdma.remote_addr = (1u << 20) + 1024;
  wqe.rdma.rkey = mr.key;
  client.post(qp, wqe, {{1u << 20, 64, mr.key}});
  vrdma::hostile::expect(
      client.executed(qp) && client.last_result(qp).status == 0 && map->bytes()[1024 + 63] == 0x5a,
      "a well-behaved session does not work any more");
}

bool run(const Attack& attack, const Target& target) {
  const auto begin = steady_clock::now();
  const pid_t child = ::fork();
  if (child == 0) {
    ::setpgid(0, 0);
    attack.run(target);
    ::_exit(0);
  }
  ::setpgid(child, child);
  steady_clock::duration longest{};
  int status = 0;
  bool over = false;
  while (!over) {
    over = ::waitpid(child, &status, WNOHANG) == child;
    longest = std::max(longest, ask(target.socket));
    if (!over && steady_clock::now() - begin > kLongest) {
      std::cout << "FAILED: " << attack.name << " does not end" << std::endl;
      ::kill(-child, SIGKILL);
      ::waitpid(child, &status, 0);
      return false;
    }
    ::usleep(5000);
  }
  ::kill(-child, SIGKILL);  // with its helpers
  const bool well = WIFEXITED(status) && WEXITSTATUS(status) == 0;
  using std::chrono::duration_cast;
  using std::chrono::milliseconds;
  std::cout << (well ? "   " : "!! ") << attack.name << ": "
            << duration_cast<milliseconds>(steady_clock::now() - begin).count()
            << " ms, others waited " << duration_cast<milliseconds>(longest).count() << " ms"
            << std::endl;
  if (!well && !WIFEXITED(status))
    std::cout << "FAILED: " << attack.name << " died of signal " << WTERMSIG(status) << std::endl;
  use(target.socket);
  return well;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::cerr << "usage: hostile SOCKET [SEED [ATTACK...]]\n";
    return 2;
  }
  ::signal(SIGPIPE, SIG_IGN);
  const uint32_t seed =
      argc > 2 ? static_cast<uint32_t>(std::strtoul(argv[2], nullptr, 0)) : std::random_device()();
  const Target target{argv[1], seed, std::getenv("HOSTILE_CROWD") == nullptr};
  std::cout << "seed " << seed << std::endl;
  (void)ask(target.socket);
  bool well = true;
  for (const auto& group : {vrdma::hostile::message_attacks(), vrdma::hostile::descriptor_attacks(),
                            vrdma::hostile::raw_attacks(), vrdma::hostile::ring_attacks(),
                            vrdma::hostile::memory_attacks(), vrdma::hostile::shown_attacks(),
                            vrdma::hostile::connection_attacks(), vrdma::hostile::object_attacks(),
                            vrdma::hostile::stranger_attacks(), vrdma::hostile::race_attacks(),
                            vrdma::hostile::process_attacks(), vrdma::hostile::hold_attacks()})
    for (const Attack& attack : group)
      if (argc <= 3 ? kTedious || !attack.tedious
                    : std::any_of(argv + 3, argv + argc, [&](const char* name) {
                        return std::strcmp(name, attack.name) == 0;
                      }))
        well &= run(attack, target);
  return well ? 0 : 1;
}
