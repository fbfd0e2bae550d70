// The implementation of each subcommand: queries the daemon and prints the answer.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "api/client.h"
#include "cli/filter.h"
#include "cli/output.h"
#include "core/base/error.h"

namespace vrdma::cli {

// The options of the command line. Names that were not given are empty.
struct Options {
  std::string run_dir;
  Format format = Format::kTable;
  // Names a vdevice (NAME, NETNS/NAME, id:N), tenant, fabric or parent; for stats also "daemon" or
  // "tenant/NAME"; for doctor a process id.
  std::string name;
  std::vector<std::string> names;                     // of vdevices
  std::string netns, netdev, parent, tenant, fabric;  // for a new vdevice
  std::vector<std::string> quota;  // each as provisioning::parse_settings() accepts it
  std::vector<std::string> allow;
  bool no_direct = false;
  std::vector<std::string> addresses;
  uint32_t owner = 0;  // process id; 0: none
  uint32_t pid = 0;    // for checkpoint park
  bool end_with_owner = false;
  std::vector<std::string> labels;  // KEY=VALUE
  bool if_absent = false;
  std::string gid_layout;
  std::string reach;                              // for fabric set; empty: not given
  std::vector<std::string> peers;                 // the same: prefixes, or "all" alone
  std::vector<std::string> defaults, ceilings;    // for a tenant or a parent, like `quota`
  uint32_t overcommit = 0;                        // percent; 0: not given
  bool by_cgroup = false;                         // for quota show
  bool force = false;                             // for claim delete
  std::vector<std::string> command;               // for exec and doctor
  std::string peer;                               // for doctor: an address
  bool once = false;                              // for top
  double interval = 1;                            // for top, in seconds
  std::string sort = "bytes";                     // for top: one of top_sort_keys()
  bool by_process = false;                        // for top
  std::string wait_for;                           // active or gone
  std::optional<double> timeout;                  // for wait, in seconds
  Filter filter;                                  // for lists
  std::vector<std::string> columns;               // for tables; empty: the default ones
  bool bytes = false;                             // exact sizes in tables
  bool quiet = false;                             // names only
  std::string file, classes;                      // for cdi generate: paths
  std::string input;                              // for a file that is read: a path, "-"
  std::string socket, vmm_user, user = "nobody";  // for vdev export: a path, two users
  bool print_only = false, may_migrate = false;   // the same
  std::string since;    // for events, as time_of() of cli/events.h accepts it; empty: all
  bool follow = false;  // for events
  std::string listen = "127.0.0.1:8080";  // for web
  bool dry_run = false, recreate = false, prune = false;
};

using Outcome = base::Result<void>;

// Connects, and calls `work` with the client.
[[nodiscard]] Outcome with_client(const Options& options,
                                  const std::function<Outcome(api::Client&)>& work);

// The vdevice `options.name`. The connection is closed, so that the process may be replaced.
[[nodiscard]] base::Result<v1::Vdev> named_vdev(const Options& options);

[[nodiscard]] Outcome vdev_create(const Options& options, Output& output);
[[nodiscard]] Outcome vdev_list(const Options& options, Output& output);
[[nodiscard]] Outcome vdev_show(const Options& options, Output& output);
[[nodiscard]] Outcome vdev_delete(const Options& options, Output& output);
[[nodiscard]] Outcome vdev_label(const Options& options, Output& output);
// Replaces the process, as exec().
[[nodiscard]] Outcome vdev_export(const Options& options, Output& output);
[[nodiscard]] Outcome quota_show(const Options& options, Output& output);
[[nodiscard]] Outcome quota_set(const Options& options, Output& output);
[[nodiscard]] Outcome gid_list(const Options& options, Output& output);
[[nodiscard]] Outcome claim_list(const Options& options, Output& output);
[[nodiscard]] Outcome claim_delete(const Options& options, Output& output);
[[nodiscard]] Outcome class_list(const Options& options, Output& output);
[[nodiscard]] Outcome parent_list(const Options& options, Output& output);
[[nodiscard]] Outcome parent_show(const Options& options, Output& output);
[[nodiscard]] Outcome parent_set(const Options& options, Output& output);
[[nodiscard]] Outcome tenant_show(const Options& options, Output& output);
[[nodiscard]] Outcome tenant_set(const Options& options, Output& output);
[[nodiscard]] Outcome fabric_list(const Options& options, Output& output);
[[nodiscard]] Outcome fabric_set(const Options& options, Output& output);
[[nodiscard]] Outcome stats(const Options& options, Output& output);
[[nodiscard]] Outcome top(const Options& options, Output& output);
[[nodiscard]] Outcome conn_list(const Options& options, Output& output);
[[nodiscard]] Outcome qp_list(const Options& options, Output& output);
[[nodiscard]] Outcome conn_stats(const Options& options, Output& output);
// Runs until the output cannot be written, or the daemon ends (an error).
[[nodiscard]] Outcome watch(const Options& options, Output& output);
// Replaces the process; returns only on errors.
[[nodiscard]] Outcome exec(const Options& options, Output& output);
// checkpoint.cc. attach reads what park printed as JSON, changed to the process that is attached.
[[nodiscard]] Outcome checkpoint_park(const Options& options, Output& output);
[[nodiscard]] Outcome checkpoint_show(const Options& options, Output& output);
[[nodiscard]] Outcome checkpoint_detach(const Options& options, Output& output);
[[nodiscard]] Outcome checkpoint_place(const Options& options, Output& output);
[[nodiscard]] Outcome checkpoint_attach(const Options& options, Output& output);
[[nodiscard]] Outcome checkpoint_resume(const Options& options, Output& output);
[[nodiscard]] Outcome checkpoint_abandon(const Options& options, Output& output);
// Prints the findings; returns an error if one is a problem, EAGAIN if nothing is known.
[[nodiscard]] Outcome diagnose(const Options& options, Output& output);
// Prints commands for a shell that runs programs without exec(); needs no daemon.
[[nodiscard]] Outcome environment(const Options& options, Output& output);
// Writes the CDI specification; needs no daemon.
[[nodiscard]] Outcome cdi_generate(const Options& options, Output& output);
[[nodiscard]] Outcome seccomp(const Options& options, Output& output);
// Serves a page until it is interrupted (cli/web).
[[nodiscard]] Outcome serve_web(const Options& options, Output& output);
// cli/events.h
[[nodiscard]] Outcome events(const Options& options, Output& output);
// cli/apply. diff_file() returns the error kDiffers if there is a difference.
constexpr int kDiffers = ECANCELED;
[[nodiscard]] Outcome apply_file(const Options& options, Output& output);
[[nodiscard]] Outcome diff_file(const Options& options, Output& output);
[[nodiscard]] Outcome export_file(const Options& options, Output& output);
[[nodiscard]] Outcome version(const Options& options, Output& output);
// Prints the completion for the shell `options.name`: bash, zsh or fish; needs no daemon.
[[nodiscard]] Outcome completion(const Options& options, Output& output);
// Waits by the daemon's events, without polling. "active": a vdevice that does not exist yet is
// waited for; "gone": it is waited for the end of the vdevice that has the name now. ETIMEDOUT.
[[nodiscard]] Outcome wait(const Options& options, Output& output);

}  // namespace vrdma::cli
