#include "tests/conformance/launcher.h"

#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

#include "tests/conformance/test.h"

namespace conformance {

namespace {

struct Child {
  pid_t pid = -1;
  int errands = -1;  // our end
  int status = 0;
  bool ended = false;
};

[[noreturn]] void die(const char* what) {
  std::perror(what);
  _exit(2);
}

// In the child: enters the namespace, becomes the user, and executes the test.
[[noreturn]] void become(const LauncherOptions& options, int side, int channel, int errands,
                         const std::string& test) {
  const std::string path = "/run/netns/" + options.netns[side];
  const int netns = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (netns < 0 || ::setns(netns, CLONE_NEWNET) != 0) die(path.c_str());
  if (options.uid != 0) {
    for (unsigned long cap = 0; cap < 64; ++cap) ::prctl(PR_CAPBSET_DROP, cap, 0, 0, 0);
    if (::setgroups(0, nullptr) != 0 || ::setresgid(options.uid, options.uid, options.uid) != 0 ||
        ::setresuid(options.uid, options.uid, options.uid) != 0 ||
        ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
      die("giving up rights");
  }
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  const std::string fd = std::to_string(channel), seed = std::to_string(options.seed),
                    errand_fd = std::to_string(errands);
  ::execl("/proc/self/exe", "verbs_conformance", "--side", side == 0 ? "a" : "b", "--fd",
          fd.c_str(), "--errands", errand_fd.c_str(), "--seed", seed.c_str(), "--test",
          test.c_str(), nullptr);
  die("exec");
}

Child start(const LauncherOptions& options, int side, int channel, int other,
            const std::string& test) {
  int errands[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM, 0, errands) != 0) die("socketpair");
  ::fcntl(errands[0], F_SETFD, FD_CLOEXEC);
  Child child;
  child.errands = errands[0];
  child.pid = ::fork();
  if (child.pid < 0) die("fork");
  if (child.pid == 0) {
    ::close(other);
    become(options, side, channel, errands[1], test);
  }
  ::close(errands[1]);
  return child;
}

std::string read_line(int fd) {
  std::string line;
  char c;
  while (::read(fd, &c, 1) == 1 && c != '\n') line += c;
  return line;
}

// "address add|delete A/LEN" and "link up|down", on the netdev of the side; nothing else.
char do_errand(const LauncherOptions& options, int side, const std::string& words) {
  std::vector<std::string> parts;
  for (size_t at = 0; at <= words.size();) {
    const size_t end = std::min(words.find(' ', at), words.size());
    parts.push_back(words.substr(at, end - at));
    at = end + 1;
  }
  std::vector<const char*> argv{"ip", "-n", options.netns[side].c_str()};
  if (parts.size() == 3 && parts[0] == "address" && (parts[1] == "add" || parts[1] == "delete"))
    argv.insert(argv.end(), {"address", parts[1].c_str(), parts[2].c_str(), "dev"});
  else if (parts.size() == 2 && parts[0] == "link" && (parts[1] == "up" || parts[1] == "down"))
    argv.insert(argv.end(), {"link", "set", parts[1].c_str(), "dev"});
  else
    return '1';
  argv.push_back(options.netdev.c_str());
  argv.push_back(nullptr);
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::execvp("ip", const_cast<char**>(argv.data()));
    _exit(127);
  }
  int status = -1;
  ::waitpid(pid, &status, 0);
  return status == 0 ? '0' : '1';
}

// Returns when both have ended. Handles errands meanwhile.
void watch(const LauncherOptions& options, Child (&children)[2]) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(kTestSeconds + 10);
  while (!children[0].ended || !children[1].ended) {
    pollfd fds[2];
    for (int i = 0; i < 2; ++i) fds[i] = {children[i].errands, POLLIN, 0};
    ::poll(fds, 2, 20);
    for (int i = 0; i < 2; ++i) {
      if ((fds[i].revents & POLLIN) != 0) {
        const std::string words = read_line(children[i].errands);
        const char answer = words.empty() ? '1' : do_errand(options, i, words);
        if (::send(children[i].errands, &answer, 1, MSG_NOSIGNAL) != 1 || words.empty()) {
          ::close(children[i].errands);
          children[i].errands = -1;
        }
      }
      if (!children[i].ended)
        children[i].ended = ::waitpid(children[i].pid, &children[i].status, WNOHANG) > 0;
    }
    if (std::chrono::steady_clock::now() > deadline)
      for (auto& child : children)
        if (!child.ended) ::kill(child.pid, SIGKILL);
  }
  for (auto& child : children)
    if (child.errands >= 0) ::close(child.errands);
}

std::string describe(int status) {
  if (WIFEXITED(status)) return "ends with status " + std::to_string(WEXITSTATUS(status));
  if (WTERMSIG(status) == SIGALRM) return "hangs";
  return "is ended by signal " + std::to_string(WTERMSIG(status));
}

int run(const LauncherOptions& options, const Test& test) {
  const std::string name = std::string(test.group) + "." + test.name;
  const auto began = std::chrono::steady_clock::now();
  int channel[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM, 0, channel) != 0) die("socketpair");
  Child children[2];
  for (int i = 0; i < 2; ++i) children[i] = start(options, i, channel[i], channel[1 - i], name);
  ::close(channel[0]);
  ::close(channel[1]);
  watch(options, children);
  bool skipped = false, failed = false;
  for (int i = 0; i < 2; ++i) {
    const int status = children[i].status;
    const bool killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
    if (WIFEXITED(status) && WEXITSTATUS(status) == kSkipped)
      skipped = true;
    else if (i == 1 && (test.traits & kBKilled) != 0 ? !killed : status != 0)
      failed = true;
  }
  const bool passed = !failed && !skipped;
  const auto took = std::chrono::duration_cast<std::chrono::milliseconds>(
      std::chrono::steady_clock::now() - began);
  std::printf("%s %s (%lld ms)\n",
              passed    ? "passed "
              : skipped ? "skipped"
                        : "FAILED ",
              name.c_str(), static_cast<long long>(took.count()));
  if (failed && !skipped)
    for (int i = 0; i < 2; ++i)
      if (children[i].status != 0)
        std::printf("    side %c %s; to repeat: --seed %llu --only %s\n", i == 0 ? 'a' : 'b',
                    describe(children[i].status).c_str(),
                    static_cast<unsigned long long>(options.seed), test.name);
  std::fflush(stdout);
  return failed && !skipped ? 1 : 0;
}

}  // namespace

int launch(const LauncherOptions& given) {
  LauncherOptions options = given;
  if (options.seed == 0) options.seed = std::random_device{}();
  std::printf("group %s, seed %llu\n", options.group.c_str(),
              static_cast<unsigned long long>(options.seed));
  int failures = 0, count = 0;
  for (const Test& test : all_tests()) {
    if (options.group != test.group || (!options.only.empty() && options.only != test.name))
      continue;
    ++count;
    if (options.apart && (test.traits & (kOneFabric | kOneByOne)) != 0) {
      std::printf("left out %s.%s: %s\n", test.group, test.name,
                  (test.traits & kOneFabric) != 0 ? "its sides must be in one fabric"
                                                  : "on a network requests overlap");
      continue;
    }
    failures += run(options, test);
  }
  if (count == 0) std::fprintf(stderr, "no such test\n");
  return failures > 0 || count == 0 ? 1 : 0;
}

}  // namespace conformance
