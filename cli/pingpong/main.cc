// vrdma-pingpong: the programs of `vrdma-sandbox --demo`.
//
//   vrdma-pingpong            the server: waits for one client
//   vrdma-pingpong ADDRESS    the client: prints half a round trip of 8 bytes in ns (the median)
//   and
//                             the bytes per second of WRITEs of 1 MiB
//
// The server compares what was written with what the client says it wrote.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <vector>

#include "cli/pingpong/endpoint.h"

namespace {

using vrdma::base::Fd;
using vrdma::cli::pingpong::Endpoint;
using vrdma::cli::pingpong::require;
using Clock = std::chrono::steady_clock;

constexpr uint16_t kTcpPort = 18515;
constexpr auto kPhase = std::chrono::milliseconds(200);
// Messages of the client; others are rounds of the ping-pong. The server repeats each.
constexpr uint64_t kWritten = ~uint64_t{0}, kRight = kWritten - 1, kWrong = kWritten - 2;

sockaddr_in address_of(const char* text) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(kTcpPort);
  errno = EINVAL;
  require(text == nullptr || ::inet_pton(AF_INET, text, &address.sin_addr) == 1,
          "understand the address");
  return address;
}

uint8_t pattern(size_t at) { return static_cast<uint8_t>(at * 31 + at / 4096); }

int serve() {
  const sockaddr_in address = address_of(nullptr);
  const Fd listening(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int reuse = 1;
  require(listening.valid() &&
              ::setsockopt(listening.get(), SOL_SOCKET, SO_REUSEADDR, &reuse, sizeof reuse) == 0 &&
              ::bind(listening.get(), reinterpret_cast<const sockaddr*>(&address),
                     sizeof address) == 0 &&
              ::listen(listening.get(), 1) == 0,
          "listen");
  Endpoint endpoint(Fd(::accept4(listening.get(), nullptr, nullptr, SOCK_CLOEXEC)));
  for (;;) {
    const uint64_t message = endpoint.receive();
    if (message != kWritten) {
      endpoint.send(message);
      continue;
    }
    size_t wrong = 0;
    for (size_t at = 0; at < Endpoint::kBlocks * Endpoint::kBlock; ++at)
      wrong += endpoint.memory()[at] != pattern(at) ? 1 : 0;
    endpoint.send(wrong == 0 ? kRight : kWrong);
    endpoint.meet();
    return 0;
  }
}

double median_half_round_trip(Endpoint& endpoint) {
  std::vector<double> times;
  const auto end = Clock::now() + kPhase;
  for (uint64_t round = 0; Clock::now() < end; ++round) {
    const auto begun = Clock::now();
    endpoint.send(round);
    require(endpoint.receive() == round, "recognize the answer");
    times.push_back(std::chrono::duration<double, std::nano>(Clock::now() - begun).count() / 2);
  }
  const auto middle = times.begin() + static_cast<ptrdiff_t>(times.size() / 2);
  std::nth_element(times.begin(), middle, times.end());
  return *middle;
}

double bytes_per_second(Endpoint& endpoint) {
  for (size_t at = 0; at < Endpoint::kBlocks * Endpoint::kBlock; ++at)
    endpoint.memory()[at] = pattern(at);
  const auto begun = Clock::now();
  size_t posted = 0, done = 0;
  while (posted < Endpoint::kBlocks || Clock::now() < begun + kPhase) {
    endpoint.write(posted++);
    if (posted - done == Endpoint::kBlocks) endpoint.await_write(), ++done;
  }
  for (; done < posted; ++done) endpoint.await_write();
  const std::chrono::duration<double> took = Clock::now() - begun;
  return static_cast<double>(posted * Endpoint::kBlock) / took.count();
}

int measure(const char* server) {
  const sockaddr_in address = address_of(server);
  Fd connection(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  require(
      connection.valid() && ::connect(connection.get(), reinterpret_cast<const sockaddr*>(&address),
                                      sizeof address) == 0,
      "connect to the server");
  Endpoint endpoint(std::move(connection));
  const double latency = median_half_round_trip(endpoint);
  const double bandwidth = bytes_per_second(endpoint);
  endpoint.send(kWritten);
  const bool right = endpoint.receive() == kRight;
  endpoint.meet();
  if (!right) {
    std::fprintf(stderr, "vrdma-pingpong: the server has other bytes than were written\n");
    return 1;
  }
  std::printf("%.0f %.0f\n", latency, bandwidth);
  return 0;
}

}  // namespace

int main(int argc, char** argv) { return argc > 1 ? measure(argv[1]) : serve(); }
