#include "cli/commands.h"

#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <optional>

#include "api/classes.h"
#include "api/client.h"
#include "cli/cdi.h"
#include "cli/completion.h"
#include "cli/connect.h"
#include "cli/exec.h"
#include "cli/for_shell.h"
#include "cli/input.h"
#include "cli/seccomp_profile.h"
#include "cli/top.h"
#include "cli/who.h"
#include "core/base/nearest.h"
#include "core/base/printable.h"
#include "provisioning/kind.h"

namespace vrdma::cli {

Outcome with_client(const Options& options, const std::function<Outcome(api::Client&)>& work) {
  auto client = api::Client::connect(options.run_dir);
  if (client) return work(*client);
  const base::Error& why = client.error();
  constexpr const char* kWhereToLook = "; start it, or name its run directory with --run-dir";
  return base::fail(why.code(), why.message() + (why.code() == ECONNREFUSED ? kWhereToLook : ""));
}

namespace {

using Vdevs = base::Result<std::vector<v1::Vdev>>;

// Those that fit the filter.
Vdevs fitting(const Options& options, std::vector<v1::Vdev> vdevs) {
  std::erase_if(vdevs, [&](const v1::Vdev& vdev) { return !options.filter.fits(vdev, true); });
  return vdevs;
}

// The named vdevice, or all; of those the ones that fit the filter.
Vdevs chosen(const Options& options, api::Client& client) {
  if (options.name.empty()) {
    auto all = client.list_vdevs();
    return all ? fitting(options, std::move(*all)) : std::move(all);
  }
  auto vdev = client.get_vdev(options.name);
  if (!vdev) return base::pass(std::move(vdev).error());
  return fitting(options, {std::move(*vdev)});
}

// Removes the rows of other objects that do not fit the filter, and returns whose the rest are. The
// state is the row's. The daemon is asked for the vdevices only if that, or WHO, needs them.
template <class Row>
base::Result<Output::Whose> filter_rows(const Options& options, api::Client& client,
                                        std::vector<Row>* rows) {
  const Filter& filter = options.filter;
  if (!filter.state.empty())
    std::erase_if(*rows, [&](const Row& row) { return row.state() != filter.state; });
  const bool by_vdevice = filter.is_set(false);
  if (!by_vdevice && options.columns.empty()) return Output::Whose();
  auto vdevs = client.list_vdevs();
  if (!vdevs) return base::pass(std::move(vdevs).error());
  std::erase_if(*vdevs, [&](const v1::Vdev& vdev) { return !filter.fits(vdev, false); });
  auto whose = cli::whose(*vdevs);
  if (by_vdevice)
    std::erase_if(*rows, [&](const Row& row) { return !whose.contains(row.vdev_id()); });
  return whose;
}

// The queue pairs that a table of others refers to. The workers know them, so JSON goes without.
base::Result<std::vector<v1::QueuePair>> for_table(const Options& options, api::Client& client) {
  if (options.format == Format::kJson) return {};
  return client.list_queue_pairs(options.name);
}

// Prints the chosen vdevices by a member of Output.
Outcome print_chosen(const Options& options, Output& output,
                     void (Output::*print)(const std::vector<v1::Vdev>&)) {
  return with_client(options, [&](api::Client& client) -> Outcome {
    auto vdevs = chosen(options, client);
    if (!vdevs) return base::pass(std::move(vdevs).error());
    (output.*print)(*vdevs);
    return {};
  });
}

// Appends the settings to a repeated QuotaSetting field of a request.
template <class Settings>
Outcome add_quota(const std::vector<std::string>& texts, Settings& settings) {
  for (const auto& text : texts) {
    auto quota = provisioning::parse_settings(text);
    if (!quota) return base::pass(std::move(quota).error());
    for (const auto& [kind, limit] : *quota) {
      auto& setting = *settings.Add();
      setting.set_kind(kind);
      setting.set_limit(limit);
    }
  }
  return {};
}

using Labels = google::protobuf::Map<std::string, std::string>;

// Parses "pod=web-0" etc.; the daemon checks keys and values.
Outcome add_label(const std::string& text, Labels& labels) {
  const size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0)
    return base::fail(EINVAL, "label '" + text + "' is not KEY=VALUE");
  const auto [it, is_new] = labels.insert({text.substr(0, equals), text.substr(equals + 1)});
  if (!is_new) return base::fail(EINVAL, "label '" + it->first + "' is given twice");
  return {};
}

}  // namespace

