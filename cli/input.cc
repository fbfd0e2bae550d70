#include "cli/input.h"

#include <cerrno>
#include <fstream>
#include <iostream>

#include "cli/apply/file.h"
#include "core/base/printable.h"

namespace vrdma::cli {

std::string name_of_file(const std::string& path) {
  return path == "-" ? "standard input" : base::printable(path);
}

base::Result<std::string> input_of(const std::string& path) {
  std::ifstream file;
  if (path != "-") file.open(path);
  std::istream& in = path == "-" ? std::cin : file;
  std::string text(apply::kMostBytes + 1, '\0');
  if (in) in.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (in.bad() || (in.fail() && !in.eof())) return base::fail_errno("read " + name_of_file(path));
  text.resize(static_cast<size_t>(in.gcount()));
  if (text.size() > apply::kMostBytes)
    return base::fail(EFBIG, name_of_file(path) + " has more than 16 MiB");
  return text;
}

}  // namespace vrdma::cli
