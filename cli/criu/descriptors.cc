#include "cli/criu/descriptors.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <sstream>

namespace vrdma::cli::criu {

namespace {

std::vector<int> entries_of(const std::string& path) {
  std::vector<int> all;
  const std::unique_ptr<DIR, int (*)(DIR*)> listing(::opendir(path.c_str()), ::closedir);
  while (const dirent* entry = listing != nullptr ? ::readdir(listing.get()) : nullptr)
    if (entry->d_name[0] != '.') all.push_back(std::atoi(entry->d_name));
  return all;
}

void read_info(const std::string& path, Descriptor* one) {
  std::ifstream info(path);
  for (std::string line; std::getline(info, line);) {
    if (line.rfind("eventfd-id:", 0) == 0) one->eventfd = std::stoull(line.substr(11)) + 1;
    if (line.rfind("flags:", 0) == 0)
      one->writable = (std::stoul(line.substr(6), nullptr, 8) & O_ACCMODE) != O_RDONLY;
  }
}

}  // namespace

std::vector<pid_t> threads_of(pid_t pid) {
  return entries_of("/proc/" + std::to_string(pid) + "/task");
}

std::string status_of(pid_t pid, const std::string& key) {
  std::ifstream status("/proc/" + std::to_string(pid) + "/status");
  for (std::string line; std::getline(status, line);)
    if (line.rfind(key + ":", 0) == 0) return line.substr(key.size() + 1);
  return {};
}

std::vector<Descriptor> descriptors_of(pid_t pid, pid_t thread) {
  const std::string folder = "/proc/" + std::to_string(pid) +
                             (thread != 0 ? "/task/" + std::to_string(thread) : std::string());
  std::vector<Descriptor> all;
  for (const int number : entries_of(folder + "/fd")) {
    const std::string path = folder + "/fd/" + std::to_string(number);
    char target[4096];
    const ssize_t length = ::readlink(path.c_str(), target, sizeof target);
    if (length < 0) continue;
    Descriptor one;
    one.number = number;
    one.target.assign(target, static_cast<size_t>(length));
    // Not of other files: a file system of the program's own may take as long as it likes.
    struct stat status {};
    const bool is_own = one.target.rfind("/memfd:", 0) == 0 || one.target.rfind("socket:", 0) == 0;
    if (is_own && ::stat(path.c_str(), &status) == 0) one.inode = status.st_ino;
    read_info(folder + "/fdinfo/" + std::to_string(number), &one);
    all.push_back(std::move(one));
  }
  return all;
}

std::vector<pid_t> tree_of(pid_t pid) {
  std::vector<pid_t> all{pid};
  for (size_t i = 0; i < all.size(); ++i)
    for (const pid_t thread : threads_of(all[i])) {
      std::ifstream children("/proc/" + std::to_string(all[i]) + "/task/" + std::to_string(thread) +
                             "/children");
      for (pid_t child = 0; children >> child;) all.push_back(child);
    }
  return all;
}

std::vector<int> numbers_of(const std::vector<Descriptor>& all, uint64_t inode) {
  std::vector<int> numbers;
  for (const Descriptor& one : all)
    if (inode != 0 && one.inode == inode) numbers.push_back(one.number);
  return numbers;
}

std::vector<EpollEntry> epolls_of(pid_t pid) {
  const std::string folder = "/proc/" + std::to_string(pid) + "/fdinfo";
  std::vector<EpollEntry> all;
  for (const int number : entries_of(folder)) {
    std::ifstream info(folder + "/" + std::to_string(number));
    for (std::string line; std::getline(info, line);) {
      EpollEntry one;
      one.epoll = number;
      unsigned long long data = 0;
      if (std::sscanf(line.c_str(), "tfd: %d events: %x data: %llx", &one.number, &one.events,
                      &data) != 3)
        continue;
      one.data = data;
      all.push_back(one);
    }
  }
  return all;
}

std::vector<MappedFile> mapped_files_of(pid_t pid) {
  std::vector<MappedFile> all;
  std::ifstream maps("/proc/" + std::to_string(pid) + "/maps");
  for (std::string line; std::getline(maps, line);) {
    std::istringstream words(line);
    MappedFile one;
    char dash = 0;
    std::string protection, device;
    words >> std::hex >> one.start >> dash >> one.end >> protection >> one.offset >> device >>
        std::dec >> one.inode >> one.name;
    if (one.name.rfind("/memfd:vrdma-", 0) != 0 || protection.size() < 3) continue;
    one.protection = (protection[0] == 'r' ? PROT_READ : 0) |
                     (protection[1] == 'w' ? PROT_WRITE : 0) |
                     (protection[2] == 'x' ? PROT_EXEC : 0);
    all.push_back(std::move(one));
  }
  return all;
}

}  // namespace vrdma::cli::criu