Outcome vdev_create(const Options& options, Output& output) {
  v1::CreateVdevRequest request;
  request.set_name(options.name);
  request.set_netns(options.netns);
  request.set_netdev(options.netdev);
  request.set_parent(options.parent);
  request.set_tenant(options.tenant);
  request.set_fabric(options.fabric);
  if (auto added = add_quota(options.quota, *request.mutable_quota()); !added) return added;
  for (const auto& permission : options.allow) request.add_allow(permission);
  request.set_no_direct(options.no_direct);
  for (const auto& prefix : options.addresses) request.add_addresses(prefix);
  if (options.owner != 0) request.mutable_owner()->set_pid(options.owner);
  request.set_end_with_owner(options.end_with_owner);
  for (const auto& text : options.labels)
    if (auto added = add_label(text, *request.mutable_labels()); !added) return added;
  request.set_if_absent(options.if_absent);
  request.set_gid_layout(options.gid_layout);
  return with_client(options, [&](api::Client& client) -> Outcome {
    auto vdev = client.create_vdev(request);
    if (!vdev) return base::pass(std::move(vdev).error());
    output.created(*vdev);
    return {};
  });
}

Outcome vdev_list(const Options& options, Output& output) {
  return with_client(options, [&](api::Client& client) -> Outcome {
    const auto all = client.list_vdevs();
    if (!all) return base::pass(all.error());
    const auto vdevs = options.name.empty() ? fitting(options, *all) : chosen(options, client);
    if (!vdevs) return base::pass(vdevs.error());
    options.quiet ? output.names(*vdevs, *all) : output.list(*vdevs, *all);
    return {};
  });
}

Outcome vdev_show(const Options& options, Output& output) {
  return with_client(options, [&](api::Client& client) -> Outcome {
    auto vdevs = chosen(options, client);
    if (!vdevs) return base::pass(std::move(vdevs).error());
    output.show(*vdevs, for_table(options, client), client.list_exports(options.name));
    return {};
  });
}

// Deletes all that can be deleted; the error lists the others.
Outcome vdev_delete(const Options& options, Output&) {
  return with_client(options, [&](api::Client& client) -> Outcome {
    Outcome all;
    for (const auto& name : options.names) {
      auto deleted = client.delete_vdev(name);
      if (deleted) continue;
      all = all ? std::move(deleted)
                : base::fail(all.error().code(),
                             all.error().message() + "; " + deleted.error().message());
    }
    return all;
  });
}

Outcome quota_show(const Options& options, Output& output) {
  if (options.by_cgroup)
    return with_client(options, [&](api::Client& client) -> Outcome {
      auto uses = client.list_cgroups(options.name);
      if (!uses) return base::pass(std::move(uses).error());
      if (options.filter.is_set(true)) {
        const auto vdevs = chosen(options, client);
        if (!vdevs) return base::pass(vdevs.error());
        const auto whose = cli::whose(*vdevs);
        std::erase_if(*uses,
                      [&](const v1::CgroupUse& use) { return !whose.contains(use.vdev_id()); });
      }
      output.cgroups(*uses);
      return {};
    });
  return print_chosen(options, output, &Output::quota);
}

Outcome quota_set(const Options& options, Output& output) {
  v1::SetQuotaRequest request;
  request.set_name(options.name);
  if (auto added = add_quota(options.quota, *request.mutable_quota()); !added) return added;
  return with_client(options, [&](api::Client& client) -> Outcome {
    auto vdev = client.set_quota(request);
    if (!vdev) return base::pass(std::move(vdev).error());
    output.created(*vdev);
    return {};
  });
}

