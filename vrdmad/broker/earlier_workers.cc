#include "vrdmad/broker/earlier_workers.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <csignal>
#include <memory>
#include <string>
#include <vector>

namespace vrdma::vrdmad {

namespace {

using base::Fd;

// The names in a directory of /proc that are numbers.
std::vector<std::string> numbers_in(const std::string& path) {
  std::vector<std::string> all;
  const std::unique_ptr<DIR, int (*)(DIR*)> directory(::opendir(path.c_str()), ::closedir);
  if (directory == nullptr) return all;
  while (const dirent* const entry = ::readdir(directory.get()))
    if (std::isdigit(static_cast<unsigned char>(entry->d_name[0])) != 0)
      all.emplace_back(entry->d_name);
  return all;
}

// A tenant's root may be of a file system that does not answer, so that is not asked.
bool look_at_root(const std::string& task, struct statx* root) {
  return ::statx(AT_FDCWD, (task + "/root").c_str(), AT_STATX_DONT_SYNC, STATX_INO, root) == 0;
}
bool is_same(const struct statx& one, const struct statx& other) {
  return one.stx_ino == other.stx_ino && one.stx_dev_major == other.stx_dev_major &&
         one.stx_dev_minor == other.stx_dev_minor;
}

// Also of a process whose first thread has ended, and so has none, and others have not.
bool has_root(const std::string& process, const struct statx& root) {
  struct statx its {};
  if (look_at_root(process, &its)) return is_same(its, root);
  if (errno != ENOENT) return false;
  const std::string tasks = process + "/task/";
  const auto all = numbers_in(tasks);
  return std::any_of(all.begin(), all.end(), [&](const std::string& task) {
    return look_at_root(tasks + task, &its) && is_same(its, root);
  });
}

}  // namespace

void end_earlier_workers(const Fd& root, std::chrono::milliseconds patience) {
  struct statx its {};
  if (::statx(root.get(), "", AT_EMPTY_PATH, STATX_INO, &its) != 0) return;
  std::vector<Fd> earlier;
  for (const std::string& process : numbers_in("/proc")) {
    const std::string path = "/proc/" + process;
    if (!has_root(path, its)) continue;
    Fd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, std::stoi(process), 0)));
    // Its number may be another's by now, but not while the pidfd is open.
    if (!pidfd.valid() || !has_root(path, its)) continue;
    (void)::syscall(SYS_pidfd_send_signal, pidfd.get(), SIGKILL, nullptr, 0);
    earlier.push_back(std::move(pidfd));
  }
  const auto until = std::chrono::steady_clock::now() + patience;
  for (const Fd& each : earlier) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        until - std::chrono::steady_clock::now());
    pollfd end{each.get(), POLLIN, 0};
    (void)::poll(&end, 1, static_cast<int>(std::max<int64_t>(left.count(), 0)));
  }
}

}  // namespace vrdma::vrdmad
