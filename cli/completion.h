// packaging/completion/vrdmactl.bash as a string; completion.cc is made from it by CMake.
#pragma once

namespace vrdma::cli {

extern const char kBashCompletion[];

}  // namespace vrdma::cli
