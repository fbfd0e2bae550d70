// exchange [OPTIONS] [HOST]: two processes exchange data by queue pairs and compare every byte.
// Without HOST it is the server. On plain libibverbs: each process may have any device.
//
//   --device NAME --gid-index N --mtu BYTES --port N   as in perftest; the MTU is that of paths
//   --seed N --seconds N     both by the client: 0 seconds are one round of each test
//   --lost-after MS          by both: any number of messages of UC and UD may be lost, and are so
//   after this time
//   --tests NAME,...         by the client: only tests whose names begin so; "-NAME": not these
//
// 0: no test failed; 1: a test failed; 2: usage. Each test has its own TCP connection and objects,
// so the next one is not affected by a failure.
#include <arpa/inet.h>
#include <getopt.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>

#include "tests/interop/rxe/side.h"

namespace {

using exchange::fail;
using exchange::Options;
using exchange::Side;
using exchange::Test;

constexpr uint32_t kMagic = 0x78636867, kEnd = 0xffffffff;

struct Hello {  // of the client
  uint32_t magic = kMagic;
  uint32_t test = kEnd;
  uint64_t seed = 0;
  uint32_t seconds = 0;
  uint32_t reserved = 0;
};

std::vector<Test> all_tests() {
  std::vector<Test> all(exchange::kDataTests.begin(), exchange::kDataTests.end());
  all.insert(all.end(), exchange::kErrorTests.begin(), exchange::kErrorTests.end());
  return all;
}

void set_options(int fd) {
  const int on = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  const timeval limit{2L * exchange::kPatience / 1000, 0};
  ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
}

// -1: the server does not listen.
int connect_once(const Options& options) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  if (::getaddrinfo(options.host.c_str(), std::to_string(options.port).c_str(), &hints, &found) !=
      0)
    fail("there is no host %s", options.host.c_str());
  int fd = ::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (::connect(fd, found->ai_addr, found->ai_addrlen) != 0) {
    ::close(fd);
    fd = -1;
  }
  ::freeaddrinfo(found);
  return fd;
}
int connect_to_server(const Options& options) {
  for (int tries = 0; tries < 200; ++tries) {
    const int fd = connect_once(options);
    if (fd >= 0) {
      set_options(fd);
      return fd;
    }
    ::usleep(100'000);
  }
  fail("no server at %s port %u", options.host.c_str(), options.port);
}

int listen_for_client(const Options& options) {
  const int fd = ::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int on = 1, off = 0;
  ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  ::setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  sockaddr_in6 address{};
  address.sin6_family = AF_INET6;
  address.sin6_port = htons(options.port);
  if (::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      ::listen(fd, 4) != 0)
    fail("cannot listen at port %u: %s", options.port, std::strerror(errno));
  set_options(fd);  // also limits the wait for a client
  return fd;
}

// One test, and its line. True: it did not fail.
bool run(const Test& test, const Options& options, int fd, bool is_client, uint64_t seed) {
  const auto begin = std::chrono::steady_clock::now();
  std::string result;
  bool good = true;
  try {
    Side side(options, fd, is_client, seed);
    const std::time_t end = std::time(nullptr) + options.seconds;
    bool again = true;
    while (again) {
      test.run(side);
      again = std::time(nullptr) < end;
      if (is_client)
        side.channel.tell(again);
      else
        again = side.channel.hear<bool>();
    }
    const auto took = std::chrono::duration_cast<std::chrono::milliseconds>(
        std::chrono::steady_clock::now() - begin);
    result = "passed: " + std::to_string(side.messages) + " messages, " +
             std::to_string(side.bytes) + " bytes, " +
             (side.lost != 0 ? std::to_string(side.lost) + " lost, " : "") +
             std::to_string(took.count()) + " ms";
  } catch (const exchange::Skipped& skipped) {
    result = std::string("skipped: ") + skipped.what();
  } catch (const exchange::Failure& failure) {
    result = std::string("FAILED: ") + failure.what();
    good = false;
  }
  std::printf("%-16s %s\n", test.name, result.c_str());
  std::fflush(stdout);
  return good;
}

// Whether the client's --tests chooses this one.
bool is_chosen(const std::string& name, const std::string& words) {
  bool chosen = words.empty() || words[0] == '-';
  for (size_t at = 0; at < words.size();) {
    const size_t end = std::min(words.find(',', at), words.size());
    std::string word = words.substr(at, end - at);
    const bool wanted = word.empty() || word[0] != '-';
    if (!wanted) word.erase(0, 1);
    if (name.starts_with(word)) chosen = wanted;
    at = end + 1;
  }
  return chosen;
}

bool serve(Options options) {
  const std::vector<Test> tests = all_tests();
  const int listener = listen_for_client(options);
  bool good = true;
  for (bool first = true;; first = false) {
    const int fd = ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
    if (fd < 0) fail("no client comes");
    set_options(fd);
    Hello hello;
    if (::recv(fd, &hello, sizeof hello, MSG_WAITALL) != sizeof hello || hello.magic != kMagic)
      fail("the client is another program");
    if (first) std::printf("seed %llu\n", static_cast<unsigned long long>(hello.seed));
    if (hello.test >= tests.size()) {
      ::close(fd);
      ::close(listener);
      return good;
    }
    options.seconds = hello.seconds;
    good &= run(tests[hello.test], options, fd, false, hello.seed + hello.test);
  }
}

bool visit(const Options& options, const std::string& words) {
  const std::vector<Test> tests = all_tests();
  std::printf("seed %llu\n", static_cast<unsigned long long>(options.seed));
  bool good = true;
  Hello hello;
  hello.seed = options.seed;
  hello.seconds = options.seconds;
  const auto begin = [&] {
    const int fd = connect_to_server(options);
    if (::send(fd, &hello, sizeof hello, MSG_NOSIGNAL) != sizeof hello)
      fail("the server has ended");
    return fd;
  };
  bool any = false;
  for (hello.test = 0; hello.test < tests.size(); ++hello.test) {
    if (!is_chosen(tests[hello.test].name, words)) continue;
    any = true;
    const int fd = begin();
    good &= run(tests[hello.test], options, fd, true, hello.seed + hello.test);
  }
  hello.test = kEnd;
  ::close(begin());
  if (!any) fail("no test has such a name");
  return good;
}

}  // namespace

