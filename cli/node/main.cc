// vrdma-node: puts on a Kubernetes node what its pods need, and takes it away.
#include <csignal>
#include <ctime>
#include <iostream>

#include "cli/exec.h"
#include "cli/node/options.h"
#include "cli/node/place.h"
#include "cli/node/runtime.h"
#include "cli/node/specification.h"
#include "core/base/option_sentence.h"

namespace vrdma::cli::node {
namespace {

using base::pass;
using base::Result;

constexpr int kUsage = 2;
constexpr time_t kPause = 1;  // seconds between two looks at the classes

Result<void> update(Specification* specification) {
  const auto sentences = specification->update();
  if (!sentences) return pass(sentences.error());
  for (const auto& sentence : *sentences) std::cout << sentence << std::endl;
  return {};
}

// Until SIGINT or SIGTERM. What cannot be written now may be written later.
void keep(Specification* specification) {
  sigset_t signals;
  ::sigemptyset(&signals);
  for (const int signal : {SIGINT, SIGTERM}) ::sigaddset(&signals, signal);
  ::sigprocmask(SIG_BLOCK, &signals, nullptr);
  const timespec pause{kPause, 0};
  std::string told;
  while (::sigtimedwait(&signals, nullptr, &pause) < 0) {
    const auto updated = update(specification);
    const std::string complaint = updated ? "" : updated.error().message();
    if (!complaint.empty() && complaint != told) std::cerr << "vrdma-node: " << complaint << '\n';
    told = complaint;
  }
}

Result<void> install(const Options& options, const Place& place, Specification* specification) {
  if (!options.runtime.empty()) {
    const auto answer = ask_runtime(options.runtime);
    if (!answer) return pass(answer.error());
    if (auto reads = reads_cdi(*answer, options.cdi); !reads) return reads;
    std::cout << answer->name << " " << answer->version << " reads CDI specifications" << std::endl;
  }
  const auto libraries = library_dir();
  if (!libraries) return pass(libraries.error());
  if (auto installed = node::install(place, *libraries, kFiles); !installed) return installed;
  std::cout << "vrdma " << place.version << " is in " << place.path << std::endl;
  if (auto written = update(specification); !written) return written;
  if (options.keep) keep(specification);
  return {};
}

int run(int argc, char** argv) {
  CLI::App app(
      "what Kubernetes nodes need of vrdma: the hook, the libraries, the CDI specification",
      "vrdma-node");
  app.set_version_flag("--version", "vrdma-node " VRDMA_VERSION);
  Options options;
  add_options(app, options);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& wanted) {
    return app.exit(wanted);
  } catch (const CLI::ParseError& wrong) {
    std::cerr << "vrdma-node: " << base::sentence_of(app, wrong) << "; see --help\n";
    return kUsage;
  }
  const Place place{options.place, options.root, VRDMA_VERSION};
  Specification specification(options.root + options.cdi, {place.hook(), options.run_dir},
                              options.classes);
  Result<void> done;
  if (app.got_subcommand("install")) {
    done = install(options, place, &specification);
  } else {
    done = specification.remove();  // first, so that no pod finds a specification without a hook
    if (done) done = uninstall(place);
  }
  if (done) return 0;
  std::cerr << "vrdma-node: " << done.error().message() << '\n';
  return 1;
}

}  // namespace
}  // namespace vrdma::cli::node

int main(int argc, char** argv) { return vrdma::cli::node::run(argc, argv); }
