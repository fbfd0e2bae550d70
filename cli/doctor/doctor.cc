#include "cli/doctor/doctor.h"

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>

#include "api/client.h"
#include "cli/doctor/library.h"
#include "cli/doctor/links.h"
#include "cli/doctor/loader.h"
#include "cli/doctor/peer.h"
#include "cli/doctor/port.h"
#include "cli/doctor/probe.h"
#include "cli/doctor/process.h"
#include "cli/exec.h"
#include "core/base/fd.h"
#include "provisioning/kind.h"

namespace vrdma::cli::doctor {

namespace {

using base::Result;

constexpr unsigned long long kAddressSpace = 10ull << 30;  // an open vdevice takes about 9 GiB

// What examine() knows about its subject.
struct Subject {
  std::string who;  // begins sentences: "process 42", "this process", "netns red"
  std::optional<Process> process;
  Place place;
};

class Examination {
 public:
  explicit Examination(const Question& question) : question_(question) {}

  Result<Findings> run() {
    if (auto known = identify(); !known) return base::pass(std::move(known).error());
    if (!question_.command.empty()) {
      if (auto done = look_at_command(); !done) return base::pass(std::move(done).error());
    } else if (subject_.process && question_.pid) {
      look_at_mapped();
    }
    choose_library();
    probe_ = probe(subject_.place);
    ask_daemon();
    judge_vdevices();
    judge_run_dir();
    judge_sockets();
    if (subject_.process && question_.netns.empty()) judge_process();
    judge_session();
    judge_memory();
    judge_quota();
    judge_links_of_vdevices();
    judge_port_of_network();
    if (question_.peer) judge_way_to(*question_.peer);
    return std::move(findings_);
  }

 private:
  void ok(const char* check, std::string text) { add(check, State::kOk, std::move(text), ""); }
  void unknown(const char* check, std::string text, std::string remedy = "") {
    add(check, State::kUnknown, std::move(text), std::move(remedy));
  }
  void problem(const char* check, std::string text, std::string remedy) {
    add(check, State::kProblem, std::move(text), std::move(remedy));
  }
  void add(const char* check, State state, std::string text, std::string remedy) {
    findings_.push_back({check, state, std::move(text), std::move(remedy)});
  }

  Result<void> identify() {
    subject_.place.run_dir = question_.run_dir;
    subject_.place.peer = question_.peer;
    if (!question_.netns.empty()) {
      subject_.who = "netns " + question_.netns;
      subject_.place.netns = netns_path(question_.netns);
      if (::access(subject_.place.netns.c_str(), F_OK) != 0)
        return base::fail_errno("there is no netns '" + question_.netns +
                                "': " + subject_.place.netns);
      return {};
    }
    if (question_.pid)
      subject_.place.life =
          base::Fd(static_cast<int>(::syscall(SYS_pidfd_open, *question_.pid, 0)));
    auto process = look_at_process(question_.pid.value_or(::getpid()));
    if (!process) return base::pass(std::move(process).error());
    subject_.process = std::move(*process);
    subject_.who =
        question_.pid ? "process " + std::to_string(*question_.pid) : "a program started here";
    if (!question_.pid) return {};
    Place& place = subject_.place;
    place.pid = *question_.pid;
    place.netns = "/proc/" + std::to_string(place.pid) + "/ns/net";
    place.uid = subject_.process->uids[1];
    place.gid = subject_.process->gids[1];
    if (!subject_.process->run_dir.empty()) place.run_dir = subject_.process->run_dir;
    return {};
  }

