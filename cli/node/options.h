// The command line of vrdma-node.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace vrdma::cli::node {

struct Options {
  std::string root;                  // where the node's file system is seen; empty: it is ours
  std::string place = "/opt/vrdma";  // these are paths on the node
  std::string cdi, run_dir;
  std::string classes;  // as we see it
  std::string runtime;  // a socket, as we see it; empty: it is not asked
  bool keep = false;
};

// Adds the subcommands and their options.
void add_options(CLI::App& app, Options& options);

}  // namespace vrdma::cli::node
