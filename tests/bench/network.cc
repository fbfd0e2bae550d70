// bench_network: what bare sockets reach between two network namespaces, to hold vdevices against.
//
//   bench_network echo ADDRESS spin|sleep                     answers datagrams, until it is killed
//   bench_network ping ADDRESS spin|sleep ITERATIONS PAUSE    half round trips of 2 bytes
//   bench_network drain ADDRESS udp|tcp                       receives one flow to its end
//   bench_network flood ADDRESS BYTES SECONDS                 datagrams by sendmmsg(2), without
//   UDP_SEGMENT bench_network stream ADDRESS SECONDS                      1 MiB at a time by TCP
//
// "spin" receives with MSG_DONTWAIT again and again, "sleep" blocks. PAUSE, in microseconds, is
// slept before each round trip. A receiver prints a line when it is ready. Of `drain` a line of
// JSON follows: MiB and million datagrams a second from the first bytes to the last ones. `ping`
// prints the median of half of a round trip in nanoseconds.
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/bench/address.h"
#include "tests/bench/median.h"

namespace {

using Clock = std::chrono::steady_clock;

constexpr uint16_t kPort = 7471;
constexpr size_t kStep = 1 << 20;  // bytes of one send or receive of TCP
constexpr unsigned kBatch = 64;    // datagrams of one system call
constexpr int kRoom = 4 << 20;     // of a socket's buffers, as vrdmad's have
constexpr int kSilence = 500;      // milliseconds after which a flow of datagrams is over
constexpr int kPatience = 20'000;  // milliseconds for the first of it
constexpr double kMib = 1 << 20;

[[noreturn]] void fail(const char* what) {
  std::fprintf(stderr, "bench_network: %s: %s\n", what, std::strerror(errno));
  std::exit(1);
}

int make_socket(int type) {
  const int fd = socket(AF_INET, type | SOCK_CLOEXEC, 0);
  if (fd < 0) fail("socket");
  if (type != SOCK_DGRAM) return fd;
  for (const int option : {SO_RCVBUFFORCE, SO_SNDBUFFORCE})
    if (setsockopt(fd, SOL_SOCKET, option, &kRoom, sizeof kRoom) != 0) fail("room for a socket");
  return fd;
}

sockaddr_in at(const char* address) { return vrdma::bench::socket_address(address, kPort); }

int bound(const char* address, int type) {
  const int fd = make_socket(type);
  const sockaddr_in here = at(address);
  const int on = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (bind(fd, reinterpret_cast<const sockaddr*>(&here), sizeof here) != 0) fail("bind");
  if (type == SOCK_STREAM && listen(fd, 1) != 0) fail("listen");
  std::puts("ready");
  std::fflush(stdout);
  return fd;
}

int connected(const char* address, int type) {
  const int fd = make_socket(type);
  const sockaddr_in there = at(address);
  if (connect(fd, reinterpret_cast<const sockaddr*>(&there), sizeof there) != 0) fail("connect");
  return fd;
}

ssize_t receive(int fd, bool spins, void* bytes, size_t size, sockaddr_in* from) {
  for (;;) {
    socklen_t length = sizeof *from;
    const ssize_t got = recvfrom(fd, bytes, size, spins ? MSG_DONTWAIT : 0,
                                 reinterpret_cast<sockaddr*>(from), &length);
    if (got >= 0) return got;
    if (errno != EAGAIN) fail("recvfrom");
  }
}

[[noreturn]] void echo(const char* address, bool spins) {
  const int fd = bound(address, SOCK_DGRAM);
  for (;;) {
    std::array<char, 64> bytes;
    sockaddr_in from{};
    const ssize_t size = receive(fd, spins, bytes.data(), bytes.size(), &from);
    if (sendto(fd, bytes.data(), static_cast<size_t>(size), 0,
               reinterpret_cast<const sockaddr*>(&from), sizeof from) != size)
      fail("sendto");
  }
}

void ping(const char* address, bool spins, uint64_t iterations, std::chrono::microseconds pause) {
  const int fd = connected(address, SOCK_DGRAM);
  std::vector<double> halves;
  for (uint64_t i = 0; i < iterations; ++i) {
    if (pause.count() > 0) std::this_thread::sleep_for(pause);
    std::array<char, 2> bytes{};
    const auto begun = Clock::now();
    if (send(fd, bytes.data(), bytes.size(), 0) < 0) fail("send");
    sockaddr_in from{};
    receive(fd, spins, bytes.data(), bytes.size(), &from);
    halves.push_back(std::chrono::duration<double, std::nano>(Clock::now() - begun).count() / 2);
  }
  std::printf("{\"typical\": %.1f}\n", vrdma::bench::median(std::move(halves)));
}

// What came, and when.
struct Flow {
  uint64_t bytes = 0, datagrams = 0;
  Clock::time_point first{}, last{};

