#include "vrdmad/helpers.h"

#include <fcntl.h>
#include <spawn.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <utility>
#include <vector>

#include "core/base/log.h"
#include "core/ipc/socket.h"
#include "vrdmad/broker/broker_place.h"
#include "vrdmad/broker/program.h"
#include "vrdmad/daemon_user.h"
#include "vrdmad/parent_groups.h"

namespace vrdma::vrdmad {

using base::fail;
using base::fail_errno;
using base::Fd;
using base::pass;
using base::Result;

namespace {

constexpr const char* kProgram = "vrdmad-helper";
constexpr int kSocket = 3;  // of the new process

Result<Fd> open_helper() {
  std::string risk;
  auto program = open_program(kProgram, &risk);
  if (!program) return program;
  if (!risk.empty()) base::log_warning(risk);
  // Away from the number that the socket gets in the new process.
  Fd moved(::fcntl(program->get(), F_DUPFD_CLOEXEC, kSocket + 1));
  if (!moved.valid()) return fail_errno("open vrdmad-helper");
  return moved;
}

// Executes the program with `words`, the first of which is the role. Returns the socket to it when
// it serves.
Result<Fd> start(const Fd& program, std::vector<std::string> words) {
  const std::string process = "the " + words[0] + " process";
  auto ends = ipc::make_socket_pair();
  if (!ends) return pass(std::move(ends).error(), "start " + process);
  auto& [ours, its] = *ends;
  std::string name = kProgram;
  std::vector<char*> arguments{name.data()};
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, its.get(), kSocket);
  pid_t child = 0;
  const std::string path = "/proc/self/fd/" + std::to_string(program.get());
  const int error =
      ::posix_spawn(&child, path.c_str(), &actions, nullptr, arguments.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  if (error != 0) return fail_errno("execute vrdmad-helper for " + process, error);
  its.reset();
  std::array<char, 1024> reason{};
  const auto message = ipc::receive_any(ours.get(), reason.data(), reason.size() - 1, 0);
  if (message.length <= 0) return fail(EPIPE, process + " has ended at its start");
  if (reason[0] != '\0') return fail(EPERM, "start " + process + ": " + reason.data());
  return std::move(ours);
}

// 0: they would be users that this user namespace has not.
uid_t usable_worker_users(uid_t first) {
  if (first == 0 || are_mapped(first, BrokerPlace::kMostWorkers)) return first;
  base::log_info("workers have the daemon's user, because this user namespace has no users from " +
                 std::to_string(first) + " on: name " + std::to_string(BrokerPlace::kMostWorkers) +
                 " others with --worker-users");
  return 0;
}

}  // namespace

Result<Helpers> start_helpers(const User& user, const std::string& run_dir,
                              const WorkerBounds& workers, unsigned requests) {
  // First, because it may move this process, and so the helpers.
  auto groups = prepare_parent_groups(workers.cgroup, own_hierarchies());
  if (!groups) return pass(std::move(groups).error());
  auto program = open_helper();
  if (!program) return pass(std::move(program).error());
  const std::string uid = std::to_string(user.uid), gid = std::to_string(user.gid);
  auto intake = start(*program, {"intake", uid, gid});
  if (!intake) return pass(std::move(intake).error());
  auto stopper = start(*program, {"stopper"});
  if (!stopper) return pass(std::move(stopper).error());
  std::vector<std::string> words{"broker",
                                 run_dir,
                                 uid,
                                 gid,
                                 std::to_string(usable_worker_users(workers.first_user)),
                                 std::to_string(requests)};
  words.insert(words.end(), groups->begin(), groups->end());
  auto broker = start(*program, std::move(words));
  if (!broker) return pass(std::move(broker).error());
  auto process = BrokerProcess::attach(std::move(*broker), requests);
  if (!process) return pass(std::move(process).error());
  return Helpers{Intake::attach(std::move(*intake)), Stopper::attach(std::move(*stopper)),
                 std::move(*process)};
}

}  // namespace vrdma::vrdmad