  // Lets the loader report what it would load, without starting the program.
  Result<void> look_at_command() {
    const std::string path = find_in_path(question_.command[0]);
    if (path.empty())
      return base::fail(ENOENT, "there is no program '" + question_.command[0] + "' in PATH");
    judge_privileges_of(path);
    const auto listed = list_libraries(path);
    if (!listed) {
      unknown("library",
              path + " is not readable by the user nobody, as whom root looks at programs",
              "examine it as its user, or start it, and examine it by its process id");
      return {};
    }
    const std::string& text = *listed;
    const Trace traced = parse_trace(text);
    for (const auto& complaint : traced.complaints)
      problem("loader", complaint,
              "the program does not start: use libraries of a matching release");
    if (!traced.library.empty()) {
      add_library(traced.library, content_of(traced.library), "would be loaded");
      return {};
    }
    if (text.find("=>") == std::string::npos) {
      unknown("library", path + " is a script or statically linked: what it loads is unknown",
              "start it, and examine it by its process id");
      return {};
    }
    ok("library",
       path +
           " is not linked with libibverbs.so.1; if it loads that at run time, it gets the "
           "first one in LD_LIBRARY_PATH");
    judge_path();
    return {};
  }

  static std::string find_in_path(const std::string& name) {
    if (name.find('/') != std::string::npos) return ::access(name.c_str(), X_OK) == 0 ? name : "";
    const char* const path = std::getenv("PATH");
    std::string left = path != nullptr ? path : "/usr/bin:/bin";
    for (size_t begin = 0; begin <= left.size();) {
      const size_t end = std::min(left.find(':', begin), left.size());
      const std::string file = left.substr(begin, end - begin) + "/" + name;
      if (::access(file.c_str(), X_OK) == 0) return file;
      begin = end + 1;
    }
    return {};
  }

  // With set-user-id or file capabilities the loader ignores LD_LIBRARY_PATH.
  void judge_privileges_of(const std::string& path) {
    struct stat status {};
    if (::stat(path.c_str(), &status) != 0) return;
    const bool set_id = (status.st_mode & (S_ISUID | S_ISGID)) != 0;
    const bool capabilities = ::getxattr(path.c_str(), "security.capability", nullptr, 0) > 0;
    if (set_id || capabilities)
      problem(
          "privileges",
          path + " gains " + (set_id ? "ids (set-user-id or set-group-id)" : "capabilities") +
              " when it is started, so the loader ignores LD_LIBRARY_PATH and vrdmad refuses it",
          set_id ? "start a copy without that bit" : "setcap -r a copy of it");
  }

  // For programs that load the library by name.
  void judge_path() {
    const char* const variable = std::getenv("LD_LIBRARY_PATH");
    std::string left = variable != nullptr ? variable : "";
    while (!left.empty()) {
      const size_t end = std::min(left.find(':'), left.size());
      const std::string file = left.substr(0, end) + "/libibverbs.so.1";
      if (::access(file.c_str(), R_OK) == 0)
        return add_library(file, content_of(file), "would be loaded by name");
      left.erase(0, end + 1);
    }
    const auto own = library_dir();
    problem(
        "library",
        "LD_LIBRARY_PATH contains no libibverbs.so.1, and the system's does not support vdevices",
        "start the program by 'vrdmactl exec', or with LD_LIBRARY_PATH=" +
            (own ? *own : std::string("the directory of vrdma's libraries")));
  }

  void look_at_mapped() {
    const Process& process = *subject_.process;
    if (process.maps.empty())
      return unknown("library", "this user may not read what " + subject_.who + " has mapped",
                     remedy_of_refusal());
    const auto mapped = mapped_libraries(process.maps);
    const std::string root = "/proc/" + std::to_string(process.pid) + "/root";
    std::vector<std::string> contents;
    for (const auto& path : mapped) contents.push_back(content_of(path, root));
    const bool has_drop_in = std::any_of(contents.begin(), contents.end(), is_drop_in);
    for (size_t i = 0; i < mapped.size(); ++i) {
      if (has_drop_in && !is_drop_in(contents[i]) &&
          mapped[i].find("/libibverbs.so.1") != std::string::npos)
        ok("library", "mapped: " + mapped[i] + ", which vrdma's library loads too, for adapters");
      else
        add_library(mapped[i], contents[i], "mapped");
    }
    if (mapped.empty())
      unknown("library", subject_.who + " has no libibverbs mapped (now)",
              "some programs load it on demand: run doctor again then, or with -- COMMAND");
  }

