#include "cli/sandbox/demo.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <string>

#include "cli/run_program.h"
#include "cli/sandbox/options.h"
#include "cli/sandbox/process.h"

namespace vrdma::cli::sandbox {

namespace {

struct Scene {
  const char* name;
  Words options;
  const char* why;
};

const std::array<Scene, 3> kScenes{{
    {"one tenant", {}, "Each stores into the other's memory; no third process takes part."},
    {"two tenants",
     {"--two-tenants"},
     "Neither may touch the other's memory: a worker of vrdmad carries out each request."},
    {"a bad network",
     {"--loss", "1"},
     "Packets of RoCE v2, as between two hosts; 1 % of them are lost and sent again."},
}};

constexpr double kBusy = 5'000;  // nanoseconds

// Runs a program with its standard output in a pipe. Returns its exit status.
int run_and_read(const Words& words, std::string* output) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0)
    return complain(std::string("pipe: ") + std::strerror(errno));
  const base::Fd out(ends[0]);
  base::Fd in(ends[1]);
  const pid_t parent = ::getpid(), child = ::fork();
  if (child < 0) return complain(std::string("cannot start a process: ") + std::strerror(errno));
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(kFailed);
    ::dup2(in.get(), STDOUT_FILENO);
    ::_exit(run_program("vrdma-sandbox", words));
  }
  in.reset();
  std::array<char, 512> text{};
  for (ssize_t size; (size = ::read(out.get(), text.data(), text.size())) > 0;)
    output->append(text.data(), static_cast<size_t>(size));
  return wait_for(child);
}

// `half_trip`: nanoseconds of half a round trip.
int show(const Scene& scene, const Programs& programs, double* half_trip) {
  Words words{programs.self, "--pair"};
  std::string options;
  for (const auto& option : scene.options) {
    words.push_back(option);
    options += " " + option;
  }
  words.insert(words.end(), {"--", programs.pingpong, "--", programs.pingpong, "10.0.0.1"});
  std::string output;
  const int status = run_and_read(words, &output);
  double nanoseconds = 0, rate = 0;
  if (status != 0) return status;
  if (std::sscanf(output.c_str(), "%lf %lf", &nanoseconds, &rate) != 2)
    return complain("the programs of --demo have not measured anything");
  std::printf("%-14s %10.2f us %10.2f GiB/s\n    %s\n    $ vrdma-sandbox --pair%s -- %s\n",
              scene.name, nanoseconds / 1000, rate / (1 << 30), scene.why, options.c_str(),
              "ib_send_lat -- ib_send_lat 10.0.0.1");
  std::fflush(stdout);
  *half_trip = nanoseconds;
  return 0;
}

}  // namespace

int show_demo(const Programs& programs) {
  if (::access(programs.pingpong.c_str(), X_OK) != 0)
    return complain(programs.pingpong + " cannot be run (" + std::strerror(errno) +
                    "): build or install all of vrdma");
  std::printf(
      "Two programs, each with a network namespace and a vdevice of its own, use RDMA verbs: they "
      "send\n"
      "8 bytes to and fro (half a round trip, the median), and then write blocks of 1 MiB.\n\n");
  std::fflush(stdout);
  int first = 0;
  double least = kBusy;
  for (const Scene& scene : kScenes) {
    double half_trip = kBusy;
    const int status = show(scene, programs, &half_trip);
    if (status > kBySignal) return status;
    if (first == 0) first = status;
    least = std::min(least, half_trip);
  }
  if (first == 0 && least >= kBusy)
    std::puts(
        "\nOther programs kept the processors busy: one tenant needs less than 1 us if each of its "
        "two\nprograms has a processor. Try again on an idle machine.");
  return first;
}

}  // namespace vrdma::cli::sandbox
