#include "cli/grammar.h"

#include <algorithm>
#include <cctype>

#include "cli/events.h"
#include "cli/top_rows.h"
#include "core/base/option_check.h"
#include "core/base/option_sentence.h"
#include "core/serve/http.h"
#include "provisioning/kind.h"

namespace vrdma::cli {

namespace {

constexpr char kExecForm[] =
    "exec: give the program after --, as in 'vrdmactl exec NAME -- ibv_devinfo'";

std::string upper(std::string text) {
  for (char& c : text) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return text;
}

std::string no_label(const std::string& text) {
  return text.empty() || text[0] == '=' ? base::in_quotes(text) + " is not KEY or KEY=VALUE" : "";
}

std::string no_time(const std::string& text) {
  return time_of(text, 0) ? ""
                          : base::in_quotes(text) +
                                " is no time such as 10m, 2h, 2026-11-29 or '2026-11-29 10:05'";
}

// No other host may reach the page, because it has no TLS.
std::string no_page_address(const std::string& text) {
  using serve::HttpServer;
  if (HttpServer::check(text, HttpServer::Reach::kHost) && !HttpServer::path_of(text)) return "";
  return base::in_quotes(text) +
         " is not 127.0.0.1:PORT or [::1]:PORT; from another host, reach the page by ssh -L";
}

// The words that lead to a command: "vdev list".
std::string path_of(const CLI::App* app) {
  std::string path;
  for (; app->get_parent() != nullptr; app = app->get_parent())
    path = app->get_name() + (path.empty() ? "" : " ") + path;
  return path;
}

std::vector<const CLI::App*> commands_of(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App*) { return true; });
}

// Of a group, the first example of its first commands, or both of its only one.
std::vector<std::string> examples_of(const CLI::App& app) {
  if (const auto own = examples().find(path_of(&app)); own != examples().end()) return own->second;
  std::vector<std::string> two;
  for (const CLI::App* one : commands_of(app)) {
    const auto its = examples_of(*one);
    two.insert(two.end(), its.begin(), its.end());
    if (commands_of(app).size() > 1 && its.size() > 1) two.pop_back();
  }
  if (two.size() > 2) two.resize(2);
  return two;
}

}  // namespace

std::vector<std::string> cut_command(std::vector<std::string>& words) {
  bool taken = false;
  for (auto word = words.begin(); word != words.end(); ++word) {
    taken = taken || *word == "exec" || *word == "doctor";
    if (!taken || *word != "--") continue;
    std::vector<std::string> command(word + 1, words.end());
    words.erase(word, words.end());
    return command;
  }
  return {};
}

Grammar::Grammar(Options& options) : options_(options) {
  app_.name("vrdmactl");
  app_.footer(
      "A vdevice is named by NAME, by NETNS/NAME if several have that name, by id:N, by "
      "container:PREFIX or by NAMESPACE/POD.");
  app_.require_subcommand(0, 1);  // mistake() says that there is none
  app_.set_version_flag("--version", std::string("vrdmactl ") + VRDMA_VERSION);
  app_.add_option("--run-dir", options_.run_dir, "run directory of vrdmad")
      ->type_name("DIR")
      ->check(base::not_empty, "")
      ->capture_default_str();
  choice(app_, "-o,--output", format_, {"table", "json"}, "table or json")
      .type_name("FORMAT")
      ->capture_default_str();
  app_.add_flag("-j,--json", json_, "the same as -o json");
  add_vdev();
  add_quota();
  add_objects();
  add_rows();
  add_live();
  add_checkpoint();
  add_programs();
  add_files();
  add_cdi();
  add_help();
}

void Grammar::parse(std::vector<std::string> words) {
  for (auto word = words.begin(); word != words.end(); ++word) {
    if (*word == "help") {
      words.erase(word);
      words.emplace_back("--help");
      break;
    }
    const bool has_value = *word == "--run-dir" || *word == "-o" || *word == "--output";
    if (!word->starts_with("-") || (has_value && ++word == words.end())) break;
  }
  std::reverse(words.begin(), words.end());  // as CLI11 wants it
  app_.parse(words);
}

namespace {

std::string names_of(const CLI::App& app) {
  std::string names;
  for (const CLI::App* one : commands_of(app))
    names += (names.empty() ? "" : ", ") + one->get_name();
  return names;
}

}  // namespace

