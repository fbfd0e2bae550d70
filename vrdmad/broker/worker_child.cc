#include "vrdmad/broker/worker_child.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <future>
#include <system_error>
#include <thread>
#include <utility>

#include "core/base/event_loop.h"
#include "core/base/netns_cookie.h"
#include "core/base/token_bucket.h"
#include "core/ipc/socket.h"
#include "vrdmad/broker/known_peers.h"
#include "vrdmad/broker/program.h"

namespace vrdma::vrdmad {

using base::fail;
using base::fail_errno;
using base::Fd;
using base::pass;
using base::Result;

namespace {

constexpr uint64_t kSavedSeconds = 8;

// A temporary thread makes it, so that this one stays where it is.
template <class Make>
Result<Fd> make_elsewhere(const char* what, Make make) {
  Result<Fd> made = fail(EAGAIN, std::string("cannot create a thread to make ") + what);
  try {
    std::thread([&] { made = make(); }).join();
  } catch (const std::system_error&) {
  }
  return made;
}

Result<Fd> make_empty_netns(uint64_t* cookie) {
  return make_elsewhere("a network namespace", [cookie]() -> Result<Fd> {
    if (::unshare(CLONE_NEWNET) != 0) return fail_errno("make a network namespace for workers");
    Fd netns(::open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC));
    if (!netns.valid()) return fail_errno("open the network namespace of workers");
    const auto its = base::own_netns_cookie();
    if (!its) return base::pass(its.error());
    *cookie = *its;
    return netns;
  });
}

bool is_same_file(const Fd& one, const char* other) {
  struct stat its {
  }, others{};
  return ::fstat(one.get(), &its) == 0 && ::stat(other, &others) == 0 &&
         its.st_dev == others.st_dev && its.st_ino == others.st_ino;
}

// Moves this thread there. The root has the inode that it has elsewhere, because earlier workers
// are found by it (earlier_workers.h).
Result<Fd> enter_empty_mounts(const std::string& run_dir) {
  auto root = KnownPeers(run_dir).empty_root();
  if (!root) return pass(std::move(root).error());
  const std::string path = KnownPeers::path_of_root(run_dir);
  if (::unshare(CLONE_NEWNS) != 0) return fail_errno("make a mount namespace");
  Fd mounts(::open("/proc/thread-self/ns/mnt", O_RDONLY | O_CLOEXEC));
  if (!mounts.valid()) return fail_errno("open the mount namespace");
  if (::mount("", "/", nullptr, MS_PRIVATE | MS_REC, nullptr) != 0)
    return fail_errno("detach the mount namespace");
  if (::mount(path.c_str(), path.c_str(), nullptr, MS_BIND, nullptr) != 0)
    return fail_errno("mount " + path);
  if (::chdir(path.c_str()) != 0) return fail_errno("enter " + path);
  // The daemon's user owns the directory above, and may have put another one in its place.
  if (!is_same_file(*root, ".")) return fail(EPERM, path + " is another directory now");
  if (::syscall(SYS_pivot_root, ".", ".") != 0) return fail_errno("make " + path + " the root");
  if (::umount2(".", MNT_DETACH) != 0) return fail_errno("unmount what was the root before");
  return mounts;
}

// None: it is not needed, because chroot(2) is permitted.
Result<Fd> make_empty_mounts(const std::string& run_dir) {
  return make_elsewhere("a mount namespace", [&run_dir]() -> Result<Fd> {
    if (::chroot("/") == 0) return Fd();
    if (run_dir.empty()) return fail_errno("call chroot(2)");
    auto made = enter_empty_mounts(run_dir);
    if (!made)
      return pass(std::move(made).error(),
                  "chroot(2) is forbidden, and so is the empty mount namespace in its place");
    return made;
  });
}

// What the new process does before its program, in the order of execution.
enum class Step : uint32_t {
  kNone,
  kGroup,
  kNetns,
  kRoot,
  kFiles,
  kLimits,
  kBounds,
  kUser,
  kDeath,
  kExec
};

constexpr const char* name_of(Step step) {
  switch (step) {
    case Step::kGroup:
      return "enter its control group";
    case Step::kNetns:
      return "enter the network namespace of workers";
    case Step::kRoot:
      return "enter the empty root of workers";
    case Step::kFiles:
      return "put its descriptors in order";
    case Step::kLimits:
      return "set its limits";
    case Step::kBounds:
      return "drop its capabilities";
    case Step::kUser:
      return "become its user";
    case Step::kDeath:
      return "tie its life to the broker's";
    case Step::kExec:
      return "execute its program";
    default:
      return "say why";
  }
}

struct Failure {
  Step step = Step::kNone;
  int error = 0;
};

struct ForChild {
  const WorkerGroup* group;
  int program, netns, mounts, root, link, channel, status;  // mounts: -1: chroot(2) instead
  WorkerGround::User user;
  bool own_user;
  pid_t broker;
};

// The functions below run in a fork of a process with threads: they may not allocate. System calls
// are made directly, because the C library would change the ids of threads that do not exist.

void reset_signals() {
  struct sigaction ours {};
  ours.sa_handler = SIG_DFL;
  for (int number = 1; number < NSIG; ++number) (void)::sigaction(number, &ours, nullptr);
  sigset_t none;
  sigemptyset(&none);
  (void)::sigprocmask(SIG_SETMASK, &none, nullptr);
}

// The last two are closed by the execution.
constexpr int kNull = 0, kLink = 3, kChannel = 4, kProgram = 5, kStatus = 6;

bool move_descriptors(int null, ForChild* has) {
  // First away from the numbers that others get.
  std::array<int, 5> high{null, has->link, has->channel, has->program, has->status};
  for (int& fd : high)
    if ((fd = ::fcntl(fd, F_DUPFD_CLOEXEC, kStatus + 1)) < 0) return false;
  const bool moved = ::dup2(high[0], kNull) >= 0 && ::dup2(high[0], kNull + 1) >= 0 &&
                     ::dup2(high[1], kLink) >= 0 && ::dup2(high[2], kChannel) >= 0 &&
                     ::dup3(high[3], kProgram, O_CLOEXEC) >= 0 &&
                     ::dup3(high[4], kStatus, O_CLOEXEC) >= 0;
  if (!moved) return false;
  has->program = kProgram;
  has->status = kStatus;
  return ::syscall(SYS_close_range, static_cast<unsigned>(kStatus + 1), ~0u, 0) == 0;
}

bool drop_bounds() {
  for (unsigned long capability = 0; capability < 64; ++capability)
    if (::prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) != 0) {
      // Without CAP_SETPCAP, no-new-privileges suffices.
      if (errno != EINVAL && errno != EPERM) return false;
      break;
    }
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0;
}

