#include "vrdmad/helpers.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <sstream>
#include <utility>
#include <vector>

#include "vrdmad/parent_groups.h"
#include "vrdmad/system_calls.h"

namespace vrdma::vrdmad {

using base::fail;
using base::fail_errno;
using base::Fd;
using base::pass;
using base::Result;

namespace {

constexpr const char* kVariable = "VRDMAD_HELPERS";

// The sockets of intake, stopper and broker.
using Sockets = std::array<Fd, 3>;

Result<Sockets> fork_all(const User& user, const std::string& run_dir, const std::string& cgroup,
                         unsigned requests) {
  // First, because it may move this process, and so the helpers.
  auto groups = prepare_parent_groups(cgroup, own_hierarchies());
  if (!groups) return pass(std::move(groups).error());
  auto intake = Intake::fork([&] {
    if (!drop_privileges(user)) ::_exit(1);
    (void)confine_intake();
  });
  if (!intake) return pass(std::move(intake).error());
  auto stopper = Stopper::fork([] { (void)confine_stopper(); });
  if (!stopper) return pass(std::move(stopper).error());
  auto broker = BrokerProcess::fork({run_dir, user.uid, user.gid, {}, *groups}, requests, [] {
    if (!keep_broker_privileges()) ::_exit(1);
    (void)confine_broker();
  });
  if (!broker) return pass(std::move(broker).error());
  return Sockets{std::move(*intake), std::move(*stopper), std::move(*broker)};
}

// The arguments with which this process was executed. main() gets others if the process is a loader
// that loads vrdmad.
std::vector<std::string> own_arguments() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> all;
  for (std::string each; std::getline(file, each, '\0');) all.push_back(each);
  return all;
}

base::Error execute_again(const Sockets& sockets) {
  std::string names;
  for (const Fd& socket : sockets) {
    ::fcntl(socket.get(), F_SETFD, 0);
    names += std::to_string(socket.get()) + " ";
  }
  std::array<char, 16> name{};  // which would be that of the link
  (void)::prctl(PR_GET_NAME, name.data());
  ::setenv(kVariable, (names + name.data()).c_str(), 1);
  auto words = own_arguments();
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  ::execv("/proc/self/exe", arguments.data());
  return {errno, "execute vrdmad again"};
}

Result<Sockets> inherited() {
  std::istringstream names(std::getenv(kVariable));
  Sockets sockets;
  for (Fd& socket : sockets) {
    int number = -1;
    names >> number;
    if (!names || ::fcntl(number, F_SETFD, FD_CLOEXEC) != 0)
      return fail(EBADF, std::string(kVariable) + " is for vrdmad itself");
    socket = Fd(number);
  }
  std::string name;
  if (names >> name) (void)::prctl(PR_SET_NAME, name.c_str());
  ::unsetenv(kVariable);
  return sockets;
}

}  // namespace

bool have_helpers() { return std::getenv(kVariable) != nullptr; }

Result<Helpers> start_helpers(const User& user, const std::string& run_dir,
                              const std::string& cgroup, unsigned requests) {
  if (!have_helpers()) {
    auto sockets = fork_all(user, run_dir, cgroup, requests);
    if (!sockets) return pass(std::move(sockets).error());
    return tl::unexpected(execute_again(*sockets));
  }
  auto sockets = inherited();
  if (!sockets) return pass(std::move(sockets).error());
  auto broker = BrokerProcess::attach(std::move((*sockets)[2]), requests);
  if (!broker) return pass(std::move(broker).error());
  return Helpers{Intake::attach(std::move((*sockets)[0])),
                 Stopper::attach(std::move((*sockets)[1])), std::move(*broker)};
}

}  // namespace vrdma::vrdmad
