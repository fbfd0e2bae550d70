#include "core/rdma/process.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <map>
#include <mutex>
#include <sstream>
#include <string>
#include <utility>

namespace vrdma::rdma {

using base::fail;
using base::fail_errno;
using base::Fd;

namespace {

// Of /proc/PID/stat (proc(5)), whose second field, the name, may hold spaces.
uint64_t field_of(pid_t pid, int wanted) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string line;
  std::getline(file, line);
  const size_t end = line.rfind(')');
  if (end == std::string::npos) return 0;
  std::istringstream rest(line.substr(end + 1));
  std::string field;
  for (int i = 3; i <= wanted && rest >> field; ++i) {
  }
  return std::strtoull(field.c_str(), nullptr, 10);
}

// Where the stack and the code begin, which the kernel chooses at random for each program; known to
// who may look into the process, as we may.
uint64_t program_of(pid_t pid) { return field_of(pid, 28) * 31 + field_of(pid, 26); }

// One for each process, whichever worker serves it.
std::shared_ptr<std::mutex> changes_of(pid_t pid, uint64_t start_time) {
  static std::mutex guard;
  static std::map<std::pair<pid_t, uint64_t>, std::weak_ptr<std::mutex>> all;
  const std::lock_guard lock(guard);
  std::erase_if(all, [](const auto& one) { return one.second.expired(); });
  std::weak_ptr<std::mutex>& known = all[{pid, start_time}];
  std::shared_ptr<std::mutex> changes = known.lock();
  if (changes == nullptr) known = changes = std::make_shared<std::mutex>();
  return changes;
}

}  // namespace

uint64_t Process::start_time_of(pid_t pid) { return field_of(pid, 22); }

base::Result<std::shared_ptr<Process>> Process::identify(int socket) {
  ucred credentials{};
  socklen_t length = sizeof credentials;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &length) != 0)
    return fail_errno("ask who connected");
  return open(credentials.pid, credentials.uid);
}

base::Result<std::shared_ptr<Process>> Process::find(const Identity& identity) {
  auto process = open(identity.pid, identity.uid);
  if (!process) return process;
  const Identity now = (*process)->identity();
  if (now.owner != identity.owner || now.start_time != identity.start_time ||
      now.user_namespace != identity.user_namespace || now.program != identity.program)
    return fail(ESRCH, "process " + std::to_string(identity.pid) + " is not what it was");
  return process;
}

base::Result<std::shared_ptr<Process>> Process::open(pid_t pid, uid_t uid) {
  std::shared_ptr<Process> process(new Process);
  process->pid_ = pid;
  process->uid_ = uid;
  const std::string directory = "/proc/" + std::to_string(pid);
  process->pidfd_ = Fd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (!process->pidfd_.valid()) return fail_errno("open process " + std::to_string(pid));
  process->memory_ = Fd(::open((directory + "/mem").c_str(), O_RDWR | O_CLOEXEC));
  if (!process->memory_.valid()) return fail_errno("open " + directory + "/mem");
  struct stat owner {};
  if (::stat(directory.c_str(), &owner) != 0) return fail_errno("look at " + directory);
  process->owner_ = owner.st_uid;
  struct stat user_namespace {};
  if (::stat((directory + "/ns/user").c_str(), &user_namespace) != 0)
    return fail_errno("look at " + directory + "/ns/user");
  process->user_namespace_ = user_namespace.st_ino;
  process->start_time_ = start_time_of(pid);
  process->program_ = program_of(pid);
  return process;
}

base::Result<void> Process::start_reach(base::EventLoop& loop) {
  auto memory = memory_.duplicate();
  if (!memory) return base::pass(std::move(memory.error()));
  reach_ = std::make_unique<Reach>(
      loop, Reach::Memory{std::move(*memory), changes_of(pid_, start_time_)});
  return {};
}

void Process::confirm(uint64_t addr, uint64_t cookie, std::function<void(bool)> done) {
  Reach::Job job;
  job.parts.push_back({addr, sizeof cookie, 0});
  job.buffer = std::make_shared<std::vector<uint8_t>>(sizeof cookie);
  job.done = [cookie, buffer = job.buffer, then = std::move(done)](bool ok) {
    then(ok && std::memcmp(buffer->data(), &cookie, sizeof cookie) == 0);
  };
  reach_->submit(std::move(job));
}

Reach::Part part_of(const Piece& piece, uint64_t offset, const Process& worker) {
  const bool foreign = piece.process != nullptr && piece.process != &worker;
  return {piece.addr, piece.length, offset,
          foreign ? piece.process->reach()->memory() : std::shared_ptr<const Reach::Memory>()};
}

}  // namespace vrdma::rdma