  void add(uint64_t more, uint64_t count) {
    last = Clock::now();
    if (bytes == 0) first = last;  // what came before is not counted
    bytes += more;
    datagrams += count;
  }
  void print() const {
    const double seconds = std::chrono::duration<double>(last - first).count();
    std::printf("{\"rate\": %.3f, \"datagrams\": %.6f}\n",
                static_cast<double>(bytes) / kMib / seconds,
                static_cast<double>(datagrams) / 1e6 / seconds);
  }
};

void drain_datagrams(const char* address) {
  const int fd = bound(address, SOCK_DGRAM);
  constexpr size_t kEach = 9000;
  std::vector<char> room(kBatch * kEach);
  std::array<mmsghdr, kBatch> messages{};
  std::array<iovec, kBatch> pieces{};
  for (unsigned i = 0; i < kBatch; ++i) {
    pieces[i] = {&room[i * kEach], kEach};
    messages[i].msg_hdr.msg_iov = &pieces[i];
    messages[i].msg_hdr.msg_iovlen = 1;
  }
  Flow flow;
  for (pollfd there{fd, POLLIN, 0}; poll(&there, 1, flow.bytes == 0 ? kPatience : kSilence) > 0;) {
    const int count = recvmmsg(fd, messages.data(), kBatch, MSG_DONTWAIT, nullptr);
    if (count < 0) fail("recvmmsg");
    uint64_t bytes = 0;
    for (int i = 0; i < count; ++i) bytes += messages[static_cast<size_t>(i)].msg_len;
    flow.add(bytes, static_cast<uint64_t>(count));
  }
  flow.print();
}

void drain_stream(const char* address) {
  const int fd = accept(bound(address, SOCK_STREAM), nullptr, nullptr);
  if (fd < 0) fail("accept");
  std::vector<char> room(kStep);
  Flow flow;
  for (ssize_t got = 0; (got = recv(fd, room.data(), room.size(), 0)) > 0;)
    flow.add(static_cast<uint64_t>(got), 0);
  flow.print();
}

void flood(const char* address, size_t size, double seconds) {
  const int fd = connected(address, SOCK_DGRAM);
  std::vector<char> bytes(size, 1);
  iovec piece{bytes.data(), bytes.size()};
  std::array<mmsghdr, kBatch> messages{};
  for (mmsghdr& each : messages) {
    each.msg_hdr.msg_iov = &piece;
    each.msg_hdr.msg_iovlen = 1;
  }
  const auto end = Clock::now() + std::chrono::duration<double>(seconds);
  while (Clock::now() < end)
    if (sendmmsg(fd, messages.data(), kBatch, 0) < 0) fail("sendmmsg");
}

void stream(const char* address, double seconds) {
  const int fd = connected(address, SOCK_STREAM);
  const std::vector<char> bytes(kStep, 1);
  const auto end = Clock::now() + std::chrono::duration<double>(seconds);
  while (Clock::now() < end)
    for (size_t done = 0; done < bytes.size();) {
      const ssize_t sent = send(fd, &bytes[done], bytes.size() - done, 0);
      if (sent < 0) fail("send");
      done += static_cast<size_t>(sent);
    }
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 2 ? argv[1] : "", how = argc > 3 ? argv[3] : "";
  const bool spins = how == "spin";
  if (what == "echo" && argc == 4 && (spins || how == "sleep")) {
    echo(argv[2], spins);
  } else if (what == "ping" && argc == 6 && (spins || how == "sleep") && std::atoi(argv[4]) > 0) {
    ping(argv[2], spins, static_cast<uint64_t>(std::atoi(argv[4])),
         std::chrono::microseconds(std::atoi(argv[5])));
  } else if (what == "drain" && how == "udp") {
    drain_datagrams(argv[2]);
  } else if (what == "drain" && how == "tcp") {
    drain_stream(argv[2]);
  } else if (what == "flood" && argc == 5 && std::atoi(argv[3]) > 0) {
    flood(argv[2], static_cast<size_t>(std::atoi(argv[3])), std::atof(argv[4]));
  } else if (what == "stream" && argc == 4) {
    stream(argv[2], std::atof(argv[3]));
  } else {
    std::fprintf(stderr,
                 "usage: bench_network echo ADDRESS spin|sleep\n"
                 "                     ping ADDRESS spin|sleep ITERATIONS PAUSE\n"
                 "                     drain ADDRESS udp|tcp\n"
                 "                     flood ADDRESS BYTES SECONDS | stream ADDRESS SECONDS\n");
    return 2;
  }
  return 0;
}
