#include "cli/node/options.h"

#include "api/classes.h"
#include "api/client.h"
#include "cli/cdi.h"
#include "core/base/option_check.h"

namespace vrdma::cli::node {

namespace {

void add_common(CLI::App& command, Options& options) {
  const auto path = [&command](const char* name, std::string& into, const char* help) {
    command.add_option(name, into, help)
        ->check(base::is_absolute_path, "")
        ->type_name("PATH")
        ->capture_default_str();
  };
  path("--root", options.root, "where the file system of the node is mounted");
  path("--place", options.place, "on the node: the directory of the hook and the libraries");
  path("--cdi", options.cdi, "on the node: the CDI specification");
}

}  // namespace

void add_options(CLI::App& app, Options& options) {
  options.cdi = kCdiFile;
  options.run_dir = api::kDefaultRunDir;
  options.classes = api::kClassesFile;
  app.require_subcommand(1);
  CLI::App& install = *app.add_subcommand(
      "install", "put the hook, the libraries and the CDI specification on the node");
  add_common(install, options);
  install.add_option("--run-dir", options.run_dir, "on the node: the run directory of vrdmad")
      ->check(base::is_absolute_path, "")
      ->type_name("PATH")
      ->capture_default_str();
  install.add_option("--classes", options.classes, "the file of classes")
      ->check(base::is_absolute_path, "")
      ->type_name("FILE")
      ->capture_default_str();
  install
      .add_option("--runtime", options.runtime,
                  "the socket of the container runtime, which is asked whether it reads CDI "
                  "specifications; else nothing is done")
      ->check(base::is_absolute_path, "")
      ->type_name("SOCKET");
  install.add_flag("--keep", options.keep,
                   "then rewrite the specification whenever the classes change, until a signal");
  add_common(*app.add_subcommand("uninstall", "remove what install has put there"), options);
}

}  // namespace vrdma::cli::node
