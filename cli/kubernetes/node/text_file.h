// Files that others write.
#pragma once

#include <string>

#include "core/base/error.h"

namespace vrdma::cli::kubernetes {

// EFBIG: it has more than `most` bytes. Does not wait for the writer of a pipe.
[[nodiscard]] base::Result<std::string> read_text_file(const std::string& path, size_t most);

}  // namespace vrdma::cli::kubernetes
