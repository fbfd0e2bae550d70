#include "cli/doctor/process.h"

#include <elf.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <cstring>
#include <filesystem>
#include <sstream>
#include <system_error>

#include "core/base/fd.h"

namespace vrdma::cli::doctor {

namespace {

std::string link_at(const std::string& path) {
  char target[PATH_MAX];
  const ssize_t length = ::readlink(path.c_str(), target, sizeof target);
  return length > 0 ? std::string(target, static_cast<size_t>(length)) : std::string();
}

std::optional<bool> secure_of(const std::string& auxv) {
  for (size_t at = 0; at + sizeof(Elf64_auxv_t) <= auxv.size(); at += sizeof(Elf64_auxv_t)) {
    Elf64_auxv_t entry{};
    std::memcpy(&entry, auxv.data() + at, sizeof entry);
    if (entry.a_type == AT_SECURE) return entry.a_un.a_val != 0;
  }
  return std::nullopt;
}

std::string variable_in(const std::string& environ, const std::string& name) {
  std::istringstream entries(environ);
  for (std::string entry; std::getline(entries, entry, '\0');)
    if (entry.rfind(name + "=", 0) == 0) return entry.substr(name.size() + 1);
  return {};
}

bool has_thread(const std::string& tasks, const std::string& name) {
  std::error_code ignored;
  for (const auto& task : std::filesystem::directory_iterator(tasks, ignored))
    if (content_of(task.path().string() + "/comm") == name + "\n") return true;
  return false;
}

std::optional<unsigned long long> address_space_of(const std::string& limits) {
  const std::string title = "Max address space";
  const size_t begin = limits.find(title);
  if (begin == std::string::npos) return std::nullopt;
  std::istringstream words(limits.substr(begin + title.size()));
  unsigned long long bytes = 0;
  if (words >> bytes) return bytes;
  return std::nullopt;  // "unlimited"
}

}  // namespace

std::string content_of(const std::string& path, const std::string& root) {
  constexpr size_t kMost = 64u << 20;
  base::Fd found;
  if (root == "/") {
    found = base::Fd(::open(path.c_str(), O_PATH | O_CLOEXEC));
  } else {
    const base::Fd directory(::open(root.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    open_how how{};
    how.flags = O_PATH | O_CLOEXEC;
    how.resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS;
    found = base::Fd(
        static_cast<int>(::syscall(SYS_openat2, directory.get(), path.c_str(), &how, sizeof how)));
  }
  struct stat status {};
  if (!found.valid() || ::fstat(found.get(), &status) != 0 || !S_ISREG(status.st_mode)) return {};
  const std::string same = "/proc/self/fd/" + std::to_string(found.get());
  const base::Fd file(::open(same.c_str(), O_RDONLY | O_NOCTTY | O_CLOEXEC));
  std::string content;
  std::array<char, 1 << 16> part{};
  while (content.size() < kMost) {
    const ssize_t got = ::read(file.get(), part.data(), part.size());
    if (got <= 0) break;
    content.append(part.data(), static_cast<size_t>(got));
  }
  return content;
}

base::Result<Process> look_at_process(pid_t pid) {
  const std::string proc = "/proc/" + std::to_string(pid) + "/";
  const std::string status = content_of(proc + "status");
  if (status.empty()) return base::fail(ESRCH, "there is no process " + std::to_string(pid));
  Process process;
  process.pid = pid;
  process.program = link_at(proc + "exe");
  std::istringstream lines(status);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string title;
    words >> title;
    if (title == "Uid:")
      for (unsigned& id : process.uids) words >> id;
    if (title == "Gid:")
      for (unsigned& id : process.gids) words >> id;
    if (int mode = 0; title == "Seccomp:" && words >> mode) process.seccomp_filter = mode == 2;
  }
  process.secure = secure_of(content_of(proc + "auxv"));
  process.user_namespace = link_at(proc + "ns/user");
  process.network_namespace = link_at(proc + "ns/net");
  process.maps = content_of(proc + "maps");
  const std::string environ = content_of(proc + "environ");
  process.run_dir = variable_in(environ, "VRDMA_RUN_DIR");
  process.memory = variable_in(environ, "VRDMA_MEMORY");
  process.watches_memory = has_thread(proc + "task", "vrdma-memory");
  process.address_space = address_space_of(content_of(proc + "limits"));
  return process;
}

}  // namespace vrdma::cli::doctor