  void add_library(const std::string& path, const std::string& content, const std::string& how) {
    findings_.push_back(judge_library(path, content, how));
    if (findings_.back().state == State::kOk && content == installed_) is_installed_ = true;
  }

  // The library beside this program. The library of the examined program is read but never loaded:
  // its code would run with the rights of this user, and anybody may have written it.
  void choose_library() {
    if (!installed_.empty()) subject_.place.library = *library_dir() + "/libibverbs.so.1";
  }
  static std::string installed_library() {
    const auto dir = library_dir();
    return dir ? content_of(*dir + "/libibverbs.so.1") : std::string();
  }

  void ask_daemon() {
    auto client = api::Client::connect(question_.run_dir);
    if (!client) return judge_silence(client.error());
    auto version = client->version();
    if (!version) return judge_silence(version.error());
    ok("daemon", "vrdmad " + version->version() + " serves " + question_.run_dir);
    if (auto all = client->list_vdevs(); all) {
      vdevs_ = std::move(*all);
      asked_ = true;
    }
    client_.emplace(std::move(*client));
  }

  void judge_silence(const base::Error& error) {
    if (error.code() == EACCES)
      return unknown("daemon", "only root may query vrdmad in " + question_.run_dir,
                     remedy_of_refusal());
    problem("daemon", error.message(),
            "start vrdmad, or name its run directory with --run-dir or VRDMA_RUN_DIR");
  }

  [[nodiscard]] std::vector<const v1::Vdev*> own_vdevs() const {
    std::vector<const v1::Vdev*> own;
    for (const auto& vdev : vdevs_)
      if (probe_.cookie != 0 && vdev.netns_cookie() == probe_.cookie) own.push_back(&vdev);
    return own;
  }

  void judge_vdevices() {
    if (!probe_.failed.empty())
      return unknown("vdevice", "cannot probe from " + subject_.who + ": " + probe_.failed,
                     remedy_of_refusal());
    if (!asked_) {
      if (probe_.sockets > 0)
        ok("vdevice",
           std::to_string(probe_.sockets) + " in the network namespace of " + subject_.who);
      else
        unknown("vdevice", "none is visible in the network namespace of " + subject_.who,
                remedy_of_silence());
      return;
    }
    const auto own = own_vdevs();
    for (const auto* vdev : own) {
      if (vdev->lost().empty())
        ok("vdevice", vdev->name() + " on " + vdev->netdev() + ", port " + vdev->port_state());
      else
        problem("vdevice", vdev->name() + " is lost: " + vdev->lost(),
                "recreate that, or 'vrdmactl vdev delete " + vdev->name() + "'");
      if (vdev->lost().empty() && vdev->gids().empty())
        problem("gids",
                vdev->name() + " has no GID, because " + vdev->netdev() +
                    " has no address that it may use",
                "add an address with ip-address(8), or see --addresses in vrdmactl(8)");
    }
    if (!own.empty()) return;
    std::string others;
    for (const auto& vdev : vdevs_)
      others += (others.empty() ? "" : ", ") + vdev.name() + " (netns " + vdev.netns() + ")";
    const std::string make =
        "'vrdmactl vdev create NAME --netns " + netns_words() + " --netdev DEV'";
    problem("vdevice", "there is none in the network namespace of " + subject_.who,
            others.empty() ? "create one: " + make
                           : "run it where one exists: " + others + ", or create one: " + make);
  }

  // The kernel let this user not look.
  static std::string remedy_of_refusal() {
    return ::geteuid() == 0
               ? "run doctor on the host, with all capabilities, some of which this root lacks"
               : "run doctor as root";
  }
  // The daemon was not asked.
  static std::string remedy_of_silence() {
    return ::geteuid() == 0 ? "run doctor again when vrdmad serves" : remedy_of_refusal();
  }