std::string Grammar::on_unknown_word() {
  const auto words = app_.remaining(true);
  if (words.empty()) return {};
  const CLI::App* at = &app_;
  while (!at->get_subcommands().empty()) at = at->get_subcommands().front();
  if (at->get_name() == "exec") return kExecForm;
  const std::string first = base::in_quotes(words[0]);
  if (words[0].starts_with("-"))
    return base::sentence_of_unknown(*at, words[0], " in '" + at->get_name() + "'") +
           "; see --help";
  const std::string commands = names_of(*at);
  if (commands.empty())
    return first + " is one argument too many for '" + at->get_name() + "'; see --help";
  return "there is no command " + first + (at == &app_ ? "" : " in '" + at->get_name() + "'") +
         "; there are " + commands;
}

std::string Grammar::mistake() const {
  // Checked here, because CLI11 reports an unknown word in the same way.
  if (command_ == nullptr) {
    const auto groups = app_.get_subcommands();
    if (groups.empty()) return "a command is missing; there are " + names_of(app_);
    const CLI::App& group = *groups.front();
    return "the command of '" + group.get_name() + "' is missing; there are " + names_of(group);
  }
  if (command_ == exec && (options_.command.empty() || options_.command[0].empty()))
    return kExecForm;
  if (command_ != exec && command_ != diagnose && !options_.command.empty())
    return "only exec and doctor take a program after --";
  if (command_ == fabric_set && options_.reach.empty() && options_.peers.empty())
    return "fabric set: give --reach, --peers, or both";
  if (options_.columns.empty()) return "";
  if (json()) return "--columns is for tables: JSON has every field";
  if (options_.quiet) return "-q prints no columns";
  const Columns* columns = tables_.at(parsed_);
  if (options_.by_cgroup) columns = &kCgroupColumns;
  const auto found = find_columns(*columns, options_.columns);
  return found ? "" : "--columns: " + found.error().message();
}

Values Grammar::values_of(const CLI::Option* option) const {
  if (const auto known = values_.find(option); known != values_.end()) return known->second;
  using Kind = Values::Kind;
  static const std::map<std::string, Kind> kByType{
      {"NS", Kind::kNamespaces},  {"TENANT", Kind::kTenants}, {"FABRIC", Kind::kFabrics},
      {"PARENT", Kind::kParents}, {"FILE", Kind::kFiles},     {"DIR", Kind::kDirectories}};
  const auto by_type = kByType.find(option->get_type_name());
  return {by_type != kByType.end() ? by_type->second : Kind::kNothing};
}

// A word with subcommands. Global options may follow any word.
CLI::App& Grammar::group(const char* word, const char* help) {
  CLI::App* const sub = app_.add_subcommand(word, help);
  sub->require_subcommand(0, 1);
  sub->fallthrough();
  return *sub;
}

CLI::App& Grammar::leaf(CLI::App& parent, const char* word, const char* help, Command action) {
  CLI::App* const sub = parent.add_subcommand(word, help);
  sub->fallthrough();
  sub->callback([this, sub, action] {
    command_ = action;
    parsed_ = sub;
  });
  return *sub;
}

CLI::Option& Grammar::name(CLI::App& sub, const char* help, Values::Kind kind) {
  CLI::Option& option =
      *sub.add_option("NAME", options_.name, help)->type_name("")->check(base::not_empty, "");
  values_[&option] = {kind};
  return option;
}

CLI::Option& Grammar::text(CLI::App& sub, const char* option, std::string& value, const char* type,
                           const char* help) {
  return *sub.add_option(option, value, help)->type_name(type)->check(base::not_empty, "");
}

CLI::Option& Grammar::choice(CLI::App& sub, const char* option, std::string& value,
                             const std::vector<std::string>& words, const char* help) {
  CLI::Option& made = *sub.add_option(option, value, help);
  made.check(base::one_of(words), "");
  if (std::isupper(static_cast<unsigned char>(words[0][0])) != 0) made.transform(upper, "");
  values_[&made] = {Values::Kind::kWords, words};
  return made;
}

CLI::Option& Grammar::quota(CLI::App& sub, const char* option) {
  return quota(sub, option, options_.quota,
               "limits, such as qp=64,mr_bytes=16g,bandwidth=10gbit (see quota --help)");
}