bool become_user(uid_t uid, gid_t gid) {
  if (uid != ::geteuid() &&
      (::syscall(SYS_setgroups, 0, nullptr) != 0 || ::syscall(SYS_setresgid, gid, gid, gid) != 0 ||
       ::syscall(SYS_setresuid, uid, uid, uid) != 0))
    return false;
  (void)::prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct none[2]{};
  return ::syscall(SYS_capset, &header, none) == 0;
}

[[noreturn]] void become_worker(ForChild has) {
  const auto check = [&has](Step step, bool done) {
    if (done) return;
    const Failure failure{step, errno};
    (void)!::write(has.status, &failure, sizeof failure);
    ::_exit(1);
  };
  reset_signals();
  check(Step::kGroup, has.group->enter());
  const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  check(Step::kFiles, null >= 0);
  check(Step::kNetns, ::setns(has.netns, CLONE_NEWNET) == 0);
  check(Step::kRoot, has.mounts >= 0 ? ::setns(has.mounts, CLONE_NEWNS) == 0
                                     : ::fchdir(has.root) == 0 && ::chroot(".") == 0);
  check(Step::kRoot, ::chdir("/") == 0);
  check(Step::kFiles, move_descriptors(null, &has));
  const rlimit none{0, 0};
  check(Step::kLimits, ::setrlimit(RLIMIT_CORE, &none) == 0);
  // The journal of a session: more than the largest quotas need.
  constexpr rlimit kJournal{256u << 20, 256u << 20};
  check(Step::kLimits, ::setrlimit(RLIMIT_FSIZE, &kJournal) == 0);
  // Beyond this number a user has no more descriptors under way in sockets (unix(7)). If control
  // has the same user, it has twice the limit, so workers cannot keep it from sending.
  rlimit files{};
  (void)::getrlimit(RLIMIT_NOFILE, &files);
  if (!has.own_user) files.rlim_max = std::max<rlim_t>(files.rlim_max / 2, 64);
  files.rlim_cur = std::min(files.rlim_cur, files.rlim_max);
  check(Step::kLimits, ::setrlimit(RLIMIT_NOFILE, &files) == 0);
  check(Step::kBounds, drop_bounds());
  check(Step::kUser, become_user(has.user.uid, has.user.gid));
  // After the change of the user, which undoes it. The broker may have ended before.
  check(Step::kDeath,
        ::prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) == 0 && ::getppid() == has.broker);
  char name[] = "vrdmad-worker";
  std::array<char*, 2> arguments{name, nullptr};
  std::array<char*, 1> environment{nullptr};
  ::syscall(SYS_execveat, has.program, "", arguments.data(), environment.data(), AT_EMPTY_PATH);
  check(Step::kExec, false);
  ::_exit(1);
}

}  // namespace

