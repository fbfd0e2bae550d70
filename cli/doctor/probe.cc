#include "cli/doctor/probe.h"

#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/keyctl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <sstream>

#include "cli/doctor/port.h"
#include "core/base/fd.h"
#include "core/base/netns_cookie.h"
#include "core/base/printable.h"

namespace vrdma::cli::doctor {

namespace {

using base::Fd;

using Clock = std::chrono::steady_clock;

constexpr auto kPatience = std::chrono::seconds(kPatienceSeconds);
constexpr size_t kMostAnswers = 1u << 20;  // bytes
constexpr int kAnswers = 3;                // descriptor of the pipe after leave_belongings()

// The child answers by lines of "WORD VALUE" on a pipe; it ends after the first "failed".
class Answer {
 public:
  explicit Answer(int fd) : fd_(fd) {}
  void operator()(const std::string& word, const std::string& value) const {
    const std::string line = word + " " + base::printable(value) + "\n";
    (void)!::write(fd_, line.data(), line.size());
  }
  [[noreturn]] void fail(const std::string& what) const {
    (*this)("failed", what + ": " + std::strerror(errno));
    ::_exit(0);
  }

 private:
  int fd_;
};

bool is_directory(const std::string& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
}

int connect_error(const std::string& path) {
  const Fd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) return ENAMETOOLONG;
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0)
    return 0;
  return errno;
}

void try_sockets(const std::string& directory, const Answer& answer) {
  const std::unique_ptr<DIR, int (*)(DIR*)> listing(::opendir(directory.c_str()), ::closedir);
  if (listing == nullptr) return;
  while (const dirent* entry = ::readdir(listing.get())) {
    const std::string name = entry->d_name;
    if (!name.ends_with(".sock")) continue;
    answer("socket", name);
    if (const int error = connect_error(directory + "/" + name); error != 0)
      answer("connect", std::to_string(error));
  }
}

// Calls the library's functions as a program does; the types are opaque here.
void try_library(void* library, const Answer& answer) {
  using List = void** (*)(int*);
  using Free = void (*)(void**);
  using Name = const char* (*)(void*);
  using Open = void* (*)(void*);
  using Close = int (*)(void*);
  const auto list = reinterpret_cast<List>(::dlsym(library, "ibv_get_device_list"));
  const auto release = reinterpret_cast<Free>(::dlsym(library, "ibv_free_device_list"));
  const auto name = reinterpret_cast<Name>(::dlsym(library, "ibv_get_device_name"));
  const auto open = reinterpret_cast<Open>(::dlsym(library, "ibv_open_device"));
  const auto close = reinterpret_cast<Close>(::dlsym(library, "ibv_close_device"));
  if (list == nullptr || release == nullptr || name == nullptr || open == nullptr ||
      close == nullptr)
    return;
  int count = 0;
  void** const devices = list(&count);
  for (int i = 0; devices != nullptr && i < count; ++i) {
    answer("device", name(devices[i]));
    if (void* const context = open(devices[i]); context != nullptr) {
      answer("opened", name(devices[i]));
      (void)close(context);
    } else
      answer("unopened", std::string(name(devices[i])) + ": " + std::strerror(errno));
  }
  if (devices != nullptr) release(devices);
}

// `proc`: the directory /proc of the caller, because that of the examined process may be anything.
void look_at_port(const Fd& proc, const Answer& answer) {
  bool taken = false;
  for (const char* name : {"self/net/udp", "self/net/udp6"}) {
    const Fd file(::openat(proc.get(), name, O_RDONLY | O_CLOEXEC));
    if (!file.valid() && errno == ENOENT) continue;  // a kernel without IPv6
    std::string text;
    std::array<char, 4096> part{};
    ssize_t got = -1;
    while (file.valid() && text.size() < kMostAnswers &&
           (got = ::read(file.get(), part.data(), part.size())) > 0)
      text.append(part.data(), static_cast<size_t>(got));
    if (got != 0) return;
    taken = taken || has_port_everywhere(text);
  }
  answer("port", taken ? "taken" : "free");
}

// True if `path` and `/proc/self/ns/TYPE` are the same namespace, so that entering it needs no
// rights.
bool is_own(const std::string& path, const char* type) {
  struct stat theirs {
  }, ours{};
  return ::stat(path.c_str(), &theirs) == 0 &&
         ::stat((std::string("/proc/self/ns/") + type).c_str(), &ours) == 0 &&
         theirs.st_dev == ours.st_dev && theirs.st_ino == ours.st_ino;
}
// The same for the root directory: "/" in a container, or the directory of chroot(2).
bool is_own_root(pid_t pid) {
  struct stat theirs {
  }, ours{};
  return ::stat(("/proc/" + std::to_string(pid) + "/root").c_str(), &theirs) == 0 &&
         ::stat("/", &ours) == 0 && theirs.st_dev == ours.st_dev && theirs.st_ino == ours.st_ino;
}

