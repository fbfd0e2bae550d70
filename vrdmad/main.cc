// vrdmad: the daemon. main() is its table of contents.
#include <signal.h>
#include <spdlog/spdlog.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <optional>
#include <thread>
#include <tuple>
#include <vector>

#include "api/classes.h"
#include "core/base/event_loop.h"
#include "core/base/option_check.h"
#include "core/base/standard_streams.h"
#include "core/rdma/peer.h"
#include "core/verbs/socket_address.h"
#include "netns/monitor.h"
#include "transport/hole_guard.h"
#include "vrdmad/admin/checkpoint_server.h"
#include "vrdmad/admin/metrics.h"
#include "vrdmad/admin/remote_metrics.h"
#include "vrdmad/admin/server.h"
#include "vrdmad/broker/broker_place.h"
#include "vrdmad/broker/seats.h"
#include "vrdmad/control/daemon.h"
#include "vrdmad/control/run_dir.h"
#include "vrdmad/control/store.h"
#include "vrdmad/daemon_user.h"
#include "vrdmad/helpers.h"
#include "vrdmad/hooks/server.h"
#include "vrdmad/log/audit.h"
#include "vrdmad/log/log.h"
#include "vrdmad/options_file.h"
#include "vrdmad/parent_groups.h"
#include "vrdmad/privileges.h"
#include "vrdmad/system_calls.h"

