// Which libibverbs.so.1 a program has or would get, and what that is.
#pragma once

#include <string>
#include <vector>

#include "cli/doctor/finding.h"

namespace vrdma::cli::doctor {

// Names of the version nodes that a 64-bit ELF file of this content defines (IBVERBS_1.14, ...), in
// the order of the file. Empty: it is no such file, or damaged.
[[nodiscard]] std::vector<std::string> version_nodes(const std::string& elf);

// Whether a file of this content is the drop-in of vrdma.
[[nodiscard]] bool is_drop_in(const std::string& content);

// "public nodes to IBVERBS_1.14, private IBVERBS_PRIVATE_34".
[[nodiscard]] std::string describe_nodes(const std::vector<std::string>& nodes);

// Of a process: what /proc/PID/maps shows, as paths in that process's mount namespace.
[[nodiscard]] std::vector<std::string> mapped_libraries(const std::string& maps);

// What the loader says of a program (LD_TRACE_LOADED_OBJECTS).
struct Trace {
  std::string library;  // path of libibverbs.so.1, or of librdmacm.so.1's; empty: it is not linked
  std::vector<std::string> complaints;  // missing files and version nodes
};
[[nodiscard]] Trace parse_trace(const std::string& text);

// Findings about the library at `path`, a name for people of a file with this content, which is
// empty if it cannot be read. `how` begins the sentence: "mapped" or "would be loaded".
[[nodiscard]] Finding judge_library(const std::string& path, const std::string& content,
                                    const std::string& how);

}  // namespace vrdma::cli::doctor
