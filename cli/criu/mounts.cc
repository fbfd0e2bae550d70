#include "cli/criu/mounts.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "cli/mounts/tree.h"
#include "core/base/fd.h"
#include "core/base/netns_cookie.h"

namespace vrdma::cli::criu {

using base::fail;
using base::fail_errno;
using base::Fd;
using base::pass;
using base::Result;
using Json = nlohmann::ordered_json;

namespace {

constexpr char kImage[] = "vrdma-mounts.img";
constexpr int kMountsVersion = 1;
constexpr size_t kMostBytes = 1u << 20;
constexpr size_t kMostMounts = 4096;
constexpr size_t kMostName = 64;     // bytes of a vdevice's name, and more
constexpr long kTmpfs = 0x01021994;  // TMPFS_MAGIC
// What a container sees: cli/hook/setup.h.
constexpr char kPlace[] = "/run/vrdma";
// Of the directory of the libraries.
constexpr std::array kLibraries{"libibverbs.so.1", "librdmacm.so.1", "librspreload.so",
                                "stubs/libdl.so.2", "stubs/libpthread.so.0"};
constexpr std::array kKinds{"library", "sockets", "device", "verbs"};  // by Kind

bool is_number(const std::string& text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
}

// No path, and none of the directories that lead out of the one that holds it.
bool is_name(const std::string& text) {
  return !text.empty() && text.size() <= kMostName && text.find('/') == std::string::npos &&
         text != "." && text != ".." && text.find('\0') == std::string::npos;
}

bool may_be(const HostMount& mount) {
  switch (mount.kind) {
    case HostMount::Kind::kLibrary:
      return std::find(kLibraries.begin(), kLibraries.end(), mount.name) != kLibraries.end();
    case HostMount::Kind::kSockets:
      return mount.name.empty();
    default:
      return is_name(mount.name);
  }
}

// The last elements of a path, the last one first.
std::vector<std::string> reversed(const std::string& path) {
  std::vector<std::string> names;
  for (const auto& name : std::filesystem::path(path)) names.push_back(name.string());
  std::reverse(names.begin(), names.end());
  names.resize(std::max<size_t>(names.size(), 4));
  return names;
}

// The system call may have been interrupted by the end of another child.
int wait_for(pid_t child) {
  int status = 0;
  while (::waitpid(child, &status, 0) < 0)
    if (errno != EINTR) return -1;
  return status;
}

Result<void> attach_tree(const Fd& tree, int directory, const char* path,
                         const std::string& place) {
  if (::move_mount(tree.get(), "", directory, path, MOVE_MOUNT_F_EMPTY_PATH) != 0)
    return fail_errno("mount " + place);
  return {};
}

Result<void> enter(pid_t pid, const char* which, int type) {
  const std::string path = "/proc/" + std::to_string(pid) + "/ns/" + which;
  const Fd space(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!space.valid() || ::setns(space.get(), type) != 0) return fail_errno("enter " + path);
  return {};
}

// A directory of the hook's file system in a container, whose volumes others may write to.
Result<Fd> open_place() {
  open_how how{};
  how.flags = O_DIRECTORY | O_RDONLY | O_CLOEXEC;
  how.resolve = RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS;
  Fd place(static_cast<int>(::syscall(SYS_openat2, AT_FDCWD, kPlace, &how, sizeof how)));
  struct statfs system {};
  if (!place.valid() || ::fstatfs(place.get(), &system) != 0)
    return fail_errno(std::string("open ") + kPlace + " of the container");
  if (system.f_type != kTmpfs)
    return fail(EINVAL, std::string(kPlace) + " of the container is another file system's");
  return place;
}

bool is_mounted(const Fd& directory, const std::string& name) {
  struct statx status {};
  return ::statx(directory.get(), name.c_str(), AT_SYMLINK_NOFOLLOW, 0, &status) == 0 &&
         (status.stx_attributes & STATX_ATTR_MOUNT_ROOT) != 0;
}

Result<void> set_read_only(const Fd& mount, bool on) {
  mount_attr attributes{};
  (on ? attributes.attr_set : attributes.attr_clr) = MOUNT_ATTR_RDONLY;
  if (::mount_setattr(mount.get(), "", AT_EMPTY_PATH, &attributes, sizeof attributes) != 0)
    return fail_errno(std::string("change the mount of ") + kPlace);
  return {};
}

std::optional<HostMount> host_mount_of(const std::set<pid_t>& processes, int id) {
  const std::string begin = std::to_string(id) + " ";
  for (const pid_t pid : processes) {
    std::ifstream mounts("/proc/" + std::to_string(pid) + "/mountinfo");
    for (std::string line; std::getline(mounts, line);)
      if (line.starts_with(begin)) return host_mount(line);
  }
  return std::nullopt;
}

Result<std::vector<HostMount>> read_mounts(int images) {
  const Fd file(::openat(images, kImage, O_RDONLY | O_CLOEXEC));
  if (!file.valid() && errno == ENOENT) return std::vector<HostMount>();
  if (!file.valid()) return fail_errno(std::string("open ") + kImage);
  std::string bytes;
  char some[4096];
  for (ssize_t got = 0;
       bytes.size() <= kMostBytes && (got = ::read(file.get(), some, sizeof some)) > 0;)
    bytes.append(some, static_cast<size_t>(got));
  return decode_mounts(bytes);
}

// Runs it in a child process.
Result<void> apart(const std::function<Result<void>()>& work) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return fail_errno("make a pipe");
  const Fd in(ends[0]);
  Fd out(ends[1]);
  const pid_t child = ::fork();
  if (child < 0) return fail_errno("fork");
  if (child == 0) {
    const auto done = work();
    const std::string sentence = done ? "" : done.error().message();
    (void)!::write(out.get(), sentence.data(), sentence.size());
    ::_exit(done ? 0 : 1);
  }
  out.reset();
  std::string sentence(1024, '\0');
  const ssize_t size = ::read(in.get(), sentence.data(), sentence.size());
  sentence.resize(size > 0 ? static_cast<size_t>(size) : 0);
  if (wait_for(child) == 0) return {};
  return fail(EIO, sentence.empty() ? "a process of the plugin ended" : sentence);
}

// Where the plugin is installed, the libraries are in a directory beside its own.
Host this_host() {
  Dl_info self{};
  std::error_code none;
  if (::dladdr(reinterpret_cast<void*>(&this_host), &self) == 0) self.dli_fname = "";
  const auto plugin = std::filesystem::canonical(self.dli_fname, none);
  const char* const run_dir = std::getenv("VRDMA_RUN_DIR");
  return {plugin.parent_path().parent_path() / "vrdma",
          run_dir != nullptr && *run_dir != '\0' ? run_dir : kPlace};
}

// Enters namespaces of the process.
Result<void> show_sockets(pid_t pid) {
  if (auto entered = enter(pid, "net", CLONE_NEWNET); !entered) return entered;
  const auto cookie = base::own_netns_cookie();
  if (!cookie) return pass(cookie.error());
  const Host host = this_host();
  const auto tree = clone_below(
      host.run_dir, source_of({0, HostMount::Kind::kSockets, ""}, host, *cookie), kReadOnlyData);
  if (!tree) return pass(tree.error());
  if (auto entered = enter(pid, "mnt", CLONE_NEWNS); !entered) return entered;
  const auto place = open_place();
  if (!place && place.error().code() == ENOENT) return {};  // a namespace that a program made
  if (!place) return pass(place.error());
  const std::string name = std::to_string(*cookie);
  const Fd all(::openat(place->get(), "netns", O_DIRECTORY | O_NOFOLLOW | O_RDONLY | O_CLOEXEC));
  if (!all.valid()) return fail_errno(std::string("open ") + kSocketPlace + " of the container");
  if (auto done = set_read_only(*place, false); !done) return done;
  Result<void> shown;
  if (::mkdirat(all.get(), name.c_str(), 0755) != 0 && errno != EEXIST)
    shown = fail_errno("make " + (kSocketPlace + name));
  else if (!is_mounted(all, name))  // it is if the network namespace is that of the dump
    shown = attach_tree(*tree, all.get(), name.c_str(), kSocketPlace + name);
  auto closed = set_read_only(*place, true);
  return shown ? closed : shown;
}

bool is_of_sockets(const HostMount& mount) { return mount.kind == HostMount::Kind::kSockets; }

HostMount mount_of(const Json& json) {
  const auto kind =
      std::find(kKinds.begin(), kKinds.end(), json.at("kind").get_ref<const std::string&>());
  HostMount mount{json.at("id").get<int>(), static_cast<HostMount::Kind>(kind - kKinds.begin()),
                  json.at("name").get<std::string>()};
  if (kind == kKinds.end() || !json.at("id").is_number_unsigned() || !may_be(mount))
    throw std::invalid_argument("it names no mount of a container's hook");
  return mount;
}

}  // namespace