namespace {

using vrdma::base::Fd;
using vrdma::base::number;
using vrdma::base::one_of;
using vrdma::base::Result;
using vrdma::vrdmad::User;

constexpr size_t kSocketName = 27;  // "/netns/4026532000/1234.sock" and the like
constexpr unsigned kMostWorkers = vrdma::vrdmad::BrokerPlace::kMostWorkers;
// To the broker at a time, of this process: of its threads, each waits for one.
constexpr unsigned kRequests = 4;

struct Options {
  std::string run_dir = "/run/vrdma";
  std::string state_dir = "/var/lib/vrdma";
  std::string log_level = "info";
  std::string log_format = "text";
  std::string audit_log;
  std::string classes = vrdma::api::kClassesFile;
  vrdma::vrdmad::MetricsPlace metrics;
  std::string user;
  std::string isolation = "tenant";
  std::string cgroup;
  // systemd leaves 1879048192 to 2147483647 unused (UIDS-GIDS in its documentation), and so do
  // distributions and container engines.
  uid_t worker_users = 0x70000000;
  unsigned workers = 0;
#ifdef VRDMA_WORKER_PROCESSES
  bool single = false;
#else
  bool single = true;  // with sanitizers, or without libseccomp.a
#endif
  unsigned source_ports = 0;
  double grace = 30, park_grace = 60;
};

int parse(int argc, char** argv, Options* options) {
  if (const char* dir = std::getenv("VRDMA_RUN_DIR"); dir != nullptr && *dir != '\0')
    options->run_dir = dir;
  CLI::App app("vrdmad gives containers virtual RDMA devices", "vrdmad");
  app.set_version_flag("--version", "vrdmad " VRDMA_VERSION);
  app.set_config("--config", "", "read options from a file (TOML: log-level = \"debug\")");
  const auto file = std::make_shared<vrdma::vrdmad::OptionsFile>(app);
  app.config_formatter(file);
  app.add_option("--run-dir", options->run_dir, "sockets and the lock")
      ->check(vrdma::base::not_empty, "")
      ->capture_default_str();
  app.add_option("--state-dir", options->state_dir, "what survives a restart")
      ->check(vrdma::base::not_empty, "")
      ->capture_default_str();
  app.add_option("--log-level", options->log_level, "lowest level that is logged on standard error")
      ->check(one_of({"trace", "debug", "info", "warning", "error", "off"}), "")
      ->type_name("trace|debug|info|warning|error|off")
      ->capture_default_str();
  app.add_option("--log-format", options->log_format, "text, or json: one object per line")
      ->check(one_of({"text", "json"}), "")
      ->capture_default_str();
  app.add_option("--audit-log", options->audit_log,
                 "a file for one JSON line for each change by an operator, in addition to the log")
      ->check(vrdma::base::not_empty, "");
  app.add_option("--classes", options->classes,
                 "what containers get: a file, read whenever a container starts")
      ->check(vrdma::base::not_empty, "")
      ->capture_default_str();
  app.add_option("--metrics", options->metrics.address,
                 "serve Prometheus: unix:PATH, 127.0.0.1:PORT, or another ADDRESS:PORT with TLS")
      ->check(vrdma::base::not_empty, "");
  for (const auto& [name, path, what] :
       {std::tuple{"--metrics-cert", &options->metrics.files.certificate,
                   "serve the metrics by TLS, with this certificate, and those between it and the "
                   "root behind it"},
        {"--metrics-key", &options->metrics.files.key, "the private key of the certificate"},
        {"--metrics-token-file", &options->metrics.files.token,
         "only clients get the metrics that send the bearer token in this file"},
        {"--metrics-client-ca", &options->metrics.files.client_ca,
         "only clients get the metrics that have a certificate by one of those in this file"}})
    app.add_option(name, *path, what)->check(vrdma::base::not_empty, "")->type_name("FILE");
  app.add_option("--user", options->user,
                 "name or number of the user that serves tenants and operators; without it: vrdma "
                 "if there is that user, or else root without capabilities")
      ->check(vrdma::base::not_empty, "");
  app.add_option("--isolation", options->isolation,
                 "which vdevices share a worker process: those of a tenant, of a fabric, or all "
                 "(none)")
      ->check(one_of({"tenant", "fabric", "none"}), "")
      ->capture_default_str();
  app.add_option("--cgroup", options->cgroup,
                 "the control group below which worker processes get theirs, or none; without it: "
                 "that of vrdmad if it is delegated")
      ->check(CLI::Validator(
          [](const std::string& group) {
            const bool valid = group == "none" || vrdma::vrdmad::is_group_path(group);
            return valid ? "" : "'" + group + "' is neither the path of a control group nor none";
          },
          "PATH|none"));
  app.add_option(
         "--worker-users", options->worker_users,
         "the first of the 4096 user and group numbers that worker processes have, each one "
         "of its own; 0: they have those of --user")
      ->check(number(0, UINT32_MAX - kMostWorkers, "the number of a user, 0 to 4294963199"), "")
      ->capture_default_str();
  app.add_option("--workers", options->workers,
                 "worker processes with --isolation none; 0: half of the processors, at least one")
      ->check(number(0, 256, "0 to 256"), "")
      ->capture_default_str();
  app.add_flag("--single", options->single,
               "workers are threads of vrdmad instead of processes: for debuggers");
  static_assert(vrdma::verbs::kMostSourcePorts == 8);
  app.add_option("--roce-source-ports", options->source_ports,
                 "UDP ports that packets to other hosts leave from, so that routers spread queue "
                 "pairs over several paths; 0: all leave from port 4791")
      ->check(number(0, vrdma::verbs::kMostSourcePorts, "0 to 8 ports"), "")
      ->capture_default_str();
  app.add_option("--daemon-grace", options->grace,
                 "seconds that mediated requests wait for the next daemon")
      ->check(number(0, 3600, "0 to 3600 seconds"), "")
      ->capture_default_str();
  app.add_option("--park-grace", options->park_grace,
                 "seconds that a program may be parked (vrdmactl checkpoint); 0: forever")
      ->check(number(0, 31'536'000, "0 to 31536000 seconds"), "")
      ->capture_default_str();
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error) == 0 ? -1 : 2;
    std::cerr << "vrdmad: " << file->sentence(error) << "\n";
    return 2;
  }
  return 0;
}

sigset_t signals_to_end() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  return signals;
}

// Before any thread or helper process exists.
void block_signals() {
  const sigset_t signals = signals_to_end();
  ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  ::signal(SIGPIPE, SIG_IGN);
  ::signal(SIGXFSZ, SIG_IGN);  // of a memory file beyond ulimit -f: the error suffices
}

