#include "cli/kubernetes/plugin/socket_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <tuple>

#include "cli/kubernetes/plugin/names.h"
#include "core/base/hex.h"

namespace vrdma::cli::kubernetes {

namespace {

constexpr size_t kMostOfLabel = 40;
constexpr std::string_view kEnd = ".sock";

// The files of the resource. mtime is when a socket was made: later changes of its owner or mode
// change only ctime.
std::vector<Instance> instances(const std::string& directory, const std::string& stem) {
  std::vector<Instance> found;
  std::error_code error;
  for (auto it = std::filesystem::directory_iterator(directory, error);
       !error && it != std::filesystem::directory_iterator(); it.increment(error)) {
    const std::string name = it->path().filename();
    struct stat status {};
    if (is_socket_of(stem, name) && ::lstat(it->path().c_str(), &status) == 0 &&
        S_ISSOCK(status.st_mode))
      found.push_back({name, serve::nanoseconds_of(status.st_mtim)});
  }
  return found;
}

}  // namespace

std::string socket_stem(const std::string& domain, const std::string& class_name) {
  // No class has a '+' in its name.
  const std::string label = domain == kDefaultDomain ? class_name : domain + "+" + class_name;
  return "vrdma-" + shorten(label, kMostOfLabel, '~');
}

std::string socket_file_name(const std::string& stem, uint32_t random) {
  char digits[9];
  (void)std::snprintf(digits, sizeof digits, "%08x", random);
  return stem + "@" + digits + std::string(kEnd);
}

bool is_socket_of(const std::string& stem, const std::string& file_name) {
  const std::string_view name = file_name;
  if (name.size() != stem.size() + 9 + kEnd.size() || !name.starts_with(stem + "@") ||
      !name.ends_with(kEnd))
    return false;
  return base::is_hex(name.substr(stem.size() + 1, 8));
}

bool is_younger(const Instance& a, const Instance& b) {
  return std::tie(a.made, a.file_name) > std::tie(b.made, b.file_name);
}

base::Result<SocketFile> SocketFile::listen(const std::string& directory, const std::string& stem,
                                            uint32_t random) {
  const std::string name = socket_file_name(stem, random);
  const std::string path = directory + "/" + name;
  auto fd = serve::listen_at(path);
  if (!fd) return base::pass(std::move(fd).error());
  SocketFile made(directory, stem, std::move(*fd), {name, 0});
  made.id_ = serve::file_at(path);
  struct stat status {};
  if (::lstat(path.c_str(), &status) == 0) made.self_.made = serve::nanoseconds_of(status.st_mtim);
  return made;
}

SocketFile::SocketFile(SocketFile&& other) noexcept
    : directory_(std::move(other.directory_)),
      stem_(std::move(other.stem_)),
      listener_(std::move(other.listener_)),
      self_(std::move(other.self_)),
      id_(std::exchange(other.id_, std::nullopt)) {}

SocketFile::~SocketFile() {
  if (in_place()) ::unlink((directory_ + "/" + name()).c_str());
}

bool SocketFile::in_place() const {
  const auto now = serve::file_at(directory_ + "/" + name());
  return id_ && now && now->device == id_->device && now->inode == id_->inode;
}

Younger SocketFile::younger() const {
  Younger found;
  for (const Instance& other : instances(directory_, stem_)) {
    if (!is_younger(other, self_)) continue;
    found.files.insert(other.file_name);
    found.listens |= !serve::is_stale(directory_ + "/" + other.file_name);
  }
  return found;
}

void remove_stale(const std::string& directory, const std::string& stem) {
  for (const auto& each : instances(directory, stem))
    if (const std::string path = directory + "/" + each.file_name; serve::is_stale(path))
      ::unlink(path.c_str());
}

}  // namespace vrdma::cli::kubernetes
