#include "cli/sandbox/options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>

#include "cli/bad_wire/direction.h"
#include "cli/bad_wire/options.h"
#include "core/base/option_check.h"
#include "core/base/option_sentence.h"

namespace vrdma::cli::sandbox {

namespace {

const char* const kFooter =
    "Examples:\n"
    "  vrdma-sandbox --demo\n"
    "  vrdma-sandbox -- ibv_devinfo\n"
    "  vrdma-sandbox --vdevices 2 -- make check\n"
    "  vrdma-sandbox --pair -- ib_write_bw -- ib_write_bw 10.0.0.1\n"
    "The vdevices are vrdma0, vrdma1, ... on eth0, eth1, ... with the addresses 10.0.0.1, "
    "10.0.0.2, "
    "...\n"
    "With --pair the server has vrdma0 on its eth0, and the client vrdma1 on its own eth0.\n"
    "The exit status is the command's (with --pair the client's); 125: there is no sandbox.";

// The words behind the first "--", with `pair` cut in two at the next one.
std::vector<Words> cut(const Words& words, bool pair) {
  const auto dashes = pair ? std::find(words.begin(), words.end(), "--") : words.end();
  std::vector<Words> commands{Words(words.begin(), dashes)};
  if (dashes != words.end()) commands.emplace_back(dashes + 1, words.end());
  return commands;
}

std::string wrong_commands(const Options& options) {
  const bool empty = std::any_of(options.commands.begin(), options.commands.end(),
                                 [](const Words& command) { return command.empty(); });
  if (!options.pair)
    return empty ? "give the command after --, as in 'vrdma-sandbox -- ibv_devinfo'" : "";
  if (options.commands.size() != 2 || empty)
    return "--pair wants two commands: vrdma-sandbox --pair -- SERVER ... -- CLIENT ...";
  return "";
}

}  // namespace

int complain(const std::string& sentence, int status) {
  std::cerr << "vrdma-sandbox: " << sentence << '\n';
  return status;
}

bool parse(int argc, char** argv, Options* options, int* status) {
  char** const end = argv + argc;
  char** const dashes = std::find(argv, end, std::string("--"));
  CLI::App app("runs a command with virtual RDMA devices of its own, without root",
               "vrdma-sandbox");
  app.footer(kFooter);
  app.set_version_flag("--version", "vrdma-sandbox " VRDMA_VERSION);
  app.add_flag("--demo", options->demo, "two small programs show what to expect; takes seconds");
  app.add_option("--vdevices", options->vdevices, "how many the command gets")
      ->check(base::number(1, 64, "1 to 64"), "")
      ->type_name("N")
      ->capture_default_str();
  app.add_flag("--pair", options->pair, "two commands, each in a network namespace of its own");
  app.add_flag("--two-tenants", options->two_tenants,
               "each vdevice is another tenant's; they meet in one fabric");
  app.add_flag("--root", options->stay_root, "the command is root in the sandbox (ip, tc, mount)");
  app.add_option("--wait", options->wait, "how long the client waits for the server to listen")
      ->check(base::number(0, 3600, "0 to 3600 seconds"), "")
      ->type_name("SECONDS")
      ->capture_default_str();
  app.add_option("--log", options->log, "a file for the log of vrdmad")
      ->type_name("FILE")
      ->check(base::not_empty, "");
  std::vector<std::string> quotas, permissions;
  app.add_option("--quota", quotas, "limits of each vdevice, such as qp=64,mr_bytes=16g")
      ->type_name("KIND=N,...");
  app.add_option("--allow", permissions, "what each vdevice may do, such as raw-packet")
      ->type_name("PERMISSION,...");
  bad_wire::Faults faults;
  uint64_t seed = 1;
  CLI::App& wire = *app.add_option_group(
      "A bad network", "With --pair: the link between the two; they talk by packets of RoCE v2");
  bad_wire::add_options(wire, faults);
  wire.add_option("--seed", seed, "of what happens to which packet")->capture_default_str();
  bool no_direct = false;
  app.add_flag("--no-direct", no_direct, "vrdmad executes all work");
  try {
    app.parse(static_cast<int>(dashes - argv), argv);
  } catch (const CLI::Success& wanted) {  // --help, --version
    *status = app.exit(wanted);
    if (!std::cout.flush()) *status = complain("cannot write the output");
    return false;
  } catch (const CLI::ParseError& wrong) {
    const bool unknown = dynamic_cast<const CLI::ExtrasError*>(&wrong) != nullptr;
    *status =
        complain(base::sentence_of(app, wrong) +
                     (unknown ? "; the command stands behind --, see --help" : "; see --help"),
                 kUsage);
    return false;
  }
  if (options->demo) {
    if (argc == 2) return true;
    *status = complain("--demo stands alone: it runs programs of its own", kUsage);
    return false;
  }
  for (const auto& quota : quotas)
    options->vdev_options.insert(options->vdev_options.end(), {"--quota", quota});
  for (const auto& each : permissions)
    options->vdev_options.insert(options->vdev_options.end(), {"--allow", each});
  if (no_direct) options->vdev_options.emplace_back("--no-direct");
  options->commands = cut(dashes == end ? Words() : Words(dashes + 1, end), options->pair);
  const bool given = std::find_if(argv, dashes, [](const char* word) {
                       return std::string_view(word).starts_with("--vdevices");
                     }) != dashes;
  if (options->pair && given) {
    *status = complain("--pair makes two vdevices: leave --vdevices out", kUsage);
    return false;
  }
  if (wire.count_all() > 0) {
    if (!options->pair) {
      *status = complain("options of a bad network, such as --loss, want --pair", kUsage);
      return false;
    }
    if (const std::string wrong = bad_wire::without_effect(wire); !wrong.empty()) {
      *status = complain(wrong, kUsage);
      return false;
    }
    options->wire = bad_wire::words_of(faults);
    options->wire.insert(options->wire.end(), {"--seed", std::to_string(seed)});
  }
  if (options->pair) options->vdevices = 2;
  if (options->two_tenants && options->vdevices < 2) {
    *status = complain("--two-tenants wants --pair or --vdevices 2", kUsage);
    return false;
  }
  if (const std::string wrong = wrong_commands(*options); !wrong.empty()) {
    *status = complain(wrong, kUsage);
    return false;
  }
  return true;
}

}  // namespace vrdma::cli::sandbox
