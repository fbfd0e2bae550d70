// What the dynamic loader would load for a program, which is not started.
#pragma once

#include <optional>
#include <string>

namespace vrdma::cli::doctor {

// The output of ld.so(8) --list; parse_trace() understands it. The loader executes code of a
// program that names libraries for auditing (rtld-audit(7)), so root becomes nobody for it, without
// privileges and terminal. It has 10 s, and 1 MiB. Nothing: nobody may not read the program.
[[nodiscard]] std::optional<std::string> list_libraries(const std::string& path);

}  // namespace vrdma::cli::doctor
