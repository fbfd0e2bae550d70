// packaging/completion/vrdmactl.bash as a string; CMake generates completion.cc from it.
#pragma once

namespace vrdma::cli {

extern const char kBashCompletion[];

}  // namespace vrdma::cli
