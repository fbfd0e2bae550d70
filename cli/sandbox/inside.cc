#include "cli/sandbox/inside.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <optional>

#include "cli/run_program.h"
#include "cli/sandbox/links.h"
#include "cli/sandbox/listening.h"
#include "cli/sandbox/process.h"
#include "core/base/printable.h"

namespace vrdma::cli::sandbox {

const char* const kInner = "--inner";

namespace {

using base::Fd;
using base::Result;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr auto kDaemonPatience = std::chrono::seconds(60);
constexpr auto kToolPatience = std::chrono::seconds(40);  // vrdmactl itself waits 30 at most
constexpr auto kWirePatience = std::chrono::seconds(20);
// For a server to end by itself when its client has, and then on SIGTERM.
constexpr auto kServerPatience = std::chrono::seconds(3);
constexpr int kLogLines = 20;  // that are shown of a daemon that failed
constexpr size_t kErrors = 3;  // that are shown of a daemon when a command has failed

// What the sandbox runs, and how it ends. Its only thread waits in wait_until().
class Inside {
 public:
  Inside(const Options& options, const Space& space, const Programs& programs, int log, Fd gone)
      : options_(options), space_(space), programs_(programs), log_(log), gone_(std::move(gone)) {}

  int run() {
    if (auto done = prepare(); !done) return complain(done.error().message());
    if (stopped_ == 0) stopped_ = serve();
    if (stopped_ == 0) {
      stopped_ = options_.pair ? run_pair() : run_one();
      if (stopped_ != 0) show_errors();
    }
    if (!space_.own_pids) kill_all();
    return stopped_ < 0 ? 0 : stopped_;
  }

 private:
  struct Child {
    pid_t pid = 0;
    std::optional<int> status;  // since it ended
    [[nodiscard]] bool lives() const { return pid > 0 && !status; }
  };

  std::string path(const std::string& name) const { return space_.dir + "/" + name; }
  std::string run_dir() const { return path("run"); }
  std::string netns_of(unsigned vdevice) const {
    return path(options_.pair && vdevice == 1 ? "client" : "server");
  }
  std::string netdev_of(unsigned vdevice) const {
    return "eth" + std::to_string(options_.pair ? 0 : vdevice);
  }
  // On a bad network each has its own, as on two hosts: in one they would not send packets.
  std::string fabric_of(unsigned vdevice) const {
    return options_.wire.empty() ? "sandbox" : "host" + std::to_string(vdevice);
  }
  static std::string name_of(unsigned vdevice) { return "vrdma" + std::to_string(vdevice); }

  Result<void> prepare() {
    if (space_.own_pids) {
      if (auto done = mount_own_proc(); !done) return done;
    } else {
      ::prctl(PR_SET_CHILD_SUBREAPER, 1);  // what the command leaves behind is ended here
    }
    if (auto done = add_infiniband_to_dev(); !done) return done;
    if (space_.uid != 0 && !options_.stay_root) {
      userns_ = path("users");
      if (auto done = keep_user_namespace(space_, userns_); !done)
        return explained(Step::kUserNamespace, done);
    }
    for (unsigned i = 0; i < (options_.pair ? 2u : 1u); ++i)
      if (auto done = make_netns(netns_of(i)); !done) return explained(Step::kNetNamespace, done);
    std::vector<Netdev> netdevs;
    for (unsigned i = 0; i < options_.vdevices; ++i) netdevs.push_back({netns_of(i), netdev_of(i)});
    if (!options_.wire.empty()) {
      if (auto done = begin_wire(netdevs); !done) return done;
    } else if (auto done = make_netdevs(netdevs); !done) {
      return explained(Step::kNetdev, done);
    }
    if (auto done = set_up_netdevs(netdevs); !done) return explained(Step::kNetdev, done);
    return {};
  }

  // vrdma-bad-wire makes the interfaces and moves their packets.
  Result<void> begin_wire(const std::vector<Netdev>& netdevs) {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) return base::fail_errno("make a pipe");
    said_ = Fd(ends[0]);
    Fd output(ends[1]);
    Start what;
    what.words = {programs_.bad_wire};
    for (const Netdev& netdev : netdevs) what.words.push_back(netdev.netns + ":" + netdev.name);
    what.words.insert(what.words.end(), options_.wire.begin(), options_.wire.end());
    what.output = output.get();
    what.no_input = what.own_session = true;
    auto wire = start(what, signals_);
    if (!wire) return base::pass(std::move(wire).error());
    output.reset();  // so that its end is seen
    const std::string said = first_line(said_.get(), Clock::now() + kWirePatience);
    if (said == "ready") return {};
    return base::fail(EIO, "there is no bad network: " +
                               (said.empty() ? "vrdma-bad-wire does not become ready" : said));
  }

