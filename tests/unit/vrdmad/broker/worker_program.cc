// A worker process for tests: static, as vrdmad-worker is.
#include "tests/unit/vrdmad/broker/worker_program.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/close_range.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <thread>

#include "vrdmad/broker/broker_wire.h"
#ifdef VRDMA_STATIC_SECCOMP
#include "vrdmad/worker_system_calls.h"
#endif

namespace {

namespace program = vrdma::vrdmad::worker_program;
using vrdma::vrdmad::broker::Answer;
using vrdma::vrdmad::broker::Request;

constexpr int kControl = 3, kBroker = 4;

struct Message {
  explicit Message(void* data, size_t size) : part{data, size} {
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    header.msg_control = room;
    header.msg_controllen = sizeof room;
  }
  iovec part;
  msghdr header{};
  alignas(cmsghdr) char room[CMSG_SPACE(3 * sizeof(int))]{};
};

// With one descriptor.
void send_with(int socket, void* data, size_t size, int descriptor) {
  Message message(data, size);
  message.header.msg_controllen = CMSG_SPACE(sizeof(int));
  cmsghdr* const item = CMSG_FIRSTHDR(&message.header);
  item->cmsg_level = SOL_SOCKET;
  item->cmsg_type = SCM_RIGHTS;
  item->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(item), &descriptor, sizeof descriptor);
  ::sendmsg(socket, &message.header, MSG_NOSIGNAL);
}

void tell(bool yes) {
  const char byte = yes ? 1 : 0;
  ::send(kControl, &byte, 1, MSG_NOSIGNAL);
}

void forward(Request& request) {
  ::send(kBroker, &request, sizeof request, MSG_NOSIGNAL);
  Answer answer;
  Message message(&answer, sizeof answer);
  if (::recvmsg(kBroker, &message.header, 0) != sizeof answer) {
    answer = {};
    answer.error = EPIPE;
    message.header.msg_controllen = 0;
  }
  ::sendmsg(kControl, &message.header, MSG_NOSIGNAL);
}

bool broker_hangs_up() {
  char byte = 0;
  return ::recv(kBroker, &byte, 1, 0) <= 0;
}

void report(int arguments, char** argument, char** variable) {
  program::Report is;
  ::getresuid(&is.uids[0], &is.uids[1], &is.uids[2]);
  ::getresgid(&is.gids[0], &is.gids[1], &is.gids[2]);
  is.groups = ::getgroups(0, nullptr);
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct has[2]{};
  ::syscall(SYS_capget, &header, has);
  for (int word = 1; word >= 0; --word) {
    is.permitted = is.permitted << 32 | has[word].permitted;
    is.effective = is.effective << 32 | has[word].effective;
    is.inheritable = is.inheritable << 32 | has[word].inheritable;
  }
  for (unsigned each = 0; each < 64; ++each)
    if (::prctl(PR_CAPBSET_READ, each, 0, 0, 0) == 1) is.bounds |= uint64_t{1} << each;
  is.no_new_privs = ::prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0);
  ::prctl(PR_GET_PDEATHSIG, &is.death_signal, 0, 0, 0);
  for (int fd = 0; fd < 64; ++fd)
    if (::fcntl(fd, F_GETFD) >= 0) is.descriptors |= uint64_t{1} << fd;
  if (DIR* const root = ::opendir("/"); root != nullptr) {
    is.root_entries = 0;
    while (const dirent* entry = ::readdir(root))
      if (std::strcmp(entry->d_name, ".") != 0 && std::strcmp(entry->d_name, "..") != 0)
        ++is.root_entries;
    ::closedir(root);
  }
  struct stat root {
  }, here{}, above{};
  is.at_root = ::stat("/", &root) == 0 && ::stat(".", &here) == 0 && ::stat("..", &above) == 0 &&
               root.st_ino == here.st_ino && root.st_ino == above.st_ino;
  const int socket = ::socket(AF_INET, SOCK_DGRAM, 0);
  socklen_t size = sizeof is.netns_cookie;
  ::getsockopt(socket, SOL_SOCKET, SO_NETNS_COOKIE, &is.netns_cookie, &size);
  ::close(socket);
  rlimit core{};
  ::getrlimit(RLIMIT_CORE, &core);
  is.core_limit = core.rlim_max;
  sigset_t blocked;
  ::sigprocmask(SIG_SETMASK, nullptr, &blocked);
  for (int number = 1; number < 64; ++number) {
    struct sigaction action {};
    if (sigismember(&blocked, number) == 1) is.blocked |= uint64_t{1} << number;
    if (::sigaction(number, nullptr, &action) == 0 && action.sa_handler == SIG_IGN)
      is.ignored |= uint64_t{1} << number;
  }
  is.arguments = arguments;
  if (arguments > 0) std::strncpy(is.name.data(), argument[0], is.name.size() - 1);
  while (variable[is.variables] != nullptr) ++is.variables;
  ::send(kControl, &is, sizeof is, MSG_NOSIGNAL);
}

bool confine() {
#ifdef VRDMA_STATIC_SECCOMP
  return vrdma::vrdmad::confine_worker().has_value();
#else
  return false;
#endif
}

// What a worker does after it is confined; the thread is as one that reaches memory.
bool work() {
  bool reached = false;
  std::thread thread([&] {
    const auto self = static_cast<int>(::syscall(SYS_pidfd_open, ::getpid(), 0));
    ::setpriority(PRIO_PROCESS, 0, 10);
    const bool alone = ::syscall(SYS_close_range, 5u, ~0u, CLOSE_RANGE_UNSHARE) == 0;
    const auto own = static_cast<int>(::syscall(SYS_pidfd_open, ::getpid(), 0));
    reached = self >= 0 && alone && own >= 0 && ::syscall(SYS_pidfd_getfd, own, kControl, 0) >= 0;
  });
  ::pthread_setname_np(::pthread_self(), "vrdmad-worker");
  thread.join();
  const int memory = ::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  const bool mapped =
      memory >= 0 && ::ftruncate(memory, 4096) == 0 &&
      ::fcntl(memory, F_ADD_SEALS, F_SEAL_SHRINK) == 0 &&
      ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0) != MAP_FAILED;
  const int loop = ::epoll_create1(EPOLL_CLOEXEC), event = ::eventfd(0, EFD_CLOEXEC),
            timer = ::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);
  epoll_event wanted{};
  const bool waits = ::epoll_ctl(loop, EPOLL_CTL_ADD, event, &wanted) == 0 &&
                     ::epoll_wait(loop, &wanted, 1, 0) == 0 && timer >= 0;
  return reached && mapped && waits;
}

}  // namespace

int main(int arguments, char** argument, char** variable) {
  for (;;) {
    Request request;
    const ssize_t length = ::recv(kControl, &request, sizeof request, 0);
    if (length <= 0) ::_exit(0);
    char order = 0;
    std::memcpy(&order, &request, 1);
    if (length == sizeof request) {
      forward(request);
    } else if (order == program::kReport) {
      report(arguments, argument, variable);
    } else if (order == program::kNonsense) {
      ::send(kBroker, &request, sizeof request / 2, MSG_NOSIGNAL);
      tell(broker_hangs_up());
    } else if (order == program::kBeside) {
      request = {};
      request.op = Request::Op::kCheck;
      send_with(kBroker, &request, sizeof request, 0);
      tell(broker_hangs_up());
    } else if (order == program::kConfine) {
      tell(confine());
    } else if (order == program::kWork) {
      tell(work());
    } else if (order == program::kOpen) {
      tell(::open("/", O_RDONLY | O_CLOEXEC) >= 0);
    } else {
      ::_exit(0);
    }
  }
}
