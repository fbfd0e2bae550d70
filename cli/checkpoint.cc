// vrdmactl checkpoint: parks the sessions of a process, and what follows.
#include "api/client.h"
#include "api/parked_text.h"
#include "cli/commands.h"
#include "cli/input.h"

namespace vrdma::cli {

namespace {

Outcome of_parked(const Options& options,
                  base::Result<void> (api::Client::*step)(const std::string&)) {
  return with_client(options, [&](api::Client& client) { return (client.*step)(options.name); });
}

}  // namespace

Outcome checkpoint_park(const Options& options, Output& output) {
  return with_client(options, [&](api::Client& client) -> Outcome {
    auto process = client.park_process(static_cast<int32_t>(options.pid));
    if (!process) return base::pass(std::move(process).error());
    output.parked(*process);
    return {};
  });
}

namespace {

Outcome show(api::Client& client, const Options& options, Output& output) {
  auto process = client.parked_process(options.name);
  if (!process) return base::pass(std::move(process).error());
  output.parked(*process);
  return {};
}

}  // namespace

Outcome checkpoint_show(const Options& options, Output& output) {
  return with_client(options, [&](api::Client& client) { return show(client, options, output); });
}

// A tool needs what it must keep of the process, and each start of this program takes its time.
Outcome checkpoint_detach(const Options& options, Output& output) {
  return with_client(options, [&](api::Client& client) -> Outcome {
    auto done = client.detach_process(options.name);
    if (!done || options.format != Format::kJson) return done;
    return show(client, options, output);
  });
}

Outcome checkpoint_place(const Options& options, Output& output) {
  const auto json = input_of(options.input);
  if (!json) return base::pass(json.error());
  const auto process = api::parked_process_of(*json);
  if (!process) return base::pass(process.error());
  return with_client(options, [&](api::Client& client) -> Outcome {
    auto placed = client.place_process(*process);
    if (!placed) return base::pass(std::move(placed).error());
    output.parked(*placed);
    return {};
  });
}

Outcome checkpoint_attach(const Options& options, Output&) {
  const auto json = input_of(options.input);
  if (!json) return base::pass(json.error());
  const auto process = api::parked_process_of(*json);
  if (!process) return base::pass(process.error());
  return with_client(options, [&](api::Client& client) { return client.attach_process(*process); });
}

Outcome checkpoint_resume(const Options& options, Output&) {
  return of_parked(options, &api::Client::resume_process);
}

Outcome checkpoint_abandon(const Options& options, Output&) {
  return of_parked(options, &api::Client::abandon_process);
}

}  // namespace vrdma::cli
