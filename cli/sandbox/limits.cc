#include "cli/sandbox/limits.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <string>
#include <thread>

#include "core/base/fd.h"

namespace vrdma::cli::sandbox {

namespace {

using base::fail;
using base::Fd;
using base::Result;

constexpr rlim_t kKib = 1024, kMib = kKib << 10, kGib = kMib << 10;

// The process that opens a device, and the worker for each program that it serves.
constexpr rlim_t kOfSession = 10 * kGib;
constexpr rlim_t kData = 256 * kMib;  // vrdmad takes some 150 MiB
// vrdmad has 44, and 54 for each vdevice; it keeps some back, for what it cannot do without.
constexpr rlim_t kFiles = 192, kFilesOfVdevice = 64;
// gRPC starts two for each processor, up to 16, in vrdmad and in vrdmactl.
constexpr unsigned kThreads = 60, kThreadsOfCommand = 10, kThreadsOfWorker = 5;
constexpr unsigned kThreadsOfProcessor = 2, kMostProcessors = 16;

[[noreturn]] void* wait_for_end(void*) {
  for (;;) ::pause();
}

// Writes a byte for each thread that it starts.
[[noreturn]] void start_threads(unsigned wanted, int report) {
  pthread_attr_t small;
  ::pthread_attr_init(&small);
  ::pthread_attr_setstacksize(&small, std::max<size_t>(PTHREAD_STACK_MIN, 16 * kKib));
  for (unsigned i = 0; i < wanted; ++i) {
    pthread_t thread{};
    if (::pthread_create(&thread, &small, wait_for_end, nullptr) != 0) break;
    if (::write(report, "t", 1) != 1) break;
  }
  ::_exit(0);
}

std::string kib(rlim_t bytes) { return std::to_string(bytes / kKib); }

}  // namespace

Needs needs_of(const Options& options) {
  const unsigned commands = options.pair || options.demo ? 2 : 1;
  const unsigned vdevices = options.demo ? 2 : options.vdevices;
  const unsigned tenants = options.two_tenants || options.demo ? vdevices : 1;
  const unsigned processors = std::min(std::thread::hardware_concurrency(), kMostProcessors);
  return {kFiles + kFilesOfVdevice * vdevices, kOfSession * commands, kData,
          kThreads + kThreadsOfProcessor * processors + kThreadsOfCommand * (commands - 1) +
              kThreadsOfWorker * (tenants - 1)};
}

Limits limits_of_this_process() {
  rlimit files{}, address_space{}, data{}, file_size{};
  ::getrlimit(RLIMIT_NOFILE, &files);
  ::getrlimit(RLIMIT_AS, &address_space);
  ::getrlimit(RLIMIT_DATA, &data);
  ::getrlimit(RLIMIT_FSIZE, &file_size);
  // vrdmad raises its own to the hard limit.
  return {files.rlim_max, address_space.rlim_cur, data.rlim_cur, file_size.rlim_cur};
}

Result<void> compare(const Needs& needs, const Limits& limits, unsigned startable) {
  if (limits.files < needs.files)
    return fail(EMFILE, "ulimit -Hn is " + std::to_string(limits.files) + ", and vrdmad needs " +
                            std::to_string(needs.files) +
                            " open files for this sandbox: raise the hard limit (of a container: "
                            "--ulimit nofile=" +
                            std::to_string(needs.files) + ")");
  if (limits.address_space < needs.address_space)
    return fail(ENOMEM, "ulimit -v is " + kib(limits.address_space) +
                            " KiB, and a process of this sandbox may need " +
                            kib(needs.address_space) +
                            " KiB of address space, which is not memory: ulimit -v unlimited");
  if (limits.data < needs.data)
    return fail(ENOMEM, "ulimit -d is " + kib(limits.data) + " KiB, and vrdmad needs " +
                            kib(needs.data) + " KiB of data: ulimit -d unlimited");
  if (limits.file_size != RLIM_INFINITY)
    return fail(EFBIG, "ulimit -f is " + kib(limits.file_size) +
                           " KiB, and vrdmad makes sparse files in memory that are larger than "
                           "any disk: ulimit -f unlimited");
  if (startable < needs.threads)
    return fail(EAGAIN,
                "no more than " + std::to_string(startable) +
                    " processes and threads can be started here, and a sandbox needs " +
                    std::to_string(needs.threads) +
                    ": raise ulimit -u, which counts all processes of this user (of a container: "
                    "--pids-limit), or end some");
  return {};
}

unsigned startable_threads(unsigned wanted) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return 0;
  const Fd report(ends[0]);
  Fd its(ends[1]);
  const pid_t child = ::fork();
  if (child == 0) start_threads(wanted - 1, its.get());
  if (child < 0) return 0;
  its.reset();
  unsigned started = 1;  // the process
  std::array<char, 64> bytes{};
  for (ssize_t got; (got = ::read(report.get(), bytes.data(), bytes.size())) > 0;)
    started += static_cast<unsigned>(got);
  ::waitpid(child, nullptr, 0);
  return started;
}

}  // namespace vrdma::cli::sandbox