// As kubectl: KEY- removes a label.
Outcome vdev_label(const Options& options, Output& output) {
  v1::SetLabelsRequest request;
  request.set_name(options.name);
  for (const auto& text : options.labels) {
    if (text.find('=') != std::string::npos) {
      if (auto added = add_label(text, *request.mutable_set()); !added) return added;
    } else if (text.size() > 1 && text.back() == '-') {
      request.add_remove(text.substr(0, text.size() - 1));
    } else {
      return base::fail(EINVAL, "label '" + text + "' is not KEY=VALUE, or KEY- to remove it");
    }
  }
  return with_client(options, [&](api::Client& client) -> Outcome {
    auto vdev = client.set_labels(request);
    if (!vdev) return base::pass(std::move(vdev).error());
    output.created(*vdev);
    return {};
  });
}

Outcome gid_list(const Options& options, Output& output) {
  return print_chosen(options, output, &Output::gids);
}

Outcome claim_list(const Options& options, Output& output) {
  return with_client(options, [&](api::Client& client) -> Outcome {
    auto claims = client.list_claims();
    if (!claims) return base::pass(std::move(claims).error());
    output.claims(*claims);
    return {};
  });
}

Outcome claim_delete(const Options& options, Output&) {
  return with_client(options, [&](api::Client& client) {
    return client.delete_claim(options.name, options.force);
  });
}

Outcome class_list(const Options& options, Output& output) {
  return with_client(options, [&](api::Client& client) -> Outcome {
    auto classes = client.list_classes();
    if (!classes) return base::pass(std::move(classes).error());
    output.classes(*classes);
    return {};
  });
}

Outcome parent_list(const Options& options, Output& output) {
  return with_client(options, [&](api::Client& client) -> Outcome {
    auto parents = client.list_parents();
    if (!parents) return base::pass(std::move(parents).error());
    output.parents(*parents);
    return {};
  });
}

namespace {

Outcome show_budgets(const Options& options, Output& output, v1::Scope scope) {
  return with_client(options, [&](api::Client& client) -> Outcome {
    auto budgets = client.list_budgets(scope);
    if (!budgets) return base::pass(std::move(budgets).error());
    if (!options.name.empty()) {
      std::erase_if(*budgets, [&](const v1::Budget& one) { return one.name() != options.name; });
      if (budgets->empty())
        return base::fail(ENOENT, std::string("no budget is set for ") +
                                      (scope == v1::TENANT ? "tenant '" : "parent '") +
                                      options.name + "', and it has no vdevices");
    }
    output.budgets(*budgets);
    return {};
  });
}

// Settings may precede the vdevices that they are for, so a name that nobody uses is accepted. If
// it nearly is one in use, it is a slip, perhaps.
void note_slip(const std::string& what, const std::string& name,
               const std::vector<std::string>& in_use) {
  if (const std::string meant = base::nearest(name, in_use); !meant.empty())
    std::cerr << "vrdmactl: note: " << what << " '" << base::printable(name)
              << "' has no vdevices; do you mean " << meant << "?\n";
}
template <class Rows>
std::vector<std::string> names_in_use(const Rows& rows) {
  std::vector<std::string> names;
  for (const auto& row : rows)
    if (row.vdevices() > 0) names.push_back(row.name());
  return names;
}

Outcome set_budget(const Options& options, Output& output, v1::Scope scope) {
  if (options.defaults.empty() && options.ceilings.empty() && options.overcommit == 0)
    return base::fail(EINVAL, "nothing to change: give --default, --ceiling or --overcommit");
  v1::SetBudgetRequest request;
  request.set_scope(scope);
  request.set_name(options.name);
  request.set_overcommit(options.overcommit);
  if (auto added = add_quota(options.defaults, *request.mutable_defaults()); !added) return added;
  if (auto added = add_quota(options.ceilings, *request.mutable_ceilings()); !added) return added;
  return with_client(options, [&](api::Client& client) -> Outcome {
    auto budget = client.set_budget(request);
    if (!budget) return base::pass(std::move(budget).error());
    output.changed(*budget);
    if (scope == v1::TENANT && budget->vdevices() == 0)
      if (const auto all = client.list_budgets(scope))
        note_slip("tenant", options.name, names_in_use(*all));
    return {};
  });
}

}  // namespace