  [[nodiscard]] std::string netns_words() const {
    if (!question_.netns.empty()) return question_.netns;
    // $$: the shell's, into which the remedy is copied.
    return question_.pid ? "pid:" + std::to_string(*question_.pid) : "pid:$$";
  }

  // Without a vdevice, the later checks have nothing to examine.
  [[nodiscard]] bool expects_socket() const {
    if (!probe_.failed.empty()) return false;
    if (!asked_) return probe_.sockets > 0;
    const auto own = own_vdevs();
    return std::any_of(own.begin(), own.end(),
                       [](const auto* vdev) { return vdev->lost().empty(); });
  }

  void judge_run_dir() {
    if (!expects_socket()) return;
    const std::string& run_dir = subject_.place.run_dir;
    const std::string directory = run_dir + "/netns/" + std::to_string(probe_.cookie);
    if (probe_.sockets > 0) return ok("rundir", directory + " exists");
    if (!probe_.run_dir_seen)
      return problem("rundir", run_dir + "/netns does not exist as seen by " + subject_.who,
                     "mount " + question_.run_dir +
                         "/netns there (read-only suffices), or set "
                         "VRDMA_RUN_DIR to its location");
    problem("rundir",
            run_dir + "/netns as seen by " + subject_.who +
                " exists, but has no sockets of its vdevices",
            probe_.directory_seen ? "mount all of " + question_.run_dir +
                                        "/netns, not a directory in it, because that is "
                                        "replaced when vrdmad restarts"
                                  : "it belongs to another daemon, or is empty: mount " +
                                        question_.run_dir + "/netns");
  }

  void judge_sockets() {
    if (!expects_socket() || probe_.sockets == 0) return;
    switch (probe_.connect_error) {
      case 0:
        return ok("socket", "vrdmad can be reached");
      case EACCES:
        return problem("socket", "cannot connect: Permission denied",
                       "permit every user to enter the run directory, also in SELinux or AppArmor");
      case ECONNREFUSED:
        return problem("socket", "no process answers: vrdmad has ended", "start it again");
      default:
        return problem("socket",
                       std::string("cannot be reached: ") + std::strerror(probe_.connect_error),
                       "see unix(7)");
    }
  }

  void judge_process() {
    const Process& process = *subject_.process;
    const auto differ = [](const std::array<unsigned, 4>& ids) {
      return std::any_of(ids.begin(), ids.end(), [&](unsigned id) { return id != ids[0]; });
    };
    if (question_.pid) {
      if (process.secure.value_or(false) || differ(process.uids) || differ(process.gids))
        problem("privileges",
                subject_.who +
                    " gained ids or capabilities when it was started, or changed some of its "
                    "ids: vrdmad refuses it (EACCES)",
                "start it as the intended user, without set-user-id bits and file "
                "capabilities");
      else if (process.secure)
        ok("privileges", "exec gained none");
      else
        unknown("privileges", "this user may not read whether exec gained some",
                remedy_of_refusal());
      if (process.user_namespace.empty())
        unknown("userns", "not readable by this user", remedy_of_refusal());
      else if (const auto own = look_at_process(::getpid());
               own && own->user_namespace != process.user_namespace)
        ok("userns",
           "differs from this process's: direct links only join processes of one user "
           "namespace, other traffic is mediated");
      else
        ok("userns", "the same as this process's");
    }
    judge_filter();
    if (process.address_space && *process.address_space < kAddressSpace)
      problem("ulimit",
              "ulimit -v is " + std::to_string(*process.address_space >> 10) +
                  " KiB, and an open vdevice takes about 9 GiB of address space",
              "ulimit -v unlimited");
  }