// For example
// 219 265 0:23 /vrdma/sysfs/7/vrdma0/device /sys/devices/virtual/vrdma/vrdma0 ro,... - tmpfs ...
std::optional<HostMount> host_mount(const std::string& line) {
  constexpr std::string_view kDeleted = "//deleted";  // by an upgrade: its successor replaces it
  std::istringstream words(line);
  HostMount mount;
  std::string parent, device, root, point, options;
  if (!(words >> mount.id >> parent >> device >> root >> point >> options)) return std::nullopt;
  if (("," + options + ",").find(",ro,") == std::string::npos) return std::nullopt;
  if (root.ends_with(kDeleted)) root.resize(root.size() - kDeleted.size());
  const auto names = reversed(root);
  const bool of_vdevice = names[3] == "sysfs" && is_number(names[2]);
  if (names[1] == "netns" && is_number(names[0]) && point.starts_with(kSocketPlace)) {
    mount.kind = HostMount::Kind::kSockets;
  } else if (of_vdevice && names[0] == "device") {
    mount.kind = HostMount::Kind::kDevice;
    mount.name = names[1];
  } else if (of_vdevice && names[0] == "infiniband_verbs") {
    mount.kind = HostMount::Kind::kVerbs;
    mount.name = names[1];
  } else {
    mount.name = (names[1] == "stubs" ? "stubs/" : "") + names[0];
  }
  if (!may_be(mount)) return std::nullopt;
  return mount;
}

