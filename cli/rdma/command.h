// The command line of rdma, as far as it is about vdevices.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace vrdma::cli::rdma {

struct Answer {
  int status = 0;
  std::string output;  // to standard output, or with a status that is not 0 to standard error
};

// `words`: the arguments after the program's name. None: it is another rdma's to answer.
[[nodiscard]] std::optional<Answer> answer(const std::vector<std::string>& words,
                                           const std::string& sys);

}  // namespace vrdma::cli::rdma