// Delivers SIGTERM and SIGINT through a descriptor.
Result<Fd> catch_signals() {
  const sigset_t signals = signals_to_end();
  Fd fd(::signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!fd.valid()) return vrdma::base::fail_errno("make a signalfd");
  return fd;
}

// What the user of the daemon gets.
std::vector<vrdma::vrdmad::OwnDirectory> directories_of(const std::string& run_dir,
                                                        const std::string& state_dir) {
  std::vector<vrdma::vrdmad::OwnDirectory> all{
      {run_dir, 0755, vrdma::vrdmad::RunDir::own_names(), "broker"},
      {state_dir, 0700, {"state.db*", "events*"}, {}}};
  // LogsDirectory= of systemd.exec(5), where the audit log is replaced while the daemon runs.
  if (const char* logs = std::getenv("LOGS_DIRECTORY"); logs != nullptr && *logs == '/')
    all.push_back({logs, 0700, {"*"}, {}});
  return all;
}

// A session takes about ten descriptors. Returns the limit.
uint64_t raise_descriptor_limit() {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max = std::max<rlim_t>(limit.rlim_max, 1u << 20);
  if (::setrlimit(RLIMIT_NOFILE, &limit) == 0) return limit.rlim_cur;
  ::getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
  return limit.rlim_cur;
}

// Below that it would fail at the first program, in a place that does not tell why.
Result<void> check_descriptors(uint64_t limit) {
  constexpr uint64_t kLeast = 192;
  if (limit >= kLeast) return {};
  return vrdma::base::fail(
      EMFILE, "a process of vrdmad may have " + std::to_string(limit) + " open files, and " +
                  std::to_string(kLeast) +
                  " are needed to serve a program: raise the hard limit (ulimit -Hn, "
                  "LimitNOFILE=)");
}

void warn_of_descriptors(uint64_t limit) {
  using vrdma::vrdmad::Seats;
  constexpr uint64_t kEnough = uint64_t{Seats::kMost} + Seats::kReserve;
  if (limit >= kEnough) return;
  spdlog::warn(
      "a process of vrdmad may have {} open files, so at most {} programs can be connected at "
      "once; {} open files permit {} (ulimit -n, LimitNOFILE=)",
      limit, Seats::limits_for(limit).all, kEnough, Seats::kMost);
}

// A directory that was made for a misspelt name would hide the file. `what` begins the sentence.
Result<void> check_directory_of(const std::string& path, const std::string& what) {
  std::error_code error;
  const auto directory = std::filesystem::absolute(path, error).parent_path();
  if (std::filesystem::is_directory(directory, error)) return {};
  return vrdma::base::fail(ENOTDIR,
                           what + " cannot be made: there is no directory " + directory.string());
}

Result<void> check_audit_log(const std::string& path) {
  std::error_code error;
  if (path.empty()) return {};
  if (std::filesystem::is_directory(path, error))
    return vrdma::base::fail(EISDIR, "the audit log " + path + " is a directory: name a file");
  return check_directory_of(path, "the audit log " + path);
}

// The run directory is made later.
Result<void> check_metrics(const vrdma::vrdmad::MetricsPlace& place, const std::string& run_path) {
  if (auto valid = vrdma::vrdmad::check_metrics(place); !valid) return valid;
  const auto path = vrdma::serve::HttpServer::path_of(place.address);
  if (!path) return {};
  std::error_code error;
  if (std::filesystem::absolute(*path, error).lexically_normal().parent_path() == run_path)
    return {};
  return check_directory_of(*path, "metrics: " + place.address);
}

// As which user the daemon runs after its start.
Result<User> choose_user(const std::string& asked) {
  auto user = vrdma::vrdmad::find_user(asked.empty() ? "vrdma" : asked);
  if (user || !asked.empty()) return user;
  if (user.error().code() == ENOENT)
    spdlog::warn(
        "there is no user 'vrdma', so vrdmad remains root, without capabilities: make that user, "
        "or choose another with --user");
  return User{::geteuid(), ::getegid()};
}

