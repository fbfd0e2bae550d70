// newer_calls ADDRESS: calls of librdmacm that the build machine's header lacks (RDMACM_1.4 and
// 1.5), between two ends in one process on the vdevice that has the address.
#include <arpa/inet.h>
#include <dlfcn.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <rdma/rsocket.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
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
#define CHECK_ERRNO(call, error) \
  (((call) == -1 && errno == (error)) ? void() : fail(#call " is not " #error, __LINE__))

template <class Function>
Function* find(const char* name, const char* version) {
  void* library = ::dlopen("librdmacm.so.1", RTLD_NOW | RTLD_NOLOAD);
  CHECK(library != nullptr);
  void* found = ::dlvsym(library, name, version);
  if (found == nullptr) fail(name, __LINE__);
  return reinterpret_cast<Function*>(found);
}

constexpr uint32_t kAddrinfoResolved = 16, kUser = 18;

// An event as in the newer header: its type is not in this header's enumeration.
struct Event {
  explicit Event(rdma_event_channel* channel) {
    rdma_cm_event* event = nullptr;
    CHECK(rdma_get_cm_event(channel, &event) == 0);
    std::memcpy(&type, &event->event, sizeof type);
    std::memcpy(&argument, &event->param, sizeof argument);
    status = event->status;
    id = event->id;
    CHECK(rdma_ack_cm_event(event) == 0);
  }
  uint32_t type = 0;
  int status = 0;
  uint64_t argument = 0;
  rdma_cm_id* id = nullptr;
};

void user_events() {
  auto* const write =
      find<int(rdma_cm_id*, uint32_t, int, uint64_t)>("rdma_write_cm_event", "RDMACM_1.4");
  rdma_event_channel* channel = rdma_create_event_channel();
  rdma_event_channel* other = rdma_create_event_channel();
  CHECK(channel != nullptr && other != nullptr);
  rdma_cm_id* id = nullptr;
  CHECK(rdma_create_id(channel, &id, nullptr, RDMA_PS_TCP) == 0);
  CHECK_ERRNO(write(id, RDMA_CM_EVENT_ESTABLISHED, 0, 0), EINVAL);
  CHECK_ERRNO(write(nullptr, kUser, 0, 0), EINVAL);

  // A waiting thread is woken.
  std::thread writer([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    CHECK(write(id, kUser, 7, 0x1122334455667788) == 0);
  });
  const Event first(channel);
  writer.join();
  CHECK(first.type == kUser && first.status == 7 && first.argument == 0x1122334455667788);
  CHECK(first.id == id);

  // Events keep their order, make poll(2) return, and follow their id.
  CHECK(write(id, kUser, 0, 1) == 0 && write(id, kUser, 0, 2) == 0);
  pollfd ready{channel->fd, POLLIN, 0};
  CHECK(::poll(&ready, 1, 5000) == 1);
  CHECK(Event(channel).argument == 1);
  CHECK(rdma_migrate_id(id, other) == 0);
  CHECK(Event(other).argument == 2);

  // Unread events are destroyed with the id.
  CHECK(write(id, kUser, 0, 3) == 0);
  CHECK(rdma_destroy_id(id) == 0);
  rdma_destroy_event_channel(channel);
  rdma_destroy_event_channel(other);
}

void addresses(const char* address) {
  auto* const resolve = find<int(rdma_cm_id*, const char*, const char*, const rdma_addrinfo*)>(
      "rdma_resolve_addrinfo", "RDMACM_1.4");
  auto* const query = find<int(rdma_cm_id*, rdma_addrinfo**)>("rdma_query_addrinfo", "RDMACM_1.4");
  rdma_event_channel* channel = rdma_create_event_channel();
  CHECK(channel != nullptr);
  rdma_cm_id *id = nullptr, *sync = nullptr;
  rdma_addrinfo* info = nullptr;
  CHECK(rdma_create_id(channel, &id, nullptr, RDMA_PS_TCP) == 0);
  CHECK_ERRNO(query(id, &info), ENOENT);
  rdma_addrinfo hints{};
  hints.ai_flags = RAI_NUMERICHOST;
  CHECK_ERRNO(resolve(id, "999.1.1.1", nullptr, &hints), ENOENT);
  CHECK(resolve(id, address, "7471", nullptr) == 0);
  CHECK_ERRNO(resolve(id, address, "7471", nullptr), EBUSY);
  CHECK(Event(channel).type == kAddrinfoResolved);
  CHECK(query(id, &info) == 0 && info != nullptr);
  const auto* to = reinterpret_cast<const sockaddr_in*>(info->ai_dst_addr);
  CHECK(info->ai_family == AF_INET && to->sin_port == htons(7471));
  CHECK(to->sin_addr.s_addr == ::inet_addr(address));
  rdma_freeaddrinfo(info);
  CHECK_ERRNO(query(id, &info), ENOENT);
  hints.ai_flags = 0x10;  // RAI_SA
  CHECK_ERRNO(resolve(id, nullptr, "7471", &hints), EOPNOTSUPP);

  CHECK(rdma_create_id(nullptr, &sync, nullptr, RDMA_PS_TCP) == 0);
  CHECK(resolve(sync, address, "7471", nullptr) == 0);
  CHECK(query(sync, &info) == 0);
  rdma_freeaddrinfo(info);
  CHECK(resolve(id, address, "7471", nullptr) == 0);  // and is not asked again
  CHECK(rdma_destroy_id(id) == 0 && rdma_destroy_id(sync) == 0);
  rdma_destroy_event_channel(channel);
}

epoll_event wanted(uint32_t events, uint64_t data) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = data;
  return event;
}

void sets(const char* address) {
  auto* const create = find<int(int)>("repoll_create", "RDMACM_1.5");
  auto* const change = find<int(int, int, int, epoll_event*)>("repoll_ctl", "RDMACM_1.5");
  auto* const wait = find<int(int, epoll_event*, int, int)>("repoll_wait", "RDMACM_1.5");
  enum : uint64_t { kListener = 1, kPipe, kClient };
  epoll_event events[4];
  const auto add = [&](int set, int fd, uint32_t what, uint64_t data) {
    epoll_event event = wanted(what, data);
    return change(set, EPOLL_CTL_ADD, fd, &event);
  };

  CHECK_ERRNO(create(-1), EINVAL);
  const int set = create(EPOLL_CLOEXEC);
  CHECK(set >= 0);
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(7472);
  to.sin_addr.s_addr = ::inet_addr(address);
  const int listener = rsocket(AF_INET, SOCK_STREAM, 0);
  CHECK(rbind(listener, reinterpret_cast<sockaddr*>(&to), sizeof to) == 0);
  CHECK(rlisten(listener, 1) == 0);
  int pipe[2];
  CHECK(::pipe(pipe) == 0);

  CHECK(add(set, listener, EPOLLIN, kListener) == 0);
  CHECK(add(set, pipe[0], EPOLLIN, kPipe) == 0);
  CHECK_ERRNO(add(set, listener, EPOLLIN, kListener), EEXIST);
  CHECK_ERRNO(add(set, set, EPOLLIN, 0), EINVAL);
  CHECK_ERRNO(add(set, -1, EPOLLIN, 0), EBADF);
  CHECK_ERRNO(add(pipe[0], listener, EPOLLIN, 0), EINVAL);
  CHECK_ERRNO(change(set, EPOLL_CTL_MOD, listener, nullptr), EFAULT);
  CHECK_ERRNO(wait(set, events, 0, 0), EINVAL);
  CHECK_ERRNO(wait(listener, events, 1, 0), EINVAL);
  CHECK(wait(set, events, 4, 0) == 0);
  const auto begin = std::chrono::steady_clock::now();
  CHECK(wait(set, events, 4, 30) == 0);
  CHECK(std::chrono::steady_clock::now() - begin >= std::chrono::milliseconds(30));

  // Both kinds of descriptors in one set.
  CHECK(::write(pipe[1], "x", 1) == 1);
  CHECK(wait(set, events, 4, 5000) == 1 && events[0].data.u64 == kPipe);
  char byte = 0;
  CHECK(::read(pipe[0], &byte, 1) == 1);
  const int client = rsocket(AF_INET, SOCK_STREAM, 0);
  std::thread connecting(
      [&] { CHECK(rconnect(client, reinterpret_cast<sockaddr*>(&to), sizeof to) == 0); });
  CHECK(wait(set, events, 4, 10000) == 1 && events[0].data.u64 == kListener);
  CHECK(events[0].events == EPOLLIN);
  const int served = raccept(listener, nullptr, nullptr);
  CHECK(served >= 0);
  connecting.join();

  // A waiting thread sees a new member. Level-triggered: reported until its event is gone.
  CHECK(rsend(served, "hello", 5, 0) == 5);
  std::thread adding([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    CHECK(add(set, client, EPOLLIN, kClient) == 0);
  });
  for (int times = 0; times < 2; ++times)
    CHECK(wait(set, events, 4, 5000) == 1 && events[0].data.u64 == kClient);
  adding.join();
  epoll_event once = wanted(EPOLLIN | EPOLLOUT | EPOLLONESHOT, kClient);
  CHECK(change(set, EPOLL_CTL_MOD, client, &once) == 0);
  CHECK(wait(set, events, 4, 5000) == 1 && events[0].events == (EPOLLIN | EPOLLOUT));
  CHECK(wait(set, events, 4, 20) == 0);
  CHECK(change(set, EPOLL_CTL_DEL, client, nullptr) == 0);
  CHECK_ERRNO(change(set, EPOLL_CTL_DEL, client, nullptr), ENOENT);

  // A closed socket has left the set, even if its number is reused by another file.
  CHECK(add(set, client, EPOLLIN, kClient) == 0);
  CHECK(rclose(client) == 0);
  CHECK(::dup2(pipe[1], client) == client);
  CHECK(wait(set, events, 4, 20) == 0);
  ::close(client);
  rclose(served);
  rclose(listener);
  CHECK(rclose(set) == 0);
  CHECK_ERRNO(wait(set, events, 4, 0), EBADF);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: newer_calls IPV4\n");
    return 2;
  }
  user_events();
  std::puts("user_events: passed");
  addresses(argv[1]);
  std::puts("addresses: passed");
  sets(argv[1]);
  std::puts("sets: passed");
  return 0;
}
