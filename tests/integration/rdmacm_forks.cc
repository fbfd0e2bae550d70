// rdmacm_forks ADDRESS: children of a program that other threads of make ids and open vdevices at
// the time of the fork. Each child uses rdma_cm by itself.
#include <arpa/inet.h>
#include <rdma/rdma_cma.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

namespace {

[[noreturn]] void fail(const char* what, int line) {
  std::fprintf(stderr, "FAILED: line %d: %s: %s\n", line, what, std::strerror(errno));
  std::_Exit(1);
}
#define CHECK(holds) ((holds) ? void() : fail(#holds, __LINE__))

void make_ids(rdma_event_channel* channel, const std::atomic<bool>& over) {
  while (!over) {
    rdma_cm_id* id = nullptr;
    CHECK(rdma_create_id(channel, &id, nullptr, RDMA_PS_TCP) == 0);
    CHECK(rdma_destroy_id(id) == 0);
  }
}

void make_channels(const std::atomic<bool>& over) {
  while (!over) {
    rdma_event_channel* const channel = rdma_create_event_channel();
    CHECK(channel != nullptr);
    rdma_destroy_event_channel(channel);
  }
}

void use_in_child(sockaddr_in address, bool opens) {
  constexpr unsigned kPatience = 10;  // s
  ::alarm(kPatience);
  rdma_event_channel* const channel = rdma_create_event_channel();
  CHECK(channel != nullptr);
  rdma_cm_id* id = nullptr;
  CHECK(rdma_create_id(channel, &id, nullptr, RDMA_PS_TCP) == 0);
  address.sin_port = 0;
  if (opens) CHECK(rdma_bind_addr(id, reinterpret_cast<sockaddr*>(&address)) == 0);
  CHECK(rdma_destroy_id(id) == 0);
  ::_exit(0);
}

}  // namespace

int main(int argc, char** argv) {
  constexpr int kChildren = 200, kOpens = 20;  // each of these opens the vdevice
  sockaddr_in address{};
  address.sin_family = AF_INET;
  if (argc != 2 || ::inet_pton(AF_INET, argv[1], &address.sin_addr) != 1) {
    std::fprintf(stderr, "usage: rdmacm_forks IPV4\n");
    return 2;
  }
  rdma_event_channel* const channel = rdma_create_event_channel();
  CHECK(channel != nullptr);
  std::atomic<bool> over = false;
  std::thread ids([&] { make_ids(channel, over); });
  std::thread channels([&] { make_channels(over); });
  for (int i = 0; i < kChildren; ++i) {
    const pid_t child = ::fork();
    if (child == 0) use_in_child(address, i % kOpens == 0);
    int status = -1;
    CHECK(::waitpid(child, &status, 0) == child);
    if (status != 0) std::fprintf(stderr, "child %d ends with status %#x\n", i, status);
    CHECK(status == 0);
  }
  over = true;
  ids.join();
  channels.join();
  return 0;
}