struct Start {
  std::string run_path, state_path;  // absolute
  User user;                         // as which the daemon runs after its start
};
// What the options ask for, before anything is made.
Result<Start> check(const Options& options) {
  if (::geteuid() != 0)
    return vrdma::base::fail(EPERM,
                             "root is needed: vrdmad enters network namespaces and reads "
                             "the memory of its clients");
  if (auto able = vrdma::rdma::check_kernel(); !able) return vrdma::base::pass(able.error());
  auto run_path = vrdma::vrdmad::RunDir::absolute(options.run_dir);
  if (!run_path) return vrdma::base::pass(std::move(run_path.error()));
  auto state_path = vrdma::vrdmad::RunDir::absolute(options.state_dir);
  if (!state_path) return vrdma::base::pass(std::move(state_path.error()));
  if (run_path->size() + kSocketName >= sizeof(sockaddr_un::sun_path))
    return vrdma::base::fail(ENAMETOOLONG, "the run directory " + *run_path +
                                               " is too long for the names of its sockets: "
                                               "choose one of at most 80 characters");
  if (*run_path == *state_path)
    return vrdma::base::fail(EINVAL, "the run directory and the state directory are both " +
                                         *run_path +
                                         ": choose another one, since programs may enter the "
                                         "first and nobody the second");
  if (auto there = check_audit_log(options.audit_log); !there)
    return vrdma::base::pass(there.error());
  if (auto valid = check_metrics(options.metrics, *run_path); !valid)
    return vrdma::base::pass(valid.error());
  if (auto free = vrdma::vrdmad::RunDir::check_free(*run_path); !free)
    return vrdma::base::pass(free.error());
  if (auto free = vrdma::vrdmad::Store::check_free(*state_path); !free)
    return vrdma::base::pass(free.error());
  for (const auto& directory : directories_of(*run_path, *state_path))
    if (auto its = vrdma::vrdmad::check_own(directory); !its) return vrdma::base::pass(its.error());
  auto user = choose_user(options.user);
  if (!user) return vrdma::base::pass(std::move(user.error()));
  if (options.worker_users != 0 && user->uid - options.worker_users < kMostWorkers)
    return vrdma::base::fail(EINVAL, "--worker-users " + std::to_string(options.worker_users) +
                                         ": user " + std::to_string(user->uid) +
                                         ", as which vrdmad runs, is one of these " +
                                         std::to_string(kMostWorkers));
  return Start{std::move(*run_path), std::move(*state_path), *user};
}

vrdma::vrdmad::WorkerOptions worker_options(const Options& options) {
  using vrdma::vrdmad::Isolation;
  vrdma::vrdmad::WorkerOptions workers;
  workers.isolation = options.isolation == "tenant"   ? Isolation::kTenant
                      : options.isolation == "fabric" ? Isolation::kFabric
                                                      : Isolation::kNone;
  workers.workers = options.workers != 0 ? options.workers
                                         : std::max(1u, std::thread::hardware_concurrency() / 2);
  return workers;
}

