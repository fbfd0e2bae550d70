// snoop DIRECTORY GUESSES: writes to stdout what this process can learn from a run directory's
// directory of namespaces: names, contents, and the bytes of each socket's reply to a probe, a
// hello and a request for devices. If it cannot list the directory, it guesses namespaces: GUESSES
// numbers around that of a new namespace, and those in /proc and /run/netns.
#include <sched.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <set>

#include "core/base/netns_cookie.h"
#include "tests/integration/hostile/client.h"
#include "tests/integration/hostile/connections.h"

namespace {

namespace fs = std::filesystem;
using vrdma::hostile::Client;
using vrdma::hostile::CmClient;

template <class T>
void print_bytes(const T& value) {
  std::cout.write(reinterpret_cast<const char*>(&value), sizeof value);
}

// In a child, because a refused connection ends a client of the hostile tests.
template <class F>
void attempt(const std::string& what, F f) {
  std::cout << "\n[" << what << "] " << std::flush;
  const pid_t child = ::fork();
  if (child == 0) {
    f();
    std::cout << std::flush;
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
}

void ask(const std::string& socket) {
  attempt("probe " + socket, [&] {
    Client client(socket);
    const auto answer = client.call(vrdma::ipc::Call::kProbe);
    std::cout << (answer.came ? "answered " : "refused ");
    if (answer.came) print_bytes(answer.reply);
  });
  attempt("hello " + socket, [&] {
    Client client(socket);
    const auto answer = client.hello();
    if (answer.came) print_bytes(answer.reply);
    if (answer.came && answer.error == 0) print_bytes(client.call(vrdma::ipc::Call::kQueryGids));
  });
}

void ask_connections(const std::string& socket) {
  attempt("devices " + socket, [&] {
    CmClient client(socket);
    if (client.call(vrdma::ipc::CmCall::kDevices) >= 0) print_bytes(client.reply);
  });
}

void look_at(const fs::path& path) {
  struct stat status {};
  if (::lstat(path.c_str(), &status) != 0) return;
  std::cout << "\n[" << path.string() << "] ";
  std::error_code error;
  if (S_ISLNK(status.st_mode)) std::cout << fs::read_symlink(path, error).string();
  if (S_ISREG(status.st_mode)) std::cout << std::ifstream(path).rdbuf();
  if (S_ISSOCK(status.st_mode)) {
    if (path.extension() == ".sock") ask(path);
    if (path.filename() == "rdma_cm") ask_connections(path);
  }
  if (!S_ISDIR(status.st_mode)) return;
  for (auto it = fs::directory_iterator(path, error); it != fs::directory_iterator();
       it.increment(error))
    look_at(it->path());
}

// The kernel counts namespaces. Each processor takes some thousand numbers at once.
unsigned long newest_cookie() {
  int ends[2];
  if (::pipe(ends) != 0) std::exit(2);
  const pid_t child = ::fork();
  if (child == 0) {
    (void)::unshare(CLONE_NEWUSER | CLONE_NEWNET);  // else its own namespace has to do
    const auto own = vrdma::base::own_netns_cookie();
    const uint64_t cookie = own ? *own : 0;
    ::_exit(::write(ends[1], &cookie, sizeof cookie) == sizeof cookie ? 0 : 1);
  }
  uint64_t cookie = 0;
  if (::read(ends[0], &cookie, sizeof cookie) != sizeof cookie) std::exit(2);
  ::waitpid(child, nullptr, 0);
  return cookie;
}

std::set<unsigned long> guesses(unsigned long count) {
  std::set<unsigned long> numbers;
  const unsigned long newest = newest_cookie();
  const unsigned long first = newest - std::min(newest, count / 2);
  for (unsigned long number = first; number < first + count; ++number) numbers.insert(number);
  const auto add = [&](const fs::path& path) {
    struct stat status {};
    if (::stat(path.c_str(), &status) == 0) numbers.insert(status.st_ino);
  };
  std::error_code error;
  for (auto it = fs::directory_iterator("/run/netns", error); it != fs::directory_iterator();
       it.increment(error))
    add(it->path());
  for (auto it = fs::directory_iterator("/proc", error); it != fs::directory_iterator();
       it.increment(error))
    add(it->path() / "ns/net");
  return numbers;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const fs::path root = argv[1];
  look_at(root);
  for (const auto number : guesses(std::strtoul(argv[2], nullptr, 10)))
    look_at(root / std::to_string(number));
  look_at(root.parent_path() / "sysfs");
  look_at(root.parent_path() / "state");
  return std::cout.good() ? 0 : 1;
}
