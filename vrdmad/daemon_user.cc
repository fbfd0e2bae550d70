#include "vrdmad/daemon_user.h"

#include <fcntl.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>

#include "core/base/fd.h"

namespace vrdma::vrdmad {

namespace fs = std::filesystem;

using base::fail;
using base::fail_errno;
using base::Fd;
using base::pass;
using base::Result;

namespace {

bool has_range(const char* map, uint64_t first, uint64_t wanted) {
  std::ifstream file(map);
  for (uint64_t inside = 0, outside = 0, count = 0; file >> inside >> outside >> count;)
    if (first >= inside && first + wanted <= inside + count) return true;
  return false;
}

// Opens a directory. No other user than root can have replaced a part of its path: no part is a
// link, and each belongs to root and can be written by no other user, or has the sticky bit. Makes
// missing parts. Returns no descriptor if another user can have replaced a part.
Result<Fd> open_roots(const fs::path& path) {
  Fd at(::open("/", O_PATH | O_DIRECTORY | O_CLOEXEC));
  for (const fs::path& part : path.relative_path()) {
    if (part.empty()) continue;
    if (::mkdirat(at.get(), part.c_str(), 0755) != 0 && errno != EEXIST && errno != EROFS)
      return fail_errno("make " + path.string());
    at = Fd(::openat(at.get(), part.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
    struct stat status {};
    if (!at.valid() || ::fstat(at.get(), &status) != 0) return fail_errno("open " + path.string());
    const bool others = (status.st_mode & (S_IWGRP | S_IWOTH)) != 0;
    if (!S_ISDIR(status.st_mode) || status.st_uid != ::geteuid() ||
        (others && (status.st_mode & S_ISVTX) == 0))
      return Fd();
  }
  return at;
}

bool matches(const std::string& pattern, const std::string& name) {
  if (pattern.ends_with('*')) return name.starts_with(pattern.substr(0, pattern.size() - 1));
  return name == pattern;
}

// All that is in the directory. EPERM: others can write to it, or have files there.
Result<std::vector<std::string>> names_of_ours(const fs::path& path,
                                               const OwnDirectory& directory) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return fail_errno("look at " + path.string());
  if ((status.st_mode & (S_IWGRP | S_IWOTH)) != 0)
    return fail(EPERM,
                path.string() + " is writable by other users: choose a directory of vrdmad's own");
  std::vector<std::string> all;
  std::error_code error;
  // The directory may change meanwhile, so nothing that throws an exception is used.
  for (fs::directory_iterator entry(path, error); !error && entry != fs::directory_iterator();
       entry.increment(error)) {
    const std::string each = entry->path().filename();
    if (each == directory.kept) continue;
    if (std::none_of(directory.ours.begin(), directory.ours.end(),
                     [&](const std::string& pattern) { return matches(pattern, each); }))
      return fail(EPERM,
                  path.string() + " has files of others (" + each + "): choose another directory");
    all.push_back(entry->path());
    std::error_code vanished;
    if (entry->symlink_status(vanished).type() != fs::file_type::directory) continue;
    for (fs::recursive_directory_iterator below(entry->path(), error);
         !error && below != fs::recursive_directory_iterator(); below.increment(error))
      all.push_back(below->path());
  }
  if (error) return fail(error.value(), "read " + path.string() + ": " + error.message());
  return all;
}

}  // namespace

bool are_mapped(uid_t first, unsigned count) {
  return has_range("/proc/self/uid_map", first, count) &&
         has_range("/proc/self/gid_map", first, count);
}

Result<User> find_user(const std::string& name) {
  User user;
  const passwd* entry = ::getpwnam(name.c_str());
  if (entry == nullptr) {
    const char* const end = name.data() + name.size();
    const auto number = std::from_chars(name.data(), end, user.uid);
    if (number.ec != std::errc() || number.ptr != end)
      return fail(ENOENT, "there is no user '" + name + "'");
    user.gid = user.uid;  // unless the number is that of a known user
    entry = ::getpwuid(user.uid);
  }
  if (entry != nullptr) user = {entry->pw_uid, entry->pw_gid};
  if (!has_range("/proc/self/uid_map", user.uid, 1) ||
      !has_range("/proc/self/gid_map", user.gid, 1))
    return fail(EINVAL, "this user namespace has no user " + std::to_string(user.uid));
  return user;
}

Result<void> check_own(const OwnDirectory& directory) {
  struct stat status {};
  if (::stat(directory.path.c_str(), &status) != 0 || status.st_uid != ::geteuid()) return {};
  auto all = names_of_ours(directory.path, directory);
  if (!all) return pass(std::move(all).error());
  return {};
}

Result<void> give(const OwnDirectory& directory, const User& user) {
  std::error_code error;
  const fs::path path = fs::absolute(directory.path, error).lexically_normal();
  if (user.uid == ::geteuid()) {
    if (!fs::create_directories(path, error) && error)
      return fail(error.value(), "make " + path.string() + ": " + error.message());
    return {};
  }
  auto parent = open_roots(path.parent_path());
  if (!parent) return pass(std::move(parent).error());
  if (!parent->valid()) return {};
  const std::string name = path.filename();
  if (::mkdirat(parent->get(), name.c_str(), directory.mode) != 0 && errno != EEXIST)
    return fail_errno("make the directory " + path.string());
  const Fd top(
      ::openat(parent->get(), name.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct stat status {};
  if (!top.valid() || ::fstat(top.get(), &status) != 0 || status.st_uid != ::geteuid()) return {};
  auto all = names_of_ours(path, directory);
  if (!all) return pass(std::move(all).error());
  all->push_back(path);
  for (const std::string& each : *all) {
    // A second name of a file may be that of a file elsewhere.
    if (::lstat(each.c_str(), &status) == 0 && !S_ISDIR(status.st_mode) && status.st_nlink > 1)
      continue;
    if (::lchown(each.c_str(), user.uid, user.gid) != 0 && errno != ENOENT)
      return fail_errno("give " + each + " to user " + std::to_string(user.uid));
  }
  return {};
}

Result<void> give_file(const std::string& path, const User& user) {
  if (user.uid == ::geteuid()) return {};
  std::error_code error;
  const fs::path whole = fs::absolute(path, error).lexically_normal();
  auto directory = open_roots(whole.parent_path());
  if (!directory) return pass(std::move(directory).error());
  if (!directory->valid()) return {};
  const Fd file(::openat(directory->get(), whole.filename().c_str(),
                         O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC,
                         0600));
  struct stat status {};
  if (!file.valid() || ::fstat(file.get(), &status) != 0) return fail_errno("open " + path);
  if (!S_ISREG(status.st_mode) || status.st_nlink > 1 || status.st_uid != ::geteuid()) return {};
  if (::fchown(file.get(), user.uid, user.gid) != 0)
    return fail_errno("give " + path + " to user " + std::to_string(user.uid));
  return {};
}

}  // namespace vrdma::vrdmad
