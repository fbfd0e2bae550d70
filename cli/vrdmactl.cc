// vrdmactl, the operator's command line. This file parses it; commands.h implements the commands.
//
// Exit status: 0 success, 1 the operation failed, 2 the command line is wrong, or doctor learned
// nothing; of exec that of the program, or 125 if it was not started. An error is one line on
// stderr.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <utility>

#include "api/classes.h"
#include "api/client.h"
#include "cli/cdi.h"
#include "cli/commands.h"
#include "core/base/option_check.h"
#include "core/base/printable.h"
#include "core/base/standard_streams.h"
#include "provisioning/kind.h"

namespace vrdma::cli {
namespace {

constexpr char kExecForm[] =
    "exec: give the program after --, as in 'vrdmactl exec NAME -- ibv_devinfo'";

using Command = Outcome (*)(const Options&, Output&);

// The grammar of the command line. The parsed leaf stores its function in command().
class Grammar {
 public:
  explicit Grammar(Options& options) : options_(options) {
    app_.name("vrdmactl");
    app_.footer("A vdevice is named by NAME, by NETNS/NAME if several have that name, or by id:N.");
    app_.require_subcommand(0, 1);  // run() checks that there is one
    app_.set_version_flag("--version", std::string("vrdmactl ") + VRDMA_VERSION);
    app_.add_option("--run-dir", options_.run_dir, "run directory of vrdmad")
        ->type_name("DIR")
        ->check(base::not_empty, "")
        ->capture_default_str();
    app_.add_option("-o,--output", format_, "table or json")
        ->check(base::one_of({"table", "json"}), "")
        ->type_name("FORMAT")
        ->capture_default_str();
    app_.add_flag("-j,--json", json_, "the same as -o json");
    add_vdev();
    add_quota();
    add_others();
  }

  CLI::App& app() { return app_; }
  // After an error of the command line. Empty: each word is known.
  [[nodiscard]] std::string on_unknown_word() {
    const auto words = app_.remaining(true);
    if (words.empty()) return {};
    const CLI::App* at = &app_;
    while (!at->get_subcommands().empty()) at = at->get_subcommands().front();
    if (at->get_name() == "exec") return kExecForm;
    const std::string first = base::in_quotes(words[0]);
    if (words[0].starts_with("-"))
      return "there is no option " + first + " in '" + at->get_name() + "'; see --help";
    std::string commands;
    for (const CLI::App* one : at->get_subcommands([](const CLI::App*) { return true; }))
      commands += (commands.empty() ? "" : ", ") + one->get_name();
    if (commands.empty())
      return first + " is one argument too many for '" + at->get_name() + "'; see --help";
    return "there is no command " + first + (at == &app_ ? "" : " in '" + at->get_name() + "'") +
           "; there are " + commands;
  }
  [[nodiscard]] Command command() const { return command_; }
  [[nodiscard]] bool json() const { return json_ || format_ == "json"; }

 private:
  // A word with subcommands. Global options may follow any word.
  CLI::App& group(const char* word, const char* help) {
    CLI::App* const sub = app_.add_subcommand(word, help);
    sub->require_subcommand(0, 1);
    sub->fallthrough();
    return *sub;
  }
  CLI::App& leaf(CLI::App& parent, const char* word, const char* help, Command action) {
    CLI::App* const sub = parent.add_subcommand(word, help);
    sub->fallthrough();
    sub->callback([this, action] { command_ = action; });
    return *sub;
  }
  CLI::Option& name(CLI::App& sub, const char* help) {
    return *sub.add_option("NAME", options_.name, help)->type_name("")->check(base::not_empty, "");
  }
  static CLI::Option& text(CLI::App& sub, const char* option, std::string& value, const char* type,
                           const char* help) {
    return *sub.add_option(option, value, help)->type_name(type)->check(base::not_empty, "");
  }
  CLI::Option& quota(CLI::App& sub, const char* option) {
    return quota(sub, option, options_.quota,
                 "limits, such as qp=64,mr_bytes=16g,bandwidth=10gbit (see quota --help)");
  }
  static CLI::Option& quota(CLI::App& sub, const char* option, std::vector<std::string>& into,
                            const char* help) {
    const auto check = [](const std::string& value) {
      if (value.empty()) return std::string("'' is not a quota such as qp=64");
      const auto parsed = provisioning::parse_settings(value);
      return parsed ? std::string() : parsed.error().message();
    };
    return *sub.add_option(option, into, help)->check(check, "")->type_name("KIND=N,...");
  }