// Gives up everything that the other process's user has no right to, except the capabilities, which
// are still needed. Afterwards `answers` is kAnswers.
void leave_belongings(int null, int answers, const Answer& answer) {
  if (::dup2(null, STDIN_FILENO) < 0 || ::dup2(null, STDOUT_FILENO) < 0 ||
      ::dup2(answers, kAnswers) < 0)
    answer.fail("close descriptors");
  if (::syscall(SYS_close_range, kAnswers + 1, ~0u, 0) != 0) answer.fail("close descriptors");
  if (::setsid() < 0) answer.fail("leave the terminal");
  if (::chdir("/") != 0) answer.fail("leave the directory");
  (void)::syscall(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING,
                  nullptr);  // ENOSYS: a kernel without keys
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry)
    ::explicit_bzero(*entry, std::strlen(*entry));
  ::clearenv();
}

void drop_capabilities(const Answer& answer) {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  const std::array<__user_cap_data_struct, 2> none{};
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
      ::syscall(SYS_capset, &header, none.data()) != 0)
    answer.fail("drop capabilities");
}

[[noreturn]] void look(const Place& place, int answers) {
  const Answer answer(answers);
  // Before the namespaces change: they are files of this one.
  void* const library =
      place.library.empty() ? nullptr : ::dlopen(place.library.c_str(), RTLD_NOW | RTLD_LOCAL);
  void* const connection_manager =
      library != nullptr && place.peer ? load_connection_manager(place.library) : nullptr;
  const auto open_namespace = [&](const std::string& path) {
    Fd opened(path.empty() ? -1 : ::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!path.empty() && !opened.valid()) answer.fail("open " + path);
    return opened;
  };
  const std::string of_process = "/proc/" + std::to_string(place.pid) + "/ns/";
  const bool elsewhere =
      place.pid != 0 && !(is_own(of_process + "mnt", "mnt") && is_own_root(place.pid));
  const Fd net = open_namespace(is_own(place.netns, "net") ? std::string() : place.netns);
  const Fd mount = open_namespace(elsewhere ? of_process + "mnt" : std::string());
  const Fd root(elsewhere ? ::open(("/proc/" + std::to_string(place.pid) + "/root").c_str(),
                                   O_PATH | O_DIRECTORY | O_CLOEXEC)
                          : -1);
  const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);  // before its path may change
  const Fd proc(::open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC));
  // Proves that the descriptors belong to the examined process and not to a later one with its id.
  if (pollfd ended{place.life.get(), POLLIN, 0}; place.life.valid() && ::poll(&ended, 1, 0) != 0) {
    errno = ESRCH;
    answer.fail("enter its place");
  }
  if (net.valid() && ::setns(net.get(), CLONE_NEWNET) != 0)
    answer.fail("enter its network namespace");
  look_at_port(proc, answer);
  if (mount.valid() && ::setns(mount.get(), CLONE_NEWNS) != 0)
    answer.fail("enter its mount namespace");
  if (root.valid() && (::fchdir(root.get()) != 0 || ::chroot(".") != 0))
    answer.fail("enter its root");
  if (place.pid != 0) leave_belongings(null, answers, answer);
  const Answer report(place.pid != 0 ? kAnswers : answers);
  const auto cookie = base::own_netns_cookie();
  if (cookie) report("cookie", std::to_string(*cookie));
  if (place.uid && *place.uid != ::geteuid()) {
    const uid_t uid = *place.uid;
    const gid_t gid = place.gid.value_or(uid);
    if (::setgroups(0, nullptr) != 0 || ::setresgid(gid, gid, gid) != 0 ||
        ::setresuid(uid, uid, uid) != 0)
      report.fail("become its user");
    ::prctl(PR_SET_DUMPABLE, 1);  // as for a process that did not change its user
  }
  if (place.pid != 0) drop_capabilities(report);  // user 0 of a container has them still
  const std::string netns = place.run_dir + "/netns";
  if (is_directory(netns)) report("run_dir", netns);
  if (cookie) {
    const std::string directory = netns + "/" + std::to_string(*cookie);
    if (is_directory(directory)) report("directory", directory);
    try_sockets(directory, report);
  }
  ::setenv("VRDMA_RUN_DIR", place.run_dir.c_str(), 1);
  ::unsetenv("VRDMA_QUIET");
  // Prevents loading the system's library from that position: no path of this length can be opened.
  ::setenv("VRDMA_REAL_LIBIBVERBS", ("/" + std::string(PATH_MAX, 'x')).c_str(), 1);
  if (library != nullptr) try_library(library, report);
  if (place.peer) {
    Way way = find_way(*place.peer);
    if (way.error == 0 && way.answer == 0 && connection_manager != nullptr)
      way.given = ask(connection_manager, *place.peer);
    report("way", std::to_string(way.error) + " " + std::to_string(way.answer) + " " +
                      std::to_string(static_cast<int>(way.given)) + " " + way.source);
  }
  ::_exit(0);
}