Result<void> run(const Options& options) {
  const auto start = check(options);
  if (!start) return vrdma::base::pass(start.error());
  const auto& [run_path, state_path, user] = *start;
  ::umask(0022);
  const uint64_t descriptors = raise_descriptor_limit();
  if (auto enough = check_descriptors(descriptors); !enough) return enough;
  block_signals();
  vrdma::vrdmad::WorkerBounds bounds{options.cgroup, options.worker_users};
  if (options.single) bounds = {"none", 0};
  // First, because the broker may need the run directory at its start.
  for (const auto& directory : directories_of(run_path, state_path))
    if (auto given = vrdma::vrdmad::give(directory, user); !given) return given;
  auto helpers = vrdma::vrdmad::start_helpers(user, run_path, bounds, kRequests);
  if (!helpers) return vrdma::base::pass(std::move(helpers.error()));
  const auto& [intake, stopper, broker] = *helpers;
  Fd metrics_process;
  if (options.metrics.is_remote()) {
    auto started = vrdma::vrdmad::start_metrics_process(
        options.metrics.address, options.metrics.files, [&user = user]() -> Result<void> {
          if (auto dropped = vrdma::vrdmad::drop_privileges(user); !dropped) return dropped;
          (void)vrdma::vrdmad::confine_metrics();  // control says if there are no filters
          return {};
        });
    if (!started) return vrdma::base::pass(std::move(started.error()));
    metrics_process = std::move(*started);
  }
  auto signals = catch_signals();
  if (!signals) return vrdma::base::pass(std::move(signals.error()));
  if (!options.audit_log.empty())
    if (auto given = vrdma::vrdmad::give_file(options.audit_log, user); !given) return given;
  if (auto guard = vrdma::transport::HoleGuard::start(); !guard)
    spdlog::warn("memory in place is reached like other memory, which is slower: {}",
                 guard.error().message());
  auto loop = vrdma::base::EventLoop::create();
  if (!loop) return vrdma::base::pass(std::move(loop.error()));
  auto monitor = vrdma::netns::Monitor::create(
      loop->get(), [broker = helpers->broker](int nsid, const std::string& name, uint32_t ifindex) {
        return broker->link(nsid, name, ifindex);
      });
  if (!monitor) return vrdma::base::pass(std::move(monitor.error()), "watch network namespaces");
  std::optional<vrdma::vrdmad::RunDir> run_dir;
  std::unique_ptr<vrdma::vrdmad::Store> store;
  std::unique_ptr<vrdma::vrdmad::Daemon> daemon;
  std::unique_ptr<vrdma::vrdmad::AdminServer> admin;
  vrdma::vrdmad::Scrapes scrapes(
      **loop, [&](std::function<void(std::vector<vrdma::vrdmad::CounterRow>)> then) {
        daemon->all_counters([&, then = std::move(then)](auto rows) {
          for (auto& row : admin->counters()) rows.push_back(std::move(row));
          then(std::move(rows));
        });
      });
  std::unique_ptr<vrdma::serve::HttpServer> metrics;
  std::unique_ptr<vrdma::vrdmad::RemoteMetrics> remote_metrics;
  if (metrics_process.valid()) {
    auto attached = vrdma::vrdmad::RemoteMetrics::attach(
        **loop, std::move(metrics_process), scrapes, [&options] {
          spdlog::error(
              "the metrics process has ended: there are no metrics at {} until vrdmad is "
              "started again",
              options.metrics.address);
        });
    if (!attached) return vrdma::base::pass(std::move(attached.error()));
    remote_metrics = std::move(*attached);
  } else if (!options.metrics.address.empty()) {  // root can bind its socket anywhere
    auto serving = vrdma::vrdmad::serve_metrics(**loop, options.metrics.address, scrapes);
    if (!serving) return vrdma::base::pass(std::move(serving.error()));
    metrics = std::move(*serving);
  }
  for (const auto& capability : vrdma::vrdmad::missing_capabilities())
    spdlog::warn("the capability {} is missing: operations that need it will fail", capability);
  if (auto dropped = vrdma::vrdmad::drop_privileges(user); !dropped) return dropped;
  if (auto confined = vrdma::vrdmad::confine_system_calls(); !confined)
    spdlog::warn("all system calls remain allowed: {}", confined.error().message());
  auto audit = vrdma::vrdmad::open_audit(options.audit_log);
  if (!audit) return vrdma::base::pass(std::move(audit.error()));
  auto stored = vrdma::vrdmad::Store::open(state_path);
  if (!stored) return vrdma::base::pass(std::move(stored.error()));
  store = std::move(*stored);
  auto locked = vrdma::vrdmad::RunDir::open(run_path);
  if (!locked) return vrdma::base::pass(std::move(locked.error()));
  run_dir.emplace(std::move(*locked));
  vrdma::vrdmad::SessionSettings settings;
  settings.grace_ms = static_cast<uint32_t>(options.grace * 1000);
  settings.park_grace = std::chrono::duration_cast<vrdma::base::Duration>(
      std::chrono::duration<double>(options.park_grace));
  settings.source_ports = options.source_ports;
  settings.intake = intake.get();
  settings.stopper = stopper.get();
  settings.broker = broker;
  const auto classes = std::make_shared<vrdma::api::ClassFile>(options.classes);
  auto workers = worker_options(options);
  workers.events = state_path + "/events";
  auto started = vrdma::vrdmad::Daemon::start(
      **loop, *run_dir, *store, settings, workers,
      {std::move(*monitor), std::make_unique<vrdma::vrdmad::StoreThread>(*store),
       options.single ? vrdma::vrdmad::worker_threads(**loop, broker)
                      : vrdma::vrdmad::worker_processes(**loop, broker, intake.get()),
       std::make_unique<vrdma::vrdmad::HostProcesses>(**loop),
       std::make_unique<vrdma::vrdmad::AsideThread>()},
      classes);
  if (!started) return vrdma::base::pass(std::move(started.error()));
  daemon = std::move(*started);
  auto checkpoints =
      vrdma::vrdmad::CheckpointServer::start(**loop, *daemon, run_dir->checkpoint_socket(), *audit);
  if (!checkpoints) return vrdma::base::pass(std::move(checkpoints.error()));
  auto welcoming = vrdma::vrdmad::AdminServer::start(**loop, *daemon, run_dir->admin_socket(),
                                                     std::move(*audit));
  if (!welcoming) return vrdma::base::pass(std::move(welcoming.error()));
  admin = std::move(*welcoming);
  auto hooks = vrdma::vrdmad::HookServer::start(
      *daemon, {run_dir->path(), run_dir->hook_socket(), classes, intake.get(), broker});
  if (!hooks) return vrdma::base::pass(std::move(hooks.error()));
  const auto stop_all = [&] {
    (*hooks)->stop(**loop,
                   [&] { (*checkpoints)->stop([&] { admin->stop([&] { (*loop)->stop(); }); }); });
  };

  auto stop = (*loop)->watch(signals->get(), EPOLLIN, [&](uint32_t) {
    signalfd_siginfo info{};
    if (::read(signals->get(), &info, sizeof info) != sizeof info) return;
    spdlog::info("stopping");
    ::sd_notify(0, "STOPPING=1");
    stop_all();
  });
  if (!stop) return vrdma::base::pass(std::move(stop.error()));
  // New ones need root's privileges. The next daemon takes over all sessions.
  std::string lame;
  const auto stop_without = [&](const std::string& process) {
    spdlog::error("the {} process has ended: stopping, so that the next vrdmad takes over",
                  process);
    lame = process;
    stop_all();
  };
  auto attentive = intake->watch(**loop, [&] { stop_without("intake"); });
  if (!attentive) return vrdma::base::pass(std::move(attentive.error()));
  auto served = broker->watch(**loop, [&] { stop_without("broker"); });
  if (!served) return vrdma::base::pass(std::move(served.error()));
  auto held = stopper->watch(**loop, [&] { stop_without("stopper"); });
  if (!held) return vrdma::base::pass(std::move(held.error()));
  warn_of_descriptors(descriptors);
  spdlog::info("vrdmad {} is ready in {}", VRDMA_VERSION, run_dir->path());
  ::sd_notify(0, "READY=1");
  (*loop)->run();
  if (!lame.empty()) return vrdma::base::fail(EPIPE, "the " + lame + " process has ended");
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  vrdma::base::fill_standard_streams(true);
  Options options;
  if (const int status = parse(argc, argv, &options); status != 0) return status < 0 ? 0 : status;
  using vrdma::vrdmad::LogFormat;
  vrdma::vrdmad::start_log(options.log_format == "json" ? LogFormat::kJson : LogFormat::kText,
                           spdlog::level::from_str(options.log_level));
  auto result = run(options);
  if (result) return 0;
  std::cerr << "vrdmad: " << result.error().message() << "\n";
  return 1;
}