  void add_vdev() {
    CLI::App& vdev = group("vdev", "create, show and delete vdevices");
    CLI::App& create = leaf(vdev, "create", "create a vdevice on a netdev", vdev_create);
    name(create, "name of the new vdevice").required();
    text(create, "--netns", options_.netns, "NS", "network namespace: name, path or pid:N")
        .required();
    text(create, "--netdev", options_.netdev, "DEV", "its interface in that namespace").required();
    text(create, "--parent", options_.parent, "PARENT", "resource that it is carved from (soft)");
    text(create, "--tenant", options_.tenant, "TENANT", "the tenant that it belongs to (its own)");
    text(create, "--fabric", options_.fabric, "FABRIC",
         "the fabric that it joins (the tenant's own)");
    quota(create, "--quota");
    create.add_option("--allow", options_.allow, "permissions, such as raw-packet (none)")
        ->delimiter(',')
        ->type_name("PERMISSION,...");
    create
        .add_option("--addresses", options_.addresses,
                    "prefixes that its GIDs must match, such as 10.0.0.0/24 (see vrdmactl(8))")
        ->delimiter(',')
        ->type_name("PREFIX,...");
    create.add_flag("--no-direct", options_.no_direct,
                    "let a worker of vrdmad execute all of its work");
    CLI::Option* const owner =
        create.add_option("--owner", options_.owner, "the process that owns it")
            ->check(base::number(1, 1 << 22, "a process id"), "")
            ->type_name("PID");
    create.add_flag("--end-with-owner", options_.end_with_owner, "delete it when its owner ends")
        ->needs(owner);
    create.add_option("--label", options_.labels, "a label to store with it, such as pod=web")
        ->type_name("KEY=VALUE");
    create.add_flag("--if-absent", options_.if_absent,
                    "succeed if it exists with the same options");
    create
        .add_option("--gid-layout", options_.gid_layout,
                    "the order of GID indices: dense or mlx5 (dense)")
        ->check(base::one_of({"dense", "mlx5"}), "")
        ->type_name("LAYOUT");
    CLI::App& list = leaf(vdev, "list", "list vdevices, one per line", vdev_list);
    list.alias("ls");
    name(list, "only this one");
    name(leaf(vdev, "show", "show all details", vdev_show), "only this one");
    CLI::App& remove = leaf(vdev, "delete", "delete vdevices", vdev_delete);
    remove.alias("rm");
    remove.add_option("NAME", options_.names, "vdevices")
        ->type_name("")
        ->check(base::not_empty, "")
        ->required();
  }

  void add_quota() {
    CLI::App& group_app = group("quota", "resource limits of vdevices");
    group_app.footer("Kinds, each with what its limit is:\n" + provisioning::help_on_kinds());
    CLI::App& show = leaf(group_app, "show", "show use and limits", quota_show);
    name(show, "only this vdevice");
    show.add_flag("--cgroup", options_.by_cgroup, "show the use by control group");
    CLI::App& set = leaf(group_app, "set", "change limits", quota_set);
    name(set, "vdevice").required();
    quota(set, "QUOTA").required();
  }

