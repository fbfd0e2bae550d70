// The specification by which container engines know vdevices (Container Device Interface): for each
// class a device vrdma.io/device=CLASS, whose only edits are the hooks of vrdma-oci-hook. The hook
// chooses the mounts, because it sees the image, and sets no environment variable, because an edit
// would replace the user's.
#pragma once

#include <string>
#include <vector>

#include "core/base/error.h"

namespace vrdma::cli {

constexpr char kCdiFile[] = "/etc/cdi/vrdma.json";
constexpr char kCdiKind[] = "vrdma.io/device";

struct CdiHook {
  std::string program;  // absolute path of vrdma-oci-hook
  std::string run_dir;  // of vrdmad
};
// JSON with a final newline. Its version is the lowest that the names of the classes need, because
// older engines refuse newer versions. EINVAL: a class whose name CDI does not permit.
[[nodiscard]] base::Result<std::string> cdi_specification(const std::vector<std::string>& classes,
                                                          const CdiHook& hook);

// Replaces a file as a whole, mode 0644, and makes its directory if that is called cdi.
[[nodiscard]] base::Result<void> replace_file(const std::string& path, const std::string& text);

}  // namespace vrdma::cli
