// The specifications by which container engines know vdevices (Container Device Interface): for
// each class a device vrdma.io/device=CLASS, and for each share of a claim a device
// vrdma.io/claim=UID-SHARE. The only edits of a device are the hooks of vrdma-oci-hook. The hook
// chooses the mounts, because it sees the image, and sets no environment variable, because an edit
// would replace the user's.
#pragma once

#include <string>
#include <vector>

#include "core/base/error.h"

namespace vrdma::cli {

constexpr char kCdiFile[] = "/etc/cdi/vrdma.json";
constexpr char kCdiKind[] = "vrdma.io/device";
constexpr char kCdiClaimKind[] = "vrdma.io/claim";

struct CdiHook {
  std::string program;  // absolute path of vrdma-oci-hook
  std::string run_dir;  // of vrdmad
};
// JSON with a final newline. Its version is the lowest that the names of the classes need, because
// older engines refuse newer versions. EINVAL: a class whose name CDI does not permit.
[[nodiscard]] base::Result<std::string> cdi_specification(const std::vector<std::string>& classes,
                                                          const CdiHook& hook);

// The CDI device of a share, in the kind kCdiClaimKind.
[[nodiscard]] std::string claim_device(const std::string& uid, const std::string& share);
// The same as cdi_specification() for one claim, whose file is vrdma.io-claim-UID.json. `uid` and
// `shares`: as Claim.uid in admin.proto, which CDI permits for devices and file names.
[[nodiscard]] std::string claim_specification(const CdiHook& hook, const std::string& uid,
                                              const std::vector<std::string>& shares);

// Replaces a file as a whole, mode 0644, and makes its directory if that is called cdi.
[[nodiscard]] base::Result<void> replace_file(const std::string& path, const std::string& text);

}  // namespace vrdma::cli
