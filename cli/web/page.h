// The files of the page, which are in the program.
#pragma once

#include <string>

namespace vrdma::cli::web {

struct File {
  std::string content;
  const char* type;
};

// By the path of the request: "/", "/page.css", "/page.js". Null: there is no such file.
[[nodiscard]] const File* find_file(const std::string& path);

}  // namespace vrdma::cli::web