int main(int argc, char** argv) {
  static constexpr option kLong[] = {{"device", required_argument, nullptr, 'd'},
                                     {"gid-index", required_argument, nullptr, 'x'},
                                     {"mtu", required_argument, nullptr, 'm'},
                                     {"port", required_argument, nullptr, 'p'},
                                     {"seconds", required_argument, nullptr, 'D'},
                                     {"seed", required_argument, nullptr, 's'},
                                     {"tests", required_argument, nullptr, 't'},
                                     {"lost-after", required_argument, nullptr, 'l'},
                                     {nullptr, 0, nullptr, 0}};
  Options options;
  options.seed = static_cast<uint64_t>(std::time(nullptr));
  std::string words;
  int letter = 0;
  while ((letter = ::getopt_long(argc, argv, "d:x:m:p:D:s:t:l:", kLong, nullptr)) != -1) {
    switch (letter) {
      case 'd':
        options.device = optarg;
        break;
      case 'x':
        options.gid_index = std::atoi(optarg);
        break;
      case 'm':
        options.mtu = static_cast<uint32_t>(std::atoi(optarg));
        break;
      case 'p':
        options.port = static_cast<uint16_t>(std::atoi(optarg));
        break;
      case 'D':
        options.seconds = static_cast<uint32_t>(std::atoi(optarg));
        break;
      case 's':
        options.seed = std::strtoull(optarg, nullptr, 0);
        break;
      case 't':
        words = optarg;
        break;
      case 'l':
        options.lost_after = static_cast<uint32_t>(std::atoi(optarg));
        break;
      default:
        return 2;
    }
  }
  if (optind < argc) options.host = argv[optind++];
  if (optind < argc) return 2;
  try {
    return (options.host.empty() ? serve(options) : visit(options, words)) ? 0 : 1;
  } catch (const std::exception& error) {
    std::printf("FAILED: %s\n", error.what());
    return 1;
  }
}
