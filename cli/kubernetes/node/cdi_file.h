// The CDI specification that container engines read: which classes it has, and whether their hook
// can run. Its writer is `vrdmactl cdi generate`.
//
// The file is read only if stat(2) shows a change. It is not trusted: any content is an error or a
// set of devices, and a file of more than 1 MiB, or one that is no regular file, is not read.
#pragma once

#include <sys/stat.h>

#include <map>
#include <optional>
#include <set>
#include <string>

#include "core/base/error.h"

namespace vrdma::cli::kubernetes {

// The programs of the hooks of each device. EINVAL: the text is no CDI specification.
using CdiDevices = std::map<std::string, std::set<std::string>>;
[[nodiscard]] base::Result<CdiDevices> parse_cdi(const std::string& text);

class CdiFile {
 public:
  explicit CdiFile(std::string path) : path_(std::move(path)) {}

  // Reads the file if it has changed. Call it before problem().
  void look();
  // Why no container can use the device of this class; empty: one can.
  [[nodiscard]] std::string problem(const std::string& name) const;
  // The program of the hooks, of any device; empty: there is none.
  [[nodiscard]] std::string hook() const;

 private:
  const std::string path_;
  std::optional<struct stat> seen_;
  base::Result<CdiDevices> devices_ = CdiDevices();
};

}  // namespace vrdma::cli::kubernetes
