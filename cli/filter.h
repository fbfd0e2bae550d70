// Which vdevices a list contains: those of all the given properties.
#pragma once

#include <vrdma/v1/admin.pb.h>

#include <string>
#include <vector>

namespace vrdma::cli {

struct Filter {
  std::string tenant = {}, netns = {}, fabric = {};  // empty: any
  std::string state = {};                // of the vdevice; of the row in lists of other objects
  std::vector<std::string> labels = {};  // each KEY or KEY=VALUE

  // Whether it asks for anything of the vdevice, with the state or without.
  [[nodiscard]] bool is_set(bool with_state) const;
  // A netns fits if it is the text that the vdevice was created with; a name also fits its path
  // below /run/netns.
  [[nodiscard]] bool fits(const v1::Vdev& vdev, bool with_state) const;
};

}  // namespace vrdma::cli