void understand(const std::string& text, Probe* probe) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const size_t blank = line.find(' ');
    const std::string word = line.substr(0, blank);
    const std::string value = blank == std::string::npos ? "" : line.substr(blank + 1);
    if (word == "failed") probe->failed = value;
    if (word == "cookie") probe->cookie = std::strtoull(value.c_str(), nullptr, 10);
    if (word == "run_dir") probe->run_dir_seen = true;
    if (word == "directory") probe->directory_seen = true;
    if (word == "socket") ++probe->sockets;
    if (word == "connect" && probe->connect_error == 0)
      probe->connect_error = std::atoi(value.c_str());
    if (word == "device") probe->devices.push_back(value);
    if (word == "opened") probe->opened.push_back(value);
    if (word == "unopened") probe->unopened.push_back(value);
    if (word == "port") probe->port_taken = value == "taken";
    if (word == "way") {
      std::istringstream words(value);
      Way way;
      int given = 0;
      words >> way.error >> way.answer >> given >> way.source;
      way.given = static_cast<PeerAnswer>(given);
      probe->way = std::move(way);
    }
  }
}

// Collects the child's answers and stderr until it closes them, the time is over, or they are too
// long.
void gather(const Fd& answers, const Fd& errors, std::string* answered, std::string* said) {
  std::array<pollfd, 2> waiting{{{answers.get(), POLLIN, 0}, {errors.get(), POLLIN, 0}}};
  const std::array<std::string*, 2> into{answered, said};
  const auto deadline = Clock::now() + kPatience;
  while (waiting[0].fd >= 0 || waiting[1].fd >= 0) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (left <= 0 || ::poll(waiting.data(), waiting.size(), static_cast<int>(left)) <= 0) return;
    for (size_t i = 0; i < waiting.size(); ++i) {
      if (waiting[i].revents == 0) continue;
      std::array<char, 4096> part{};
      const ssize_t got = ::read(waiting[i].fd, part.data(), part.size());
      if (got > 0)
        into[i]->append(part.data(), static_cast<size_t>(got));
      else
        waiting[i].fd = -1;
      if (into[i]->size() > kMostAnswers) return;
    }
  }
}

// A process that waits for a user's file system (FUSE) cannot be killed until that answers. In that
// case init reaps it.
void end(pid_t child) {
  ::kill(child, SIGKILL);
  for (int i = 0; i < 100 && ::waitpid(child, nullptr, WNOHANG) == 0; ++i) ::usleep(10'000);
}

}  // namespace

Probe probe(const Place& place) {
  Probe result;
  std::array<int, 2> answers{}, errors{};
  if (::pipe2(answers.data(), O_CLOEXEC) != 0 || ::pipe2(errors.data(), O_CLOEXEC) != 0) {
    result.failed = std::string("make a pipe: ") + std::strerror(errno);
    return result;
  }
  const Fd read_answers(answers[0]), read_errors(errors[0]);
  Fd write_answers(answers[1]), write_errors(errors[1]);
  const pid_t child = ::fork();
  if (child == 0) {
    ::dup2(write_errors.get(), STDERR_FILENO);
    look(place, write_answers.get());
  }
  write_answers.reset();
  write_errors.reset();
  std::string text;
  gather(read_answers, read_errors, &text, &result.said);
  if (child > 0) end(child);
  understand(text, &result);
  constexpr std::string_view kPrefix = "vrdma: a vdevice cannot be used: ";
  const size_t begin = result.said.find(kPrefix);
  result.said = begin == std::string::npos ? "" : result.said.substr(begin + kPrefix.size());
  result.said = result.said.substr(0, result.said.find('\n'));
  return result;
}

}  // namespace vrdma::cli::doctor