WorkerGround::WorkerGround(const BrokerPlace& place)
    : program(place.worker.empty() ? open_program("vrdmad-worker") : open_program_at(place.worker)),
      netns(make_empty_netns(&netns_cookie)),
      mounts(make_empty_mounts(place.run_dir)),
      worker_time(place.worker_time),
      groups(place.groups),
      daemon_{place.daemon, place.group},
      first_user_(place.first_worker_user) {}

WorkerGround::User WorkerGround::user_of(unsigned place) const {
  return has_users() ? User{first_user_ + place, first_user_ + place} : daemon_;
}

Result<unsigned> WorkerPlaces::take() {
  const std::lock_guard lock(mutex_);
  if (taken_.size() >= kMost)
    return fail(EAGAIN, "there are " + std::to_string(kMost) + " workers: no more are possible");
  unsigned place = 0;
  while (taken_.contains(place)) ++place;
  taken_.insert(place);
  return place;
}

void WorkerPlaces::give_back(unsigned place) {
  const std::lock_guard lock(mutex_);
  taken_.erase(place);
}

bool WorkerPlaces::empty() {
  const std::lock_guard lock(mutex_);
  return taken_.empty();
}

struct WorkerChild::Start {
  std::shared_ptr<Life> life;
  std::shared_ptr<WorkerGround> ground;
  unsigned place = 0;
  Fd root, link, report;
  Serve serve;
  std::promise<Result<void>> started;
};

namespace {

// Forks. Returns the pidfd when the child has executed its program.
Result<Fd> fork_worker(const WorkerGround& ground, unsigned place, const WorkerGroup& group,
                       const Fd& root, const Fd& link, const Fd& channel) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return fail_errno("make a pipe for a worker");
  const Fd status(ends[0]);
  Fd its_status(ends[1]);
  const pid_t broker = ::getpid();
  const pid_t child = ::fork();
  if (child == 0)
    become_worker({&group, ground.program->get(), ground.netns->get(), ground.mounts->get(),
                   root.get(), link.get(), channel.get(), its_status.get(), ground.user_of(place),
                   ground.has_users(), broker});
  if (child < 0) return fail_errno("fork a worker");
  its_status = Fd();
  Fd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, child, 0)));
  const int no_pidfd = pidfd.valid() ? 0 : errno;
  if (no_pidfd != 0) ::syscall(SYS_tgkill, child, child, SIGKILL);  // it is not reaped yet
  Failure failure;
  ssize_t got = 0;
  do {
    got = ::read(status.get(), &failure, sizeof failure);
  } while (got < 0 && errno == EINTR);
  if (got == 0 && no_pidfd == 0) return pidfd;
  ::waitpid(child, nullptr, 0);
  if (no_pidfd != 0) return fail(no_pidfd, "open the pidfd of a worker");
  errno = failure.error;
  return fail_errno(std::string("it could not ") + name_of(failure.step));
}

}  // namespace