CLI::Option& Grammar::quota(CLI::App& sub, const char* option, std::vector<std::string>& into,
                            const char* help) {
  const auto check = [](const std::string& value) {
    if (value.empty()) return std::string("'' is not a quota such as qp=64");
    const auto parsed = provisioning::parse_settings(value);
    return parsed ? std::string() : parsed.error().message();
  };
  CLI::Option& made = *sub.add_option(option, into, help)->check(check, "");
  std::vector<std::string> words;
  for (const auto kind : provisioning::all_kinds())
    words.push_back(std::string(provisioning::traits(kind).name) + "=");
  values_[&made] = {Values::Kind::kWords, words, true};
  return *made.type_name("KIND=N,...");
}

void Grammar::columns(CLI::App& sub, const Columns& columns) {
  CLI::Option& made =
      *sub.add_option("--columns", options_.columns, "the columns to print: " + names_of(columns))
           ->delimiter(',')
           ->type_name("NAME,...")
           ->check(base::not_empty, "");
  std::vector<std::string> words;
  for (const Column& one : columns) words.emplace_back(one.name);
  values_[&made] = {Values::Kind::kWords, words, true};
  tables_[&sub] = &columns;
}

void Grammar::sizes(CLI::App& sub) {
  sub.add_flag("--bytes", options_.bytes, "print exact numbers of bytes instead of 16G");
}

void Grammar::filters(CLI::App& sub, const std::vector<std::string>& states) {
  Filter& filter = options_.filter;
  text(sub, "--tenant", filter.tenant, "TENANT", "only of this tenant");
  text(sub, "--netns", filter.netns, "NS", "only of this network namespace, as NETNS shows it");
  text(sub, "--fabric", filter.fabric, "FABRIC", "only of this fabric");
  sub.add_option("--label", filter.labels, "only of vdevices with this label")
      ->type_name("KEY[=VALUE]")
      ->check(no_label, "");
  choice(sub, "--state", filter.state, states, "only in this state").type_name("STATE");
}

namespace {

const std::vector<std::string> kVdevStates{"ACTIVE", "DOWN", "LOST", "PENDING"};

}  // namespace

void Grammar::add_vdev() {
  CLI::App& vdev = group("vdev", "create, show and delete vdevices");
  CLI::App& create = leaf(vdev, "create", "create a vdevice on a netdev", vdev_create);
  name(create, "name of the new vdevice", Values::Kind::kNothing).required();
  text(create, "--netns", options_.netns, "NS", "network namespace: name, path or pid:N")
      .required();
  text(create, "--netdev", options_.netdev, "DEV", "its interface in that namespace").required();
  text(create, "--parent", options_.parent, "PARENT", "resource that it is carved from (soft)");
  text(create, "--tenant", options_.tenant, "TENANT", "the tenant that it belongs to (its own)");
  text(create, "--fabric", options_.fabric, "FABRIC",
       "the fabric that it joins (the tenant's own)");
  quota(create, "--quota");
  const CLI::Option* const allow =
      create.add_option("--allow", options_.allow, "permissions, such as raw-packet (none)")
          ->delimiter(',')
          ->type_name("PERMISSION,...");
  values_[allow] = {Values::Kind::kWords, {"qp1", "raw-packet", "userfaultfd"}, true};
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
  values_[create
              .add_option("--label", options_.labels, "a label to store with it, such as pod=web")
              ->type_name("KEY=VALUE")] = {Values::Kind::kWords,
                                           {"container=", "namespace=", "pod="}};
  create.add_flag("--if-absent", options_.if_absent, "succeed if it exists with the same options");
  choice(create, "--gid-layout", options_.gid_layout, {"dense", "mlx5"},
         "the order of GID indices: dense or mlx5 (dense)")
      .type_name("LAYOUT");
  CLI::App& list = leaf(vdev, "list", "list vdevices, one per line", vdev_list);
  list.alias("ls");
  name(list, "only this one");
  filters(list, kVdevStates);
  list.add_flag("-q,--quiet", options_.quiet, "print names only, which commands accept");
  columns(list, kVdevColumns);
  CLI::App& show = leaf(vdev, "show", "show all details", vdev_show);
  name(show, "only this one");
  sizes(show);
  CLI::App& label = leaf(vdev, "label", "set or remove labels of a vdevice", vdev_label);
  name(label, "vdevice").required();
  values_[label.add_option("LABEL", options_.labels, "KEY=VALUE sets a label, KEY- removes it")
              ->type_name("")
              ->check(base::not_empty, "")
              ->required()] = {Values::Kind::kWords, {"container=", "namespace=", "pod="}};
  CLI::App& machine =
      leaf(vdev, "export", "show it to a virtual machine, in the foreground", vdev_export);
  name(machine, "vdevice").required();
  text(machine, "--socket", options_.socket, "PATH", "where QEMU connects; it is made").required();
  text(machine, "--owner", options_.vmm_user, "USER", "who gets the socket: the user of QEMU");
  text(machine, "--user", options_.user, "USER", "whom the device's process becomes (nobody)");
  machine.add_flag("--print", options_.print_only, "only print QEMU's options");
  machine.add_flag("--allow-migration", options_.may_migrate,
                   "without what keeps QEMU from migrating the machine, which loses the device");
  CLI::App& remove = leaf(vdev, "delete", "delete vdevices", vdev_delete);
  remove.alias("rm");
  values_[remove.add_option("NAME", options_.names, "vdevices")
              ->type_name("")
              ->check(base::not_empty, "")
              ->required()] = {Values::Kind::kVdevices};
}