std::string encode(const std::vector<HostMount>& mounts) {
  Json all = Json::array();
  for (const HostMount& one : mounts)
    all.push_back(
        {{"id", one.id}, {"kind", kKinds[static_cast<size_t>(one.kind)]}, {"name", one.name}});
  return Json{{"version", kMountsVersion}, {"mounts", all}}.dump(1) + "\n";
}

Result<std::vector<HostMount>> decode_mounts(const std::string& bytes) {
  const std::string what = "vrdma-mounts.img cannot be used: ";
  try {
    const Json json = Json::parse(bytes);
    if (json.at("version") != kMountsVersion)
      return fail(EINVAL, what + "it is of another version of vrdma");
    const Json& all = json.at("mounts");
    if (!all.is_array() || all.size() > kMostMounts)
      return fail(EINVAL, what + "mounts is no list, or too long");
    std::vector<HostMount> mounts;
    for (const Json& one : all) mounts.push_back(mount_of(one));
    return mounts;
  } catch (const std::exception& error) {
    return fail(EINVAL, what + error.what());
  }
}

std::string source_of(const HostMount& mount, const Host& host, uint64_t cookie) {
  const std::string space = std::to_string(cookie);
  switch (mount.kind) {
    case HostMount::Kind::kLibrary:
      return host.libraries + "/" + mount.name;
    case HostMount::Kind::kSockets:
      return host.run_dir + "/netns/" + space;
    case HostMount::Kind::kDevice:
    case HostMount::Kind::kVerbs:
      break;
  }
  const bool device = mount.kind == HostMount::Kind::kDevice;
  return host.run_dir + "/sysfs/" + space + "/" + mount.name +
         (device ? "/device" : "/infiniband_verbs");
}

Result<bool> dump_host_mount(const std::set<pid_t>& processes, int id, int images) {
  static std::vector<HostMount> mounts;  // of this dump
  const auto mount = host_mount_of(processes, id);
  if (!mount) return false;
  mounts.push_back(*mount);
  const std::string bytes = encode(mounts);
  const Fd file(::openat(images, kImage, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  if (!file.valid() ||
      ::write(file.get(), bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size()))
    return fail_errno(std::string("write ") + kImage);
  return true;
}

Result<bool> restore_host_mount(int id, const std::string& place, int images) {
  const auto all = read_mounts(images);
  if (!all) return pass(all.error());
  const auto mount =
      std::find_if(all->begin(), all->end(), [id](const auto& one) { return one.id == id; });
  if (mount == all->end()) return false;
  const auto cookie = base::own_netns_cookie();
  if (!cookie) return pass(cookie.error());
  const bool library = mount->kind == HostMount::Kind::kLibrary;
  const Host host = this_host();
  const std::string source = source_of(*mount, host, *cookie);
  const auto tree = library ? clone_path(source, kReadOnlyCode)
                            : clone_below(host.run_dir, source, kReadOnlyData);
  if (!tree && tree.error().code() == ENOENT && !library)
    return fail(ENOENT, "the container has no vdevice" +
                            (mount->name.empty() ? "" : " '" + mount->name + "'") +
                            " again: its runtime called no hook, or its class has changed (" +
                            tree.error().message() + ")");
  if (!tree) return pass(tree.error());
  if (auto done = attach_tree(*tree, AT_FDCWD, place.c_str(), place); !done)
    return pass(std::move(done).error());
  return true;
}

Result<void> restore_sockets(pid_t pid, int images) {
  static std::set<ino_t> done;  // mount namespaces
  struct stat space {};
  const std::string path = "/proc/" + std::to_string(pid) + "/ns/mnt";
  if (::stat(path.c_str(), &space) != 0) return fail_errno("look at " + path);
  if (!done.insert(space.st_ino).second) return {};
  const auto all = read_mounts(images);
  if (!all) return pass(all.error());
  if (std::none_of(all->begin(), all->end(), is_of_sockets)) return {};
  return apart([pid] { return show_sockets(pid); });
}

}  // namespace vrdma::cli::criu