  // The kernel shows that a process has a filter, and not what the filter forbids.
  void judge_filter() {
    const Process& process = *subject_.process;
    const std::string forbids =
        "so what it registers is reached, not put in place, which is slower";
    const std::string remedy =
        "give the container a profile that permits it, see seccomp in vrdmactl(8)";
    if (!question_.pid) {  // a program started here has this process's filter
      const base::Fd watched(
          static_cast<int>(::syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY)));
      if (watched.valid())
        ok("seccomp", subject_.who + " may call userfaultfd(2), so memory can be put in place");
      else if (process.seccomp_filter)
        add("seccomp", State::kOk,
            subject_.who + " has a filter, and may not call userfaultfd(2), " + forbids, remedy);
      else
        add("seccomp", State::kOk,
            subject_.who + " may not call userfaultfd(2) (" + std::strerror(errno) + "), " +
                forbids,
            "see userfaultfd(2)");
    } else if (process.seccomp_filter && process.watches_memory) {
      ok("seccomp", subject_.who + " has a filter, which permits userfaultfd(2): it uses that");
    } else if (process.seccomp_filter) {
      unknown("seccomp",
              subject_.who +
                  " has a filter, and whether that permits userfaultfd(2) is not known: those of "
                  "container engines do not, " +
                  forbids,
              "run doctor in the container without a process id, or see seccomp in vrdmactl(8)");
    }
  }

  // The library and the daemon have tried to open it.
  void judge_session() {
    if (!expects_socket() || probe_.sockets == 0 || subject_.place.library.empty()) return;
    if (judge_workers()) return;
    if (!probe_.said.empty()) return problem("session", probe_.said, remedy_of_session());
    if (!probe_.unopened.empty())
      return problem("session", "cannot open " + probe_.unopened.front(), "see the log of vrdmad");
    if (probe_.devices.empty())
      return problem("session", "the library lists no device", "see the log of vrdmad");
    if (probe_.opened.size() < probe_.devices.size())
      return problem("session",
                     "vrdmad has not answered the open of " + probe_.devices[probe_.opened.size()] +
                         " within " + std::to_string(kPatienceSeconds) + " seconds",
                     "see the log of vrdmad");
    std::string names;
    for (const auto& name : probe_.devices) names += (names.empty() ? "" : ", ") + name;
    ok("session", "the library of " +
                      std::string(is_installed_ ? "this program" : "this installation") +
                      " and vrdmad speak the same protocol version; it opens " + names);
  }
  // True: a vdevice has none, as the attempt to open it has shown.
  bool judge_workers() {
    bool found = false;
    for (const auto* vdev : own_vdevs())
      if (!vdev->unserved().empty()) {
        problem("worker",
                "vrdmad cannot serve programs of " + vdev->name() + ": " + vdev->unserved(),
                "give vrdmad what it lacks there; programs cannot open the vdevice until then");
        found = true;
      }
    return found;
  }
  [[nodiscard]] std::string remedy_of_session() const {
    return probe_.said.find("protocol") != std::string::npos
               ? "give the program the libraries of this vrdmad"
               : "see the log of vrdmad";
  }