void Grammar::add_quota() {
  CLI::App& group_app = group("quota", "resource limits of vdevices");
  group_app.footer("Kinds, each with what its limit is:\n" + provisioning::help_on_kinds());
  CLI::App& show = leaf(group_app, "show", "show use and limits", quota_show);
  name(show, "only this vdevice");
  show.add_flag("--cgroup", options_.by_cgroup, "show the use by control group");
  filters(show, kVdevStates);
  columns(show, kQuotaColumns);
  sizes(show);
  CLI::App& set = leaf(group_app, "set", "change limits", quota_set);
  name(set, "vdevice").required();
  quota(set, "QUOTA").required();
}

void Grammar::add_budget(CLI::App& of, const char* whose, Values::Kind kind, Command show,
                         Command set) {
  CLI::App& rows = leaf(of, "show", "show defaults, ceilings, and how much is assigned", show);
  name(rows, (std::string("only this ") + whose).c_str(), kind);
  columns(rows, kBudgetColumns);
  sizes(rows);
  CLI::App& change = leaf(of, "set", "change defaults and ceilings", set);
  name(change, whose, kind).required();
  quota(change, "--default", options_.defaults, "limits of a vdevice without --quota");
  quota(change, "--ceiling", options_.ceilings, "limits of all its vdevices together (max: none)");
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

// What vdevices belong to.
void Grammar::add_objects() {
  add_budget(group("tenant", "defaults and ceilings of tenants"), "tenant", Values::Kind::kTenants,
             tenant_show, tenant_set);
  CLI::App& fabric = group("fabric", "domains of addresses");
  CLI::App& fabrics = leaf(fabric, "list", "list the fabrics", fabric_list);
  name(fabrics, "only this fabric", Values::Kind::kFabrics);
  columns(fabrics, kFabricColumns);
  CLI::App& change = leaf(fabric, "set", "change the reach and the peers of a fabric", fabric_set);
  name(change, "fabric", Values::Kind::kFabrics).required();
  choice(change, "--reach", options_.reach, {"host", "network", "wire"},
         "the peers that its vdevices may have: those on this host, or also others; wire: all of "
         "them by the network")
      .type_name("host|network|wire");
  const CLI::Option* const peers =
      change
          .add_option("--peers", options_.peers,
                      "addresses that its vdevices may send to and hear from on the network, such "
                      "as 10.0.0.0/8; or all")
          ->delimiter(',')
          ->type_name("PREFIX,...|all");
  values_[peers] = {Values::Kind::kWords, {"all"}};
  CLI::App& gids = leaf(group("gid", "addresses"), "list", "list the GID tables", gid_list);
  name(gids, "only this vdevice");
  filters(gids, kVdevStates);
  columns(gids, kGidColumns);
  CLI::App& classes =
      leaf(group("class", "what containers may have"), "list",
           "list the classes, and how many vdevices of each containers have", class_list);
  columns(classes, kClassColumns);
  sizes(classes);
  CLI::App& claim = group("claim", "what pods of Kubernetes were promised");
  CLI::App& claims =
      leaf(claim, "list", "list the claims, and how many vdevices containers have by each share",
           claim_list);
  columns(claims, kClaimColumns);
  sizes(claims);
  CLI::App& revoke = leaf(claim, "delete", "delete a claim", claim_delete);
  values_[revoke.add_option("UID", options_.name, "its uid")
              ->type_name("")
              ->check(base::not_empty, "")
              ->required()] = {Values::Kind::kClaims};
  revoke.add_flag("--force", options_.force,
                  "also the vdevices that containers have by it, while they run");
  CLI::App& parent = group("parent", "resources that vdevices are carved from");
  columns(leaf(parent, "list", "list the parents", parent_list), kParentColumns);
  add_budget(parent, "parent", Values::Kind::kParents, parent_show, parent_set);
}

// What vdevices have, and counters.
void Grammar::add_rows() {
  CLI::App& conn = group("conn", "connections of rdma_cm");
  CLI::App& connections = leaf(conn, "list", "list connections and listeners", conn_list);
  name(connections, "only of this vdevice");
  filters(connections,
          {"LISTEN", "REQ_SENT", "REQ_RECEIVED", "REP_SENT", "REP_RECEIVED", "ESTABLISHED",
           "DREQ_SENT", "DREQ_RECEIVED", "TIMEWAIT", "SIDR_REQ_SENT", "SIDR_REQ_RECEIVED"});
  columns(connections, kConnectionColumns);
  CLI::App& messages = leaf(conn, "stats", "show message counters", conn_stats);
  name(messages, "only this vdevice, or daemon", Values::Kind::kScopes);
  columns(messages, kCounterColumns);
  CLI::App& queue_pairs =
      leaf(group("qp", "queue pairs of programs"), "list",
           "list queue pairs, and how they get on; RTT is in microseconds", qp_list);
  name(queue_pairs, "only of this vdevice");
  filters(queue_pairs, {"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"});
  columns(queue_pairs, kQueuePairColumns);
  sizes(queue_pairs);
  CLI::App& counters = leaf(app_, "stats", "show counters of the daemon and its vdevices", stats);
  name(counters, "only this vdevice, daemon, or tenant/NAME", Values::Kind::kScopes);
  columns(counters, kCounterColumns);
}

void Grammar::add_checkpoint() {
  CLI::App& checkpoint =
      group("checkpoint", "programs that are written to disk, or held for a while");
  const auto of_process = [&](const char* word, const char* help, Command action) {
    leaf(checkpoint, word, help, action)
        .add_option("PROCESS", options_.name, "its number, or the token that park printed")
        ->type_name("")
        ->check(base::not_empty, "")
        ->required();
  };
  leaf(checkpoint, "park", "execute nothing for a program; its peers wait", checkpoint_park)
      .add_option("PID", options_.pid, "number of the process")
      ->type_name("")
      ->check(base::number(1, INT32_MAX, "the number of a process"), "")
      ->required();
  of_process("resume", "let a parked program go on", checkpoint_resume);
  of_process("show", "show a parked program as park showed it, with its peers: for tools",
             checkpoint_show);
  of_process("abandon", "end the sessions of a parked program, as if it had been killed",
             checkpoint_abandon);
  of_process("detach", "let a parked program end without an end of its sessions: for tools",
             checkpoint_detach);
  const auto of_file = [&](const char* word, const char* help, Command action) {
    values_[leaf(checkpoint, word, help, action)
                .add_option("FILE", options_.input,
                            "what describes the process; - is standard input")
                ->type_name("")
                ->check(base::not_empty, "")
                ->required()] = {Values::Kind::kFiles};
  };
  of_file("place", "find the vdevices of a process that comes from elsewhere: for tools",
          checkpoint_place);
  of_file("attach", "give detached sessions to another process: for tools", checkpoint_attach);
}

void Grammar::add_live() {
  CLI::App& live = leaf(app_, "top", "show the activity of each vdevice; q ends", top);
  live.add_flag("--once", options_.once, "measure once and end");
  live.add_option("--interval", options_.interval, "interval of measurements")
      ->check(base::number(0.05, 3600, "0.05 to 3600 seconds"), "")
      ->type_name("SECONDS")
      ->capture_default_str();
  choice(live, "--sort", options_.sort, top_sort_keys(),
         "what the rows are sorted by; on a terminal, < and > change it")
      .type_name("KEY")
      ->capture_default_str();
  live.add_flag("-p,--processes", options_.by_process, "one row for each process");
  filters(live, kVdevStates);
  columns(live, kTopColumns);
  CLI::App& happened =
      leaf(app_, "events", "show who was refused what, and what was lost or taken over", events);
  happened.add_flag("-f,--follow", options_.follow, "then print new events as they occur");
  happened
      .add_option("--since", options_.since,
                  "only events from then on: 10m, 2h or 1d ago, or a local time")
      ->check(no_time, "")
      ->type_name("TIME");
  leaf(app_, "web", "show all that as a page for a browser, until interrupted", serve_web)
      .add_option("--listen", options_.listen, "where: an address of this host alone")
      ->check(no_page_address, "")
      ->type_name("ADDRESS:PORT")
      ->capture_default_str();
  leaf(app_, "watch", "print creation, change and deletion of vdevices", watch);
  CLI::App& until = leaf(app_, "wait", "wait until vdevices are active, or gone", wait);
  values_[until.add_option("NAME", options_.names, "vdevices; each must be so")
              ->type_name("")
              ->check(base::not_empty, "")
              ->required()] = {Values::Kind::kVdevices};
  choice(until, "--for", options_.wait_for, {"active", "gone"}, "what to wait for")
      .type_name("active|gone")
      ->required();
  until.add_option("--timeout", options_.timeout, "end with an error after this time (never)")
      ->check(base::number(0, 1e6, "0 to 1000000 seconds"), "")
      ->type_name("SECONDS");
}

void Grammar::add_programs() {
  CLI::App& run = leaf(app_, "exec", "run a program in a vdevice's network namespace", exec);
  name(run, "vdevice").required();
  run.footer("The program and its arguments follow --: vrdmactl exec NAME -- CMD...");
  CLI::App& sick =
      leaf(app_, "doctor", "find out why a program sees no vdevice, or no peer", diagnose);
  sick.add_option("PID", options_.name, "process id")->type_name("");
  text(sick, "--netns", options_.netns, "NS", "a network namespace: name, path or pid:N");
  text(sick, "--to", options_.peer, "ADDRESS", "a peer that its vdevices should reach");
  sick.footer("Or a program after --, which is not run: vrdmactl doctor -- CMD...");
}

void Grammar::add_files() {
  CLI::App& apply =
      leaf(app_, "apply", "make vdevices, budgets and fabrics as a file says", apply_file);
  CLI::App& diff =
      leaf(app_, "diff", "show what apply would change: 0 nothing, 1 something", diff_file);
  for (CLI::App* const sub : {&apply, &diff}) {
    text(*sub, "-f,--file", options_.input, "FILE", "a TOML file; - is standard input").required();
    sub->add_flag("--recreate", options_.recreate,
                  "delete and create vdevices that differ in what cannot be changed");
    sub->add_flag("--prune", options_.prune,
                  "delete vdevices of the file's set that are not in it");
  }
  apply.add_flag("--dry-run", options_.dry_run, "only print what would change");
  leaf(app_, "export", "write such a file from what exists", export_file);
}

void Grammar::add_cdi() {
  CLI::App& generate = leaf(group("cdi", "classes of vdevices for container engines"), "generate",
                            "write the CDI specification", cdi_generate);
  // Instead of the global option of that name.
  text(generate, "-o,--output", options_.file, "FILE", "where to; - is standard output")
      .capture_default_str();
  text(generate, "--classes", options_.classes, "FILE", "the classes of vdevices")
      .capture_default_str()
      ->check(CLI::ExistingFile);
  leaf(app_, "seccomp", "print a container engine's seccomp profile with userfaultfd added",
       seccomp)
      .add_option("PROFILE", options_.input, "a JSON file; - is standard input (that of podman)")
      ->type_name("");
}

void Grammar::add_help() {
  leaf(app_, "env", "print what a shell needs to run programs on vdevices", environment)
      .footer("In the shell: eval \"$(vrdmactl env)\"");
  leaf(app_, "version", "show the versions of vrdmactl and the daemon", version);
  CLI::App& shells = group("completion", "shell completion");
  for (const char* shell : {"bash", "zsh", "fish"})
    leaf(shells, shell, "print the script", completion).preparse_callback([this, shell](size_t) {
      options_.name = shell;
    });
  std::vector<CLI::App*> all{&app_};
  for (size_t i = 0; i < all.size(); ++i)
    for (CLI::App* sub : all[i]->get_subcommands([](const CLI::App*) { return true; }))
      all.push_back(sub);
  for (CLI::App* app : all) {
    std::string footer = app->get_footer();
    footer += footer.empty() ? "Examples:" : "\nExamples:";
    for (const auto& line : examples_of(*app)) footer += "\n  " + line;
    app->footer(footer);
  }
  app_.add_subcommand("help", "print this help message, or that of a command");
}

}  // namespace vrdma::cli
