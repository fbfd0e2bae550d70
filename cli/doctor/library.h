// Identifies the libibverbs.so.1 that a program has mapped or would load.
#pragma once

#include <string>
#include <vector>

#include "cli/doctor/finding.h"

namespace vrdma::cli::doctor {

// The version nodes (IBVERBS_1.14, ...) that the 64-bit ELF file with this content defines, in file
// order. Empty: not such a file, or damaged.
[[nodiscard]] std::vector<std::string> version_nodes(const std::string& elf);

// True if the file with this content is vrdma's drop-in.
[[nodiscard]] bool is_drop_in(const std::string& content);

// "public nodes to IBVERBS_1.14, private IBVERBS_PRIVATE_34".
[[nodiscard]] std::string describe_nodes(const std::vector<std::string>& nodes);

// The libraries in a /proc/PID/maps, as paths in that process's mount namespace.
[[nodiscard]] std::vector<std::string> mapped_libraries(const std::string& maps);

// The loader's report about a program (LD_TRACE_LOADED_OBJECTS).
struct Trace {
  std::string library;  // path of libibverbs.so.1, or of librdmacm.so.1's; empty: not linked
  std::vector<std::string> complaints;  // missing files and version nodes
};
[[nodiscard]] Trace parse_trace(const std::string& text);

// A finding about a library with this content, which is empty if it cannot be read. `path` is only
// printed. `how` begins the sentence: "mapped" or "would be loaded".
[[nodiscard]] Finding judge_library(const std::string& path, const std::string& content,
                                    const std::string& how);

}  // namespace vrdma::cli::doctor
