// rdma(8) with vdevices: see README.md.
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <sstream>

#include "cli/rdma/command.h"

namespace {

// Another program of that name; returns only if there is none.
void run_next(char** argv) {
  struct stat self {};
  if (::stat("/proc/self/exe", &self) != 0) return;
  const char* const path = std::getenv("PATH");
  std::istringstream directories(path != nullptr ? path : "/usr/sbin:/usr/bin:/sbin:/bin");
  for (std::string directory; std::getline(directories, directory, ':');) {
    const std::string program = (directory.empty() ? "." : directory) + "/rdma";
    struct stat found {};
    if (::stat(program.c_str(), &found) != 0 ||
        (found.st_dev == self.st_dev && found.st_ino == self.st_ino))
      continue;
    ::execv(program.c_str(), argv);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const auto answer = vrdma::cli::rdma::answer({argv + 1, argv + argc}, "/sys");
  if (!answer) {
    run_next(argv);
    std::fputs(
        "rdma: this is about no vdevice, and there is no other rdma in the PATH (iproute2 has "
        "one); "
        "of vdevices there are: dev, link, resource, statistic\n",
        stderr);
    return 1;
  }
  std::fputs(answer->output.c_str(), answer->status == 0 ? stdout : stderr);
  if (std::fflush(stdout) != 0) return 1;
  return answer->status;
}
