// The file of `vrdmactl apply`, in TOML:
//
//   set = "lab"                          # the name of the set; "default"
//   [fabric.storage]
//   reach = "network"                    # host, network or wire; host
//   peers = ["10.0.0.0/8"]               # with whom on the network; all
//   [parent.soft]                        # as a tenant
//   [tenant.red]
//   default = { qp = 64 }                # limits of a vdevice whose quota does not set them
//   ceiling = { qp = 1000, mr_bytes = "64g" }
//   overcommit = 150                     # percent; 100
//   [[vdev]]
//   name = "a0"                          # required, as netns and netdev
//   netns = "red"
//   netdev = "eth0"
//   parent = "soft"
//   tenant = "red"                       # its own
//   fabric = "storage"                   # the tenant's own
//   quota = { qp = 64, bandwidth = "10gbit" }
//   allow = ["raw-packet"]
//   addresses = ["10.0.0.0/24"]
//   no_direct = true
//   gid_layout = "mlx5"
//   labels = { team = "x" }
//
// An object of the file is described completely: what it does not set has its default. Objects that
// the file does not mention are none of its business.
#pragma once

#include <string>
#include <vector>

#include "cli/apply/objects.h"

namespace vrdma::cli::apply {

inline constexpr size_t kMostBytes = 16u << 20;  // of a file

struct Mistake {
  Line line = 0;
  std::string sentence;
  bool operator==(const Mistake&) const = default;
};

struct Parsed {
  File file;
  std::vector<Mistake> mistakes;  // by line; if there are any, `file` is of no use
};

// TOML's parser ends at the first mistake of syntax; all others are found at once.
[[nodiscard]] Parsed parse(const std::string& text);

// "/run/netns/red" is "red".
[[nodiscard]] std::string short_netns(const std::string& netns);

}  // namespace vrdma::cli::apply