Outcome tenant_show(const Options& options, Output& output) {
  return show_budgets(options, output, v1::TENANT);
}
Outcome tenant_set(const Options& options, Output& output) {
  return set_budget(options, output, v1::TENANT);
}
Outcome parent_show(const Options& options, Output& output) {
  return show_budgets(options, output, v1::PARENT);
}
Outcome parent_set(const Options& options, Output& output) {
  return set_budget(options, output, v1::PARENT);
}

Outcome fabric_list(const Options& options, Output& output) {
  return with_client(options, [&](api::Client& client) -> Outcome {
    auto fabrics = client.list_fabrics();
    if (!fabrics) return base::pass(std::move(fabrics).error());
    if (!options.name.empty()) {
      std::erase_if(*fabrics, [&](const v1::Fabric& one) { return one.name() != options.name; });
      if (fabrics->empty())
        return base::fail(ENOENT, "fabric '" + options.name + "' has no settings and no vdevices");
    }
    output.fabrics(*fabrics);
    return {};
  });
}

Outcome fabric_set(const Options& options, Output& output) {
  v1::SetFabricRequest request;
  request.set_name(options.name);
  request.set_reach(options.reach);
  if (!options.peers.empty()) request.mutable_peers();
  if (options.peers != std::vector<std::string>{"all"})
    for (const auto& prefix : options.peers) request.mutable_peers()->add_prefixes(prefix);
  return with_client(options, [&](api::Client& client) -> Outcome {
    auto fabric = client.set_fabric(request);
    if (!fabric) return base::pass(std::move(fabric).error());
    output.changed(*fabric);
    if (fabric->vdevices() == 0)
      if (const auto all = client.list_fabrics())
        note_slip("fabric", options.name, names_in_use(*all));
    return {};
  });
}

Outcome stats(const Options& options, Output& output) {
  return with_client(options, [&](api::Client& client) -> Outcome {
    auto counters = client.counters(options.name);
    if (!counters) return base::pass(std::move(counters).error());
    output.counters(*counters);
    return {};
  });
}

Outcome top(const Options& options, Output&) {
  return with_client(options, [&](api::Client& client) {
    Style style = Style::of_output();
    style.columns = options.columns;
    return run_top(client, {.interval = options.interval,
                            .once = options.once,
                            .format = options.format,
                            .sort = options.sort,
                            .by_process = options.by_process,
                            .filter = options.filter,
                            .style = style});
  });
}

Outcome conn_list(const Options& options, Output& output) {
  return with_client(options, [&](api::Client& client) -> Outcome {
    auto connections = client.list_connections(options.name);
    if (!connections) return base::pass(std::move(connections).error());
    const auto whose = filter_rows(options, client, &*connections);
    if (!whose) return base::pass(whose.error());
    output.connections(*connections, for_table(options, client), *whose);
    return {};
  });
}

Outcome qp_list(const Options& options, Output& output) {
  return with_client(options, [&](api::Client& client) -> Outcome {
    auto queue_pairs = client.list_queue_pairs(options.name);
    if (!queue_pairs) return base::pass(std::move(queue_pairs).error());
    const auto whose = filter_rows(options, client, &*queue_pairs);
    if (!whose) return base::pass(whose.error());
    output.queue_pairs(*queue_pairs, *whose);
    return {};
  });
}

// The counters whose names begin with "cm_".
Outcome conn_stats(const Options& options, Output& output) {
  return with_client(options, [&](api::Client& client) -> Outcome {
    auto counters = client.counters(options.name);
    if (!counters) return base::pass(std::move(counters).error());
    std::erase_if(*counters, [](const v1::Counter& counter) {
      return counter.name().rfind("cm_", 0) != 0 &&
             counter.name().rfind("quota_refused_cm_", 0) != 0;
    });
    output.counters(*counters);
    return {};
  });
}

