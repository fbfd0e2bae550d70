#include "cli/node/place.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>

#include "core/base/fd.h"

namespace vrdma::cli::node {

namespace fs = std::filesystem;
using base::fail;
using base::pass;
using base::Result;

namespace {

constexpr char kCurrent[] = "current";
constexpr char kHook[] = "vrdma-oci-hook";

Result<void> checked(const std::error_code& error, const std::string& what) {
  if (!error) return {};
  return fail(error.value(), what + ": " + error.message());
}

// Its files are executed by root on the node.
Result<void> check_owner(const std::string& directory) {
  struct stat status {};
  if (::lstat(directory.c_str(), &status) != 0) return base::fail_errno("look at " + directory);
  if (!S_ISDIR(status.st_mode)) return fail(ENOTDIR, directory + " is not a directory");
  if (status.st_uid != ::geteuid() || (status.st_mode & (S_IWGRP | S_IWOTH)) != 0)
    return fail(EPERM, "other users can write to " + directory +
                           ", from where root would run the hook: make it root's alone");
  return {};
}

Result<void> sync(const std::string& path) {
  const base::Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid() || ::fsync(file.get()) != 0) return base::fail_errno("write " + path);
  return {};
}

Result<void> copy(const std::string& from, const std::string& to) {
  std::error_code error;
  fs::create_directories(fs::path(to).parent_path(), error);
  fs::copy_file(from, to, error);
  if (auto done = checked(error, "copy " + from + " to " + to); !done) return done;
  if (::chmod(to.c_str(), to.ends_with(kHook) ? 0755 : 0644) != 0)
    return base::fail_errno("set the mode of " + to);
  return sync(to);
}

std::string content_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Of the same files; the pod of vrdmad is started more often than its image changes.
bool is_there(const std::string& version, const std::string& from,
              const std::vector<std::string>& files) {
  return std::all_of(files.begin(), files.end(), [&](const std::string& file) {
    const std::string text = content_of(version + "/" + file);
    return !text.empty() && text == content_of(from + "/" + file);
  });
}

bool is_version(const fs::path& directory) {
  std::error_code error;
  return fs::is_directory(fs::symlink_status(directory, error)) && fs::exists(directory / kHook);
}

// The directory that `current` names; empty: none.
std::string in_use(const std::string& place) {
  std::error_code error;
  return fs::read_symlink(fs::path(place) / kCurrent, error).string();
}

// A directory that is renamed when it is complete, and removed if that does not happen.
class Fresh {
 public:
  explicit Fresh(const std::string& place) : path_(place + "/.new-XXXXXX") {
    made_ = ::mkdtemp(path_.data()) != nullptr && ::chmod(path_.c_str(), 0755) == 0;
  }
  Fresh(const Fresh&) = delete;
  Fresh& operator=(const Fresh&) = delete;
  ~Fresh() {
    std::error_code ignored;
    if (made_) fs::remove_all(path_, ignored);  // after take_place_of(): what was there before
  }
  [[nodiscard]] bool made() const { return made_; }
  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] Result<void> take_place_of(const std::string& path) {
    if (::renameat2(AT_FDCWD, path_.c_str(), AT_FDCWD, path.c_str(), RENAME_EXCHANGE) == 0)
      return {};
    if (errno != ENOENT || ::rename(path_.c_str(), path.c_str()) != 0)
      return base::fail_errno("rename " + path_ + " to " + path);
    made_ = false;
    return {};
  }

 private:
  std::string path_;
  bool made_ = false;
};

Result<void> use(const std::string& place, const std::string& version) {
  const std::string link = place + "/" + kCurrent, fresh = place + "/.current";
  (void)::unlink(fresh.c_str());  // an installation that was killed has left it
  if (::symlink(version.c_str(), fresh.c_str()) != 0 || ::rename(fresh.c_str(), link.c_str()) != 0)
    return base::fail_errno("make " + link);
  return sync(place);
}

// Versions but these two, and what installations left that were killed.
void remove_others(const std::string& place, const std::string& version,
                   const std::string& before) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(place, error)) {
    const std::string name = entry.path().filename().string();
    const bool left = name.starts_with(".new-");
    if (left || (is_version(entry.path()) && name != version && name != before))
      fs::remove_all(entry.path(), error);
  }
}

}  // namespace

Result<void> install(const Place& place, const std::string& from,
                     const std::vector<std::string>& files) {
  const std::string seen = place.seen();
  std::error_code error;
  fs::create_directories(seen, error);
  if (auto made = checked(error, "make " + seen); !made) return made;
  if (auto owned = check_owner(seen); !owned) return owned;
  const std::string before = in_use(seen), version = seen + "/" + place.version;
  if (before == place.version && is_there(version, from, files)) return {};
  Fresh fresh(seen);
  if (!fresh.made()) return base::fail_errno("make a directory in " + seen);
  for (const auto& file : files)
    if (auto copied = copy(from + "/" + file, fresh.path() + "/" + file); !copied) return copied;
  if (auto done = fresh.take_place_of(version); !done) return done;
  if (auto used = use(seen, place.version); !used) return used;
  remove_others(seen, place.version, before);
  return {};
}

Result<void> uninstall(const Place& place) {
  const std::string seen = place.seen();
  std::error_code error;
  if (!fs::exists(fs::symlink_status(seen, error))) return {};
  if (auto owned = check_owner(seen); !owned) return owned;
  remove_others(seen, "", "");
  for (const char* const link : {kCurrent, ".current"}) fs::remove(fs::path(seen) / link, error);
  // Another program's files may be there.
  if (fs::is_empty(seen, error)) fs::remove(seen, error);
  return checked(error, "remove " + seen);
}

}  // namespace vrdma::cli::node