  // client/device/memory/table.h has the rules.
  void judge_memory() {
    if (question_.pid && is_installed_) {
      const Process& process = *subject_.process;
      const std::string& wish = process.memory;
      if (!wish.empty() && wish != "reached" && wish != "in-place")
        problem("memory", subject_.who + " has VRDMA_MEMORY=" + wish + ", which means nothing",
                "set it to reached or in-place, or not at all");
      if (wish == "reached")
        ok("memory", subject_.who +
                         " has VRDMA_MEMORY=reached: what it registers is reached, not put in "
                         "place, which is slower");
      else if (process.watches_memory)
        ok("memory", subject_.who +
                         " has registered memory in place; its thread vrdma-memory sees by "
                         "userfaultfd(2) what changes it");
      else
        unknown("memory",
                subject_.who +
                    " has no memory in place: whether it has registered none, or what it "
                    "has registered is reached, is not known",
                "'vrdmactl vdev show' counts the regions that are reached, by reason");
    }
    for (const auto* vdev : own_vdevs()) {
      std::string reasons;
      uint64_t unseen = 0;
      for (const auto& row : vdev->reached()) {
        reasons +=
            (reasons.empty() ? "" : ", ") + row.reason() + " " + std::to_string(row.regions());
        if (row.reason() == "unseen") unseen = row.regions();
      }
      if (!reasons.empty())
        ok("memory", vdev->name() +
                         " has regions that are reached, not in place, which is slower: " +
                         reasons + " (regions, by reason)");
      if (unseen > 0)
        unknown("memory",
                std::to_string(unseen) + " regions of " + vdev->name() +
                    " are or were reached because their programs could not call userfaultfd(2) "
                    "(unseen); which programs, and whether they still run, is not known",
                "a container's seccomp profile may forbid it, see seccomp and --allow userfaultfd "
                "in vrdmactl(8)");
    }
  }

  // What a limit has refused or delayed so far.
  void judge_quota() {
    for (const auto* vdev : own_vdevs()) {
      const auto counters = client_->counters("id:" + std::to_string(vdev->id()));
      if (!counters) continue;
      for (const auto& row : vdev->quota())
        for (const auto& counter : *counters)
          if (counter.name() == "quota_refused_" + row.kind() && counter.value() > 0)
            judge_refusals(*vdev, row, counter.value());
    }
  }
  void judge_refusals(const v1::Vdev& vdev, const v1::Quota& row, uint64_t refused) {
    const auto kind = provisioning::find_kind(row.kind());
    const bool rate = kind && provisioning::traits(*kind).measure == provisioning::Measure::kRate;
    const std::string text = vdev.name() + " has " + (rate ? "delayed " : "refused ") + row.kind() +
                             " " + std::to_string(refused) + " times; " +
                             std::to_string(row.used()) + " of " + std::to_string(row.limit()) +
                             " are in use";
    const std::string remedy = "'vrdmactl quota set " + vdev.name() + " " + row.kind() + "=" +
                               std::to_string(2 * row.limit()) + "' gives it more";
    if (!rate && row.used() >= row.limit())
      problem("quota", text, remedy);
    else
      add("quota", State::kOk, text, remedy);
  }

  void judge_links_of_vdevices() {
    for (const auto* vdev : own_vdevs())
      if (const auto all = client_->list_queue_pairs("id:" + std::to_string(vdev->id())))
        for (Finding& one : judge_links(vdev->name(), *all)) findings_.push_back(std::move(one));
  }

  void judge_port_of_network() {
    auto reaching = own_vdevs();
    std::erase_if(reaching, [](const v1::Vdev* vdev) { return vdev->reach() == "host"; });
    if (!reaching.empty() && probe_.port_taken)
      findings_.push_back(
          judge_port(reaching, *probe_.port_taken, ::access("/sys/module/rdma_rxe", F_OK) == 0));
  }

  void judge_way_to(const verbs::Gid& peer) {
    if (!asked_)
      return unknown("peer", "vrdmad has not told which vdevices there are", remedy_of_silence());
    if (expects_socket()) findings_.push_back(judge_peer(peer, own_vdevs(), vdevs_, probe_.way));
  }

  const Question& question_;
  Subject subject_;
  Findings findings_;
  const std::string installed_ = installed_library();  // its content; empty: not found
  bool is_installed_ = false;                          // the program has a copy of that library
  Probe probe_;
  std::vector<v1::Vdev> vdevs_;
  bool asked_ = false;                 // `vdevs_` is complete
  std::optional<api::Client> client_;  // while vrdmad answers; there, if `vdevs_` has one
};

}  // namespace

Result<Findings> examine(const Question& question) { return Examination(question).run(); }

}  // namespace vrdma::cli::doctor