  // What a program writes, which may come in pieces, until the line ends or the program does.
  std::string first_line(int fd, Clock::time_point deadline) {
    std::string line;
    std::array<char, 512> text{};
    while (line.find('\n') == std::string::npos && wait_until(deadline, fd, [] { return false; })) {
      const ssize_t size = ::read(fd, text.data(), text.size());
      if (size <= 0) break;
      line.append(text.data(), static_cast<size_t>(size));
    }
    return line.substr(0, line.find('\n'));
  }

  static tl::unexpected<base::Error> explained(Step step, const Result<void>& failed) {
    return base::pass(explain(step, failed.error().code(), look_at_host()),
                      failed.error().message());
  }

  // The daemon and its vdevices. 0, or the exit status.
  int serve() {
    const std::string ready_path = path("ready");
    const Fd ready(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    ready_path.copy(address.sun_path, sizeof address.sun_path - 1);
    if (::bind(ready.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
      return complain(std::string("cannot make a socket for the daemon: ") + ::strerror(errno));
    const std::string log_path = path("log");
    const Fd log(log_ >= 0
                     ? ::dup(log_)
                     : ::open(log_path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
    Start what;
    what.words = {programs_.vrdmad, "--user",      "0",          "--run-dir",
                  run_dir(),        "--state-dir", path("state")};
    what.environment = {{"NOTIFY_SOCKET", ready_path}};
    what.output = log.get();
    what.no_input = what.own_session = true;
    auto daemon = start(what, signals_);
    if (!daemon) return complain(daemon.error().message());
    daemon_.pid = *daemon;
    const bool answered = wait_until(Clock::now() + kDaemonPatience, ready.get(),
                                     [this] { return !daemon_.lives(); });
    if (stopped_ != 0) return stopped_;
    if (!daemon_.lives() || !answered) {
      show_log();
      return complain(daemon_.lives() ? "vrdmad does not become ready"
                                      : "vrdmad cannot serve here");
    }
    for (unsigned i = 0; i < options_.vdevices; ++i)
      if (const int status = add_vdevice(i); status != 0) return status;
    return stopped_;
  }

  int add_vdevice(unsigned index) {
    Start what;
    what.words = {
        programs_.vrdmactl, "--run-dir",
        run_dir(),          "vdev",
        "create",           name_of(index),
        "--netns",          netns_of(index),
        "--netdev",         netdev_of(index),
        "--tenant",         options_.two_tenants ? "tenant" + std::to_string(index) : "sandbox",
        "--fabric",         fabric_of(index),
        "--addresses",      "0.0.0.0/0,::/0"};
    what.words.insert(what.words.end(), options_.vdev_options.begin(), options_.vdev_options.end());
    auto child = start(what, signals_);
    if (!child) return complain(child.error().message());
    const int status = finish(*child);
    if (status != 0) return complain("vdevice " + name_of(index) + " cannot be made");
    return options_.wire.empty() ? 0 : let_reach_network(index);
  }

  int let_reach_network(unsigned index) {
    const Fd nothing(::open("/dev/null", O_WRONLY | O_CLOEXEC));
    Start what;
    what.words = {programs_.vrdmactl, "--run-dir", run_dir(), "fabric", "set",
                  fabric_of(index),   "--reach",   "network"};
    what.output = nothing.get();
    auto child = start(what, signals_);
    if (!child) return complain(child.error().message());
    const int status = finish(*child);
    return status == 0 ? 0 : complain("fabric " + fabric_of(index) + " cannot reach the network");
  }

  // Waits for vrdmactl. Its exit status, or kFailed if it is killed, because it does not end.
  int finish(pid_t vrdmactl) {
    tool_ = Child{vrdmactl, std::nullopt};
    wait_until(Clock::now() + kToolPatience, -1, [this] { return !tool_.lives(); });
    if (!tool_.lives()) return *tool_.status;
    ::kill(vrdmactl, SIGKILL);
    show_log();
    return complain(
        "vrdmactl does not end: a limit of processes, threads or memory may be too "
        "small here");
  }

  Result<pid_t> begin(unsigned index, bool no_input) {
    Start what;
    what.words = {programs_.vrdmactl,
                  "--run-dir",
                  run_dir(),
                  "exec",
                  name_of(index),
                  "--",
                  programs_.self,
                  kInner,
                  userns_.empty() ? "-" : userns_,
                  programs_.bin_dir};
    const Words& command = options_.commands[index];
    what.words.insert(what.words.end(), command.begin(), command.end());
    what.no_input = no_input;
    return start(what, signals_);
  }

  int run_one() {
    auto child = begin(0, false);
    if (!child) return complain(child.error().message());
    commands_[0].pid = *child;
    wait_until({}, -1, [this] { return !commands_[0].lives(); });
    return *commands_[0].status;
  }

  int run_pair() {
    auto server = begin(0, true);
    if (!server) return complain(server.error().message());
    commands_[0].pid = *server;
    const auto deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                             std::chrono::duration<double>(options_.wait));
    Listening listening(*server, programs_.vrdmactl, run_dir(), name_of(0));
    // A server that has gone into the background has ended with 0.
    bool listens = false;
    while (Clock::now() < deadline && !failed(commands_[0]) &&
           !(listens = listening.check(signals_)))
      wait_until(std::min(deadline, Clock::now() + milliseconds(20)), -1,
                 [this] { return failed(commands_[0]); });
    if (!listens && !failed(commands_[0]) && options_.wait > 0)
      complain("note: the server, " + base::printable(options_.commands[0][0]) +
               ", does not listen on a TCP port or by rdma_cm yet; the client starts (--wait)");
    if (failed(commands_[0])) {
      complain("the server ended with status " + std::to_string(*commands_[0].status) +
               " before the client was started");
      return *commands_[0].status;
    }
    auto client = begin(1, false);
    if (!client) return complain(client.error().message());
    commands_[1].pid = *client;
    wait_until({}, -1, [this] { return !commands_[1].lives(); });
    wait_until(Clock::now() + kServerPatience, -1, [this] { return !commands_[0].lives(); });
    if (commands_[0].lives()) ::kill(commands_[0].pid, SIGTERM);
    wait_until(Clock::now() + kServerPatience, -1, [this] { return !commands_[0].lives(); });
    if (failed(commands_[0]) && commands_[0].status != kBySignal + SIGTERM)
      complain("the server ended with status " + std::to_string(*commands_[0].status));
    return *commands_[1].status;
  }

  static bool failed(const Child& child) { return child.status.value_or(0) != 0; }

  // Until `done`, or `fd` is readable (true), or `deadline`, if it is one (false). Meanwhile reaps
  // children and passes signals on.
  template <class Done>
  bool wait_until(std::optional<Clock::time_point> deadline, int fd, Done done) {
    for (;;) {
      bool sent = false;
      while (const int signal = signals_.next(&sent)) take(signal, sent);
      reap();
      if (done()) return true;
      int timeout = -1;
      if (deadline) {
        const auto left = std::chrono::ceil<milliseconds>(*deadline - Clock::now());
        if (left.count() <= 0) return false;
        timeout = static_cast<int>(left.count());
      }
      std::array<pollfd, 3> waiting{
          {{signals_.fd(), POLLIN, 0}, {gone_.get(), POLLIN, 0}, {fd, POLLIN, 0}}};
      if (::poll(waiting.data(), waiting.size(), timeout) < 0) continue;
      if (waiting[1].revents != 0) end_with_parent();
      if (waiting[2].revents != 0) return true;
    }
  }

  void take(int signal, bool sent) {
    if (signal == SIGCHLD) return;
    bool anybody = false;
    for (const Child& command : commands_) {
      if (!command.lives()) continue;
      anybody = true;
      if (sent) ::kill(command.pid, signal);
    }
    const bool ends =
        signal == SIGINT || signal == SIGTERM || signal == SIGHUP || signal == SIGQUIT;
    if (!anybody && ends) {  // there is no command yet, or none any more
      if (!space_.own_pids) kill_all();
      ::_exit(kBySignal + signal);
    }
  }

  void reap() {
    int status = 0;
    for (pid_t pid; (pid = ::waitpid(-1, &status, WNOHANG)) > 0;) {
      for (Child* child : {&daemon_, &tool_, &commands_[0], &commands_[1]})
        if (child->pid == pid) child->status = status_of(status);
      if (pid == daemon_.pid && (commands_[0].lives() || commands_[1].lives())) {
        complain("vrdmad has ended with status " + std::to_string(*daemon_.status) +
                 " while the command runs");
        show_log();
      }
    }
  }

  [[noreturn]] void end_with_parent() {
    if (!space_.own_pids) kill_all();
    ::_exit(kFailed);
  }

  // Without a pid namespace: children, and theirs, who come here when their parents end.
  static void kill_all() {
    const std::string list = "/proc/self/task/" + std::to_string(::getpid()) + "/children";
    do {
      std::ifstream children(list);
      for (pid_t pid; children >> pid;) ::kill(pid, SIGKILL);
    } while (::waitpid(-1, nullptr, 0) > 0);
  }

  // Without --log, where the user finds it himself.
  void show_log() const {
    std::ifstream file(path("log"));
    std::vector<std::string> lines;
    for (std::string line; std::getline(file, line);) lines.push_back(line);
    const size_t first = lines.size() > kLogLines ? lines.size() - kLogLines : 0;
    for (size_t i = first; i < lines.size(); ++i) std::cerr << lines[i] << '\n';
  }

  // What vrdmad could not do for a command that has failed: its own words, because no operator is
  // there who reads the log.
  void show_errors() const {
    constexpr std::string_view kLevel = " error ";
    std::ifstream file(path("log"));
    std::vector<std::string> said;
    for (std::string line; std::getline(file, line) && said.size() < kErrors;) {
      const size_t time = line.find(' ');
      if (time == std::string::npos || line.compare(time, kLevel.size(), kLevel) != 0) continue;
      const std::string sentence = line.substr(time + kLevel.size());
      if (std::find(said.begin(), said.end(), sentence) == said.end()) said.push_back(sentence);
    }
    for (const std::string& sentence : said) complain("vrdmad: " + sentence);
  }

  const Options& options_;
  const Space& space_;
  const Programs& programs_;
  const int log_;
  const Fd gone_;
  Signals signals_;
  std::string userns_;  // path; empty: commands stay in this one
  Fd said_;             // what the bad wire says; it would end if nobody could read it
  Child daemon_, tool_;
  std::array<Child, 2> commands_;
  int stopped_ = 0;
};

}  // namespace

Result<Programs> find_programs() {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::path self = fs::read_symlink("/proc/self/exe", error);
  if (error)
    return base::fail(error.value(),
                      "cannot read /proc/self/exe (" + error.message() + "): mount /proc first");
  // Not by the name of the running file: in an archive that is the loader (packaging/tarball).
  const fs::path prefix = self.parent_path().parent_path(), bin = prefix / "bin";
  const fs::path libraries = prefix / "lib/vrdma";
  Programs programs{bin / "vrdma-sandbox",        bin / "vrdmactl",
                    prefix / "sbin/vrdmad",       libraries / "vrdma-bad-wire",
                    libraries / "vrdma-pingpong", bin};
  for (const auto& program : {programs.self, programs.vrdmactl, programs.vrdmad})
    if (::access(program.c_str(), X_OK) != 0)
      return base::fail(errno, program + " cannot be run (" + ::strerror(errno) +
                                   "): build or install all of vrdma, not this program alone");
  return programs;
}

int run_inside(const Options& options, const Space& space, const Programs& programs, int log,
               Fd parent_gone) {
  // Without a pid namespace there are processes to be ended before this one: see end_with_parent().
  if (space.own_pids) ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  pollfd gone{parent_gone.get(), POLLIN, 0};
  if (::poll(&gone, 1, 0) != 0) return kFailed;
  return Inside(options, space, programs, log, std::move(parent_gone)).run();
}

int begin_command(int argc, char** argv) {
  if (argc < 5) return complain(std::string(kInner) + " is for vrdma-sandbox itself");
  const std::string users = argv[2], bin_dir = argv[3];
  if (users != "-") {
    const Fd userns(::open(users.c_str(), O_RDONLY | O_CLOEXEC));
    if (!userns.valid() || ::setns(userns.get(), CLONE_NEWUSER) != 0)
      return complain(std::string("cannot enter the command's user namespace: ") +
                      ::strerror(errno));
  }
  const char* const before = std::getenv("PATH");
  ::setenv("PATH", ((before != nullptr ? before : "/usr/bin:/bin") + (":" + bin_dir)).c_str(), 1);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // what changes ids takes it away
  return run_program("vrdma-sandbox", {argv + 4, argv + argc});
}

}  // namespace vrdma::cli::sandbox