  void add_budget(CLI::App& of, const char* whose, Command show, Command set) {
    name(leaf(of, "show", "show defaults, ceilings, and how much is assigned", show),
         (std::string("only this ") + whose).c_str());
    CLI::App& change = leaf(of, "set", "change defaults and ceilings", set);
    name(change, whose).required();
    quota(change, "--default", options_.defaults, "limits of a vdevice without --quota");
    quota(change, "--ceiling", options_.ceilings,
          "limits of all its vdevices together (max: none)");
    change
        .add_option("--overcommit", options_.overcommit,
                    "percent of a ceiling that may be assigned to vdevices (100)")
        ->transform(
            [](std::string text) {
              if (text.ends_with('%')) text.pop_back();
              return text;
            },
            "")
        ->check(base::number(100, 100'000, "100 to 100000 percent"), "")
        ->type_name("PERCENT");
  }

  void add_others() {
    name(leaf(group("gid", "addresses"), "list", "list the GID tables", gid_list),
         "only this vdevice");
    add_budget(group("tenant", "defaults and ceilings of tenants"), "tenant", tenant_show,
               tenant_set);
    CLI::App& fabric = group("fabric", "domains of addresses");
    name(leaf(fabric, "list", "list the fabrics", fabric_list), "only this fabric");
    CLI::App& change =
        leaf(fabric, "set", "change the reach and the peers of a fabric", fabric_set);
    name(change, "fabric").required();
    change
        .add_option(
            "--reach", options_.reach,
            "the peers that its vdevices may have: those on this host, or also others; wire: "
            "all of them by the network")
        ->check(base::one_of({"host", "network", "wire"}), "")
        ->type_name("host|network|wire");
    change
        .add_option("--peers", options_.peers,
                    "addresses that its vdevices may send to and hear from on the network, such "
                    "as 10.0.0.0/8; or all")
        ->delimiter(',')
        ->type_name("PREFIX,...|all");
    CLI::App& parent = group("parent", "resources that vdevices are carved from");
    leaf(parent, "list", "list the parents", parent_list);
    add_budget(parent, "parent", parent_show, parent_set);
    leaf(group("class", "what containers may have"), "list",
         "list the classes, and how many vdevices of each containers have", class_list);
    CLI::App& claim = group("claim", "what pods of Kubernetes were promised");
    leaf(claim, "list", "list the claims, and how many vdevices containers have by each share",
         claim_list);
    CLI::App& revoke = leaf(claim, "delete", "delete a claim", claim_delete);
    revoke.add_option("UID", options_.name, "its uid")
        ->type_name("")
        ->check(base::not_empty, "")
        ->required();
    revoke.add_flag("--force", options_.force,
                    "also the vdevices that containers have by it, while they run");
    CLI::App& conn = group("conn", "connections of rdma_cm");
    name(leaf(conn, "list", "list connections and listeners", conn_list), "only of this vdevice");
    name(leaf(conn, "stats", "show message counters", conn_stats), "only this vdevice, or daemon");
    CLI::App& qp = group("qp", "queue pairs of programs");
    name(leaf(qp, "list", "list queue pairs, and how they get on", qp_list),
         "only of this vdevice");
    name(leaf(app_, "stats", "show counters of the daemon and its vdevices", stats),
         "only this vdevice, daemon, or tenant/NAME");
    CLI::App& live = leaf(app_, "top", "show the activity of each vdevice; q ends", top);
    live.add_flag("--once", options_.once, "measure once and end");
    live.add_option("--interval", options_.interval, "interval of measurements")
        ->check(base::number(0.05, 3600, "0.05 to 3600 seconds"), "")
        ->type_name("SECONDS")
        ->capture_default_str();
    leaf(app_, "watch", "print creation, change and deletion of vdevices", watch);
    CLI::App& run = leaf(app_, "exec", "run a program in a vdevice's network namespace", exec);
    name(run, "vdevice").required();
    run.footer("The program and its arguments follow --: vrdmactl exec NAME -- CMD...");
    CLI::App& sick =
        leaf(app_, "doctor", "find out why a program sees no vdevice, or no peer", diagnose);
    sick.add_option("PID", options_.name, "process id")->type_name("");
    text(sick, "--netns", options_.netns, "NS", "a network namespace: name, path or pid:N");
    text(sick, "--to", options_.peer, "ADDRESS", "a peer that its vdevices should reach");
    sick.footer("Or a program after --, which is not run: vrdmactl doctor -- CMD...");
    add_cdi();
    leaf(app_, "env", "print what a shell needs to run programs on vdevices", environment)
        .footer("In the shell: eval \"$(vrdmactl env)\"");
    leaf(app_, "version", "show the versions of vrdmactl and the daemon", version);
    app_.add_subcommand("help", "print this help message, or that of a command");
    leaf(group("completion", "shell completion"), "bash", "print the script", completion_bash);
  }

  void add_cdi() {
    CLI::App& generate = leaf(group("cdi", "classes of vdevices for container engines"), "generate",
                              "write the CDI specification", cdi_generate);
    // Instead of the global option of that name.
    text(generate, "-o,--output", options_.file, "FILE", "where to; - is standard output")
        .capture_default_str();
    text(generate, "--classes", options_.classes, "FILE", "the classes of vdevices")
        .capture_default_str()
        ->check(CLI::ExistingFile);
  }

  CLI::App app_{"drives vrdmad, the daemon of virtual RDMA devices"};
  Options& options_;
  std::string format_ = "table";
  bool json_ = false;
  Command command_ = nullptr;
};

// Cuts "exec NAME -- CMD..." and "doctor -- CMD..." at the first "--"; this program does not parse
// what follows.
std::vector<std::string> cut_command(int& argc, char** argv) {
  bool taken = false;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    taken = taken || word == "exec" || word == "doctor";
    if (!taken || word != "--") continue;
    std::vector<std::string> command(argv + i + 1, argv + argc);
    argc = i;
    return command;
  }
  return {};
}

// "help quota" is "quota --help".
void ask_for_help(std::vector<std::string>& words) {
  for (auto word = words.begin(); word != words.end(); ++word) {
    if (*word == "help") {
      words.erase(word);
      words.emplace_back("--help");
      return;
    }
    const bool has_value = *word == "--run-dir" || *word == "-o" || *word == "--output";
    if (!word->starts_with("-") || (has_value && ++word == words.end())) return;
  }
}

// Prints one line, whatever characters an operator or the daemon put into it.
int complain(std::string sentence, int status) {
  std::replace_if(
      sentence.begin(), sentence.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; }, '?');
  std::cerr << "vrdmactl: " << sentence << '\n';
  return status;
}

// As timeout(1) and docker-run(1), so that it is not taken for the program's.
int failed_status(Command command, const base::Error& error) {
  constexpr int kNotStarted = 125;
  if (command == exec) return kNotStarted;
  return command == diagnose && error.code() == EAGAIN ? 2 : 1;
}

int run(int argc, char** argv) {
  Options options;
  options.run_dir = api::default_run_dir();
  options.file = kCdiFile;
  options.classes = api::kClassesFile;
  options.command = cut_command(argc, argv);
  for (int i = 1; i < argc; ++i)
    if (!base::is_utf8(argv[i])) return complain(base::in_quotes(argv[i]) + " is not UTF-8", 2);
  std::vector<std::string> words(argv + 1, argv + argc);
  ask_for_help(words);
  std::reverse(words.begin(), words.end());  // as CLI11 wants it
  Grammar grammar(options);
  try {
    grammar.app().parse(words);
  } catch (const CLI::Success& wanted) {  // ends by --help or --version
    if (const std::string sentence = grammar.on_unknown_word(); !sentence.empty())
      return complain(sentence, 2);
    const int status = grammar.app().exit(wanted);
    return std::cout.flush() ? status : complain("cannot write the output", 1);
  } catch (const CLI::ParseError& wrong) {
    // CLI11 misses an argument before it names the word that is too many.
    const std::string sentence = grammar.on_unknown_word();
    return complain(sentence.empty() ? wrong.what() : sentence, 2);
  }
  // Checked here, because CLI11 reports an unknown word in the same way.
  if (grammar.command() == nullptr) return complain("a command is missing; see --help", 2);
  if (grammar.command() == exec && (options.command.empty() || options.command[0].empty()))
    return complain(kExecForm, 2);
  if (grammar.command() != exec && grammar.command() != diagnose && !options.command.empty())
    return complain("only exec and doctor take a program after --", 2);

  options.format = grammar.json() ? Format::kJson : Format::kTable;
  Output output(std::cout, options.format);
  if (auto outcome = grammar.command()(options, output); !outcome)
    return complain(outcome.error().message(), failed_status(grammar.command(), outcome.error()));
  if (!std::cout.flush())
    return complain(grammar.command() == vdev_create
                        ? "the vdevice was created, but vrdmactl cannot write the output"
                        : "cannot write the output",
                    1);
  return 0;
}

}  // namespace
}  // namespace vrdma::cli

int main(int argc, char** argv) {
  vrdma::base::fill_standard_streams(false);
  return vrdma::cli::run(argc, argv);
}