Outcome watch(const Options& options, Output& output) {
  return with_client(options, [&](api::Client& client) {
    return client.watch_vdevs([&](const v1::WatchEvent& event) {
      output.event(event);
      return static_cast<bool>(std::cout);
    });
  });
}

base::Result<v1::Vdev> named_vdev(const Options& options) {
  v1::Vdev found;
  auto asked = with_client(options, [&](api::Client& client) -> Outcome {
    auto vdev = client.get_vdev(options.name, true);
    if (!vdev) return base::pass(std::move(vdev).error());
    found = std::move(*vdev);
    return {};
  });
  if (!asked) return base::pass(std::move(asked).error());
  return found;
}

Outcome exec(const Options& options, Output&) {
  const auto found = named_vdev(options);
  if (!found) return base::pass(found.error());
  return base::pass(exec_in(*found, options.run_dir, options.command));
}

Outcome environment(const Options& options, Output&) {
  const auto libraries = library_dir();
  if (!libraries) return base::pass(libraries.error());
  const char* const before = std::getenv("LD_LIBRARY_PATH");
  const std::string path = std::string(before != nullptr ? before : "") + ":";
  if (!path.starts_with(*libraries + ":"))  // a shell may be told twice
    std::cout << "export LD_LIBRARY_PATH=" << for_shell(*libraries)
              << "${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}\n";
  std::error_code error;  // of a program in a directory that is gone
  const auto run_dir = std::filesystem::absolute(options.run_dir, error).lexically_normal();
  if (error) return base::fail(error.value(), options.run_dir + ": " + error.message());
  if (run_dir != api::kDefaultRunDir)
    std::cout << "export VRDMA_RUN_DIR=" << for_shell(run_dir) << '\n';
  return {};
}

Outcome cdi_generate(const Options& options, Output&) {
  const auto classes = api::Classes::read(options.classes);
  if (!classes) return base::pass(classes.error());
  std::vector<std::string> names;
  for (const auto& [name, ignored] : classes->all()) names.push_back(name);
  auto libraries = library_dir();
  if (!libraries) return base::pass(std::move(libraries).error());
  const std::string hook = *libraries + "/vrdma-oci-hook";
  if (::access(hook.c_str(), X_OK) != 0) return base::fail_errno("find the hook " + hook);
  const auto text = cdi_specification(names, {hook, options.run_dir});
  if (!text) return base::pass(text.error());
  // The file has the other classes.
  if (options.file != "-")
    if (auto written = replace_file(options.file, *text); !written) return written;
  for (const auto& [name, error] : classes->wrong()) return base::pass(error);
  if (options.file == "-") std::cout << *text;
  return {};
}

// As podman looks for it. Docker and containerd have theirs in their programs.
Outcome seccomp(const Options& options, Output&) {
  constexpr const char* kPlaces[] = {"/etc/containers/seccomp.json",
                                     "/usr/share/containers/seccomp.json"};
  std::string path = options.input;
  for (const char* place : kPlaces)
    if (path.empty() && ::access(place, F_OK) == 0) path = place;
  if (path.empty())
    return base::fail(ENOENT,
                      "neither /etc/containers/seccomp.json nor /usr/share/containers/seccomp.json "
                      "is there: name the profile of your container engine");
  auto given = input_of(path);
  if (!given) return base::pass(std::move(given).error());
  auto profile = with_userfaultfd(*given);
  if (!profile) return base::pass(std::move(profile).error(), name_of_file(path));
  std::cout << *profile;
  return {};
}

Outcome version(const Options& options, Output& output) {
  auto asked = with_client(options, [&](api::Client& client) -> Outcome {
    auto daemon = client.version();
    if (!daemon) return base::pass(std::move(daemon).error());
    output.version(VRDMA_VERSION, *daemon);
    return {};
  });
  if (!asked && options.format == Format::kTable)
    std::cout << "vrdmactl " << VRDMA_VERSION << std::endl;
  return asked;
}

Outcome completion(const Options& options, Output&) {
  std::cout << completion_script(options.name);
  return {};
}

}  // namespace vrdma::cli
