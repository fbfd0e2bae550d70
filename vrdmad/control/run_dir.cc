#include "vrdmad/control/run_dir.h"

#include <endian.h>
#include <fcntl.h>
#include <linux/posix_acl.h>
#include <linux/posix_acl_xattr.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include <array>
#include <filesystem>
#include <string_view>
#include <utility>
#include <vector>

namespace vrdma::vrdmad {

namespace fs = std::filesystem;

namespace {

base::Result<void> set_mode(const std::string& path, mode_t mode) {
  if (::chmod(path.c_str(), mode) != 0) return base::fail_errno("set the mode of " + path);
  return {};
}

// Makes a directory of mode 0755 regardless of the umask, or checks that no other user can write to
// an existing one.
base::Result<void> make_dir(const std::string& path) {
  if (::mkdir(path.c_str(), 0755) == 0) return set_mode(path, 0755);
  if (errno != EEXIST) return base::fail_errno("make the directory " + path);
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return base::fail_errno("stat " + path);
  if (!S_ISDIR(status.st_mode)) return base::fail(ENOTDIR, path + " is not a directory");
  if (status.st_uid != ::geteuid())
    return base::fail(EPERM,
                      path + " belongs to another user (uid " + std::to_string(status.st_uid) +
                          "): choose that user with --user, or remove the directory while no "
                          "program uses it");
  if ((status.st_mode & (S_IWGRP | S_IWOTH)) != 0)
    return base::fail(EPERM, path + " is writable by other users");
  return {};
}

// The process id of the daemon that took the lock; empty: it has not written it yet.
std::string holder_of(const base::Fd& lock) {
  std::array<char, 16> text{};
  const ssize_t length = ::pread(lock.get(), text.data(), text.size(), 0);
  std::string_view pid(text.data(), length > 0 ? static_cast<size_t>(length) : 0);
  return std::string(pid.substr(0, pid.find_first_not_of("0123456789")));
}

tl::unexpected<base::Error> in_use(const std::string& dir, const base::Fd& lock) {
  const std::string pid = holder_of(lock);
  return base::fail(EBUSY, "another vrdmad" + (pid.empty() ? "" : " (pid " + pid + ")") +
                               " already runs on " + dir);
}

// The last holder may remove the file between our open() and flock(). Then our lock is on a file
// that no other process can find, and we try again.
base::Result<base::Fd> take_lock(const std::string& dir) {
  const std::string path = dir + "/vrdmad.lock";
  for (;;) {
    base::Fd lock(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!lock.valid()) return base::fail_errno("open " + path);
    if (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
      if (errno != EWOULDBLOCK) return base::fail_errno("lock " + path);
      return in_use(dir, lock);
    }
    struct stat held {
    }, named{};
    if (::fstat(lock.get(), &held) != 0) return base::fail_errno("stat " + path);
    if (::stat(path.c_str(), &named) != 0 || named.st_ino != held.st_ino) continue;
    const std::string pid = std::to_string(::getpid()) + "\n";
    // On a full disk without the number, which only makes the error of others better.
    const ssize_t length = ::pwrite(lock.get(), pid.data(), pid.size(), 0);
    const bool written = length == static_cast<ssize_t>(pid.size());
    if ((length < 0 && errno != ENOSPC) ||
        ::ftruncate(lock.get(), written ? static_cast<off_t>(pid.size()) : 0) != 0)
      return base::fail_errno("write " + path);
    return lock;
  }
}

bool is_open_to_others(const std::string& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 && (status.st_mode & S_IRWXO) != 0;
}

void remove_socket(const fs::path& path) {
  std::error_code ignored;
  if (fs::is_socket(fs::symlink_status(path, ignored))) fs::remove(path, ignored);
}

std::vector<fs::path> entries_of(const fs::path& dir) {
  std::vector<fs::path> paths;
  std::error_code ignored;
  for (auto it = fs::directory_iterator(dir, ignored); it != fs::directory_iterator();
       it.increment(ignored))
    paths.push_back(it->path());
  return paths;
}

}  // namespace

base::Result<std::string> RunDir::absolute(const std::string& path) {
  if (path.empty()) return base::fail(EINVAL, "the name of a directory is empty");
  std::error_code error;
  fs::path absolute = fs::absolute(path, error).lexically_normal();
  if (error) return base::fail(error.value(), "directory '" + path + "': " + error.message());
  if (!absolute.has_filename()) absolute = absolute.parent_path();  // trailing slash
  return absolute.string();
}

base::Result<void> RunDir::check_free(const std::string& path) {
  const base::Fd lock(
      ::open((path + "/vrdmad.lock").c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (lock.valid() && ::flock(lock.get(), LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK)
    return in_use(path, lock);
  return {};
}

base::Result<RunDir> RunDir::open(const std::string& path) {
  auto whole = absolute(path);
  if (!whole) return base::pass(std::move(whole).error());
  std::error_code error;
  fs::create_directories(fs::path(*whole).parent_path(), error);
  if (error) return base::fail(error.value(), "make " + *whole + ": " + error.message());
  if (auto made = make_dir(*whole); !made) return base::pass(std::move(made).error());
  auto lock = take_lock(*whole);
  if (!lock) return base::pass(std::move(lock).error());
  RunDir dir(*whole, std::move(*lock));
  dir.remove_sockets();
  if (auto state = make_dir(dir.state_dir()); !state) return base::pass(std::move(state).error());
  if (auto set = set_mode(dir.state_dir(), 0700); !set) return base::pass(std::move(set).error());
  for (const auto& [name, mode] : {std::pair{"/netns", 0711}, {"/sysfs", 0711}}) {
    if (auto made = make_dir(dir.path_ + name); !made) return base::pass(std::move(made).error());
    if (auto set = set_mode(dir.path_ + name, static_cast<mode_t>(mode)); !set)
      return base::pass(std::move(set).error());
  }
  return dir;
}

RunDir::~RunDir() {
  if (!lock_.valid()) return;
  remove_sockets();
  for (const auto& dir : entries_of(path_ + "/sysfs")) ::rmdir(dir.c_str());
  ::rmdir((path_ + "/sysfs").c_str());
  ::rmdir(state_dir().c_str());
  ::unlink((path_ + "/vrdmad.lock").c_str());  // still locked: see take_lock()
}

base::Result<std::string> RunDir::make_netns_dir(uint64_t cookie) const {
  std::string path = netns_dir(cookie);
  for (const auto& each : {path, sysfs_dir(cookie)})
    if (auto made = make_dir(each); !made) return base::pass(std::move(made).error());
  // Not again, which would take the rights of let_read() away.
  if (is_open_to_others(sysfs_dir(cookie)))
    if (auto set = set_mode(sysfs_dir(cookie), 0700); !set)
      return base::pass(std::move(set).error());
  return path;
}

base::Result<void> RunDir::let_read(uint64_t cookie, uid_t user) const {
  constexpr uint16_t kRead = ACL_READ | ACL_EXECUTE;
  const auto entry = [](uint16_t tag, uint16_t permissions, uint32_t id = ~uint32_t{0}) {
    return posix_acl_xattr_entry{htole16(tag), htole16(permissions), htole32(id)};
  };
  struct {
    posix_acl_xattr_header header;
    std::array<posix_acl_xattr_entry, 5> entries;
  } acl{{htole32(POSIX_ACL_XATTR_VERSION)},
        {entry(ACL_USER_OBJ, kRead | ACL_WRITE), entry(ACL_USER, kRead, user),
         entry(ACL_GROUP_OBJ, 0), entry(ACL_MASK, kRead), entry(ACL_OTHER, 0)}};
  static_assert(sizeof acl == 4 + 5 * 8);
  const std::string path = sysfs_dir(cookie);
  if (::setxattr(path.c_str(), "system.posix_acl_access", &acl, sizeof acl, 0) != 0)
    return base::fail_errno("let user " + std::to_string(user) + " read " + path);
  return {};
}

std::string RunDir::session_socket(uint64_t cookie, uint64_t number) const {
  return netns_dir(cookie) + "/" + std::to_string(number) + ".sock";
}

std::string RunDir::netns_dir(uint64_t cookie) const {
  return path_ + "/netns/" + std::to_string(cookie);
}

std::string RunDir::sysfs_dir(uint64_t cookie) const {
  return path_ + "/sysfs/" + std::to_string(cookie);
}

void RunDir::remove_netns_dir(uint64_t cookie) const {
  // A namespace that still has a vdevice has its socket; its trees may not be shown yet.
  if (::rmdir(netns_dir(cookie).c_str()) == 0) ::rmdir(sysfs_dir(cookie).c_str());
}

// Other files belong to the operator.
void RunDir::remove_sockets() const {
  remove_socket(admin_socket());
  remove_socket(checkpoint_socket());
  remove_socket(hook_socket());
  for (const auto& dir : entries_of(path_ + "/netns"))
    for (const auto& entry : entries_of(dir)) remove_socket(entry);
}

void RunDir::keep(const std::map<uint64_t, std::set<std::string>>& trees) const {
  std::map<std::string, const std::set<std::string>*> kept;  // by the name of the directory
  for (const auto& [cookie, names] : trees) kept[std::to_string(cookie)] = &names;
  for (const auto& dir : entries_of(path_ + "/netns"))
    if (!kept.contains(dir.filename())) ::rmdir(dir.c_str());
  for (const auto& dir : entries_of(path_ + "/sysfs")) {
    const auto its = kept.find(dir.filename());
    for (const auto& tree : entries_of(dir)) {
      std::error_code ignored;
      if (its == kept.end() || !its->second->contains(tree.filename()))
        fs::remove_all(tree, ignored);
    }
    if (its == kept.end()) ::rmdir(dir.c_str());
  }
}

}  // namespace vrdma::vrdmad