void WorkerChild::run(Start start) {
  ::pthread_setname_np(::pthread_self(), "worker");
  auto ends = ipc::make_socket_pair();
  if (!ends)
    return start.started.set_value(pass(std::move(ends).error(), "make a channel for a worker"));
  auto& [channel, its] = *ends;
  (void)::fcntl(channel.get(), F_SETFL, O_NONBLOCK);
  const auto group = start.ground->groups.make();
  if (!group) return start.started.set_value(base::pass(group.error()));
  auto pidfd = fork_worker(*start.ground, start.place, *group, start.root, start.link, its);
  its = Fd();
  start.root = Fd();
  start.link = Fd();
  if (!pidfd) return start.started.set_value(pass(std::move(pidfd).error()));
  start.life->pidfd = std::move(*pidfd);
  start.life->lives = true;
  start.started.set_value({});
  // Of a thread that looks into a process, so it is elapsed time that counts.
  base::TokenBucket time;
  time.set(start.ground->worker_time, kSavedSeconds * start.ground->worker_time);
  for (;;) {
    const auto wait =
        std::chrono::ceil<std::chrono::milliseconds>(time.wait(base::Clock::steady().now()));
    const bool may = wait.count() == 0;
    std::array<pollfd, 2> either{
        {{start.life->pidfd.get(), POLLIN, 0}, {may ? channel.get() : -1, POLLIN, 0}}};
    if (::poll(either.data(), either.size(), may ? -1 : static_cast<int>(wait.count())) < 0)
      continue;
    if (either[0].revents != 0) break;
    if (either[1].revents == 0) continue;
    const auto begun = base::Clock::steady().now();
    // Does not wait for a worker that takes no answers.
    if (!broker::serve_request(channel, start.serve)) channel = Fd();
    const auto ended = base::Clock::steady().now();
    time.spend(ended, static_cast<uint64_t>((ended - begun).count()));
  }
  start.life->lives = false;
  siginfo_t ended{};
  (void)::waitid(static_cast<idtype_t>(P_PIDFD), static_cast<id_t>(start.life->pidfd.get()), &ended,
                 WEXITED);
  if (const uint64_t limit = group->exceeded_memory(); limit != 0)
    (void)ipc::send_message(start.report.get(), &limit, sizeof limit);
}

WorkerChild::~WorkerChild() {
  if (life_->lives) ::syscall(SYS_pidfd_send_signal, life_->pidfd.get(), SIGKILL, nullptr, 0);
}

Result<void> WorkerChild::start(std::shared_ptr<WorkerGround> ground, Fd root, Fd link, Fd report,
                                Serve serve) {
  for (const auto* has : {&ground->program, &ground->netns, &ground->mounts})
    if (!*has) return base::pass(has->error());
  const auto place = ground->places.take();
  if (!place) return base::pass(place.error());
  Start start{
      life_, ground, *place, std::move(root), std::move(link), std::move(report), std::move(serve),
      {}};
  auto started = start.started.get_future();
  try {
    std::thread([ground, number = *place, start = std::move(start)]() mutable {
      run(std::move(start));
      ground->places.give_back(number);
    }).detach();
  } catch (const std::system_error&) {
    ground->places.give_back(*place);
    return fail(EAGAIN, "cannot create a thread for a worker");
  }
  return started.get();
}

Result<Fd> WorkerChild::pidfd() const { return life_->pidfd.duplicate(); }

}  // namespace vrdma::vrdmad
