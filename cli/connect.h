// The connection to vrdmad of a command.
#pragma once

#include <cerrno>
#include <string>

#include "api/client.h"
#include "cli/commands.h"

namespace vrdma::cli {

// Calls `work` with a connected client.
template <class Work>
Outcome with_client(const Options& options, Work work) {
  auto client = api::Client::connect(options.run_dir);
  if (client) return work(*client);
  const base::Error& why = client.error();
  const bool is_silent = why.code() == ECONNREFUSED;
  return base::fail(
      why.code(),
      why.message() + (is_silent ? "; start it, or name its run directory with --run-dir" : ""));
}

}  // namespace vrdma::cli
