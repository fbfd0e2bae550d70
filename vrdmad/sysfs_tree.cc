#include "vrdmad/sysfs_tree.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>

#include "core/base/fd.h"

namespace vrdma::vrdmad {

namespace fs = std::filesystem;

namespace {

// As the kernel prints one: eight groups of four digits, nothing left out.
std::string gid_text(const verbs::Gid& gid) {
  std::string text;
  char digits[3];
  for (size_t i = 0; i < gid.bytes.size(); ++i) {
    if (i > 0 && i % 2 == 0) text += ':';
    std::snprintf(digits, sizeof digits, "%02x", gid.bytes[i]);
    text += digits;
  }
  return text;
}

base::Result<void> write_file(const fs::path& path, const SysfsFile& file) {
  const std::string next = path.string() + "~";
  ::unlink(next.c_str());
  if (file.link) {
    if (::symlink(file.text.c_str(), next.c_str()) != 0) return base::fail_errno("make " + next);
  } else {
    const base::Fd fd(::open(next.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0444));
    if (!fd.valid()) return base::fail_errno("make " + next);
    const ssize_t written = ::write(fd.get(), file.text.data(), file.text.size());
    if (written != static_cast<ssize_t>(file.text.size()))
      return base::fail_errno("write " + next, written < 0 ? errno : ENOSPC);
    if (::fchmod(fd.get(), 0444) != 0) return base::fail_errno("set the mode of " + next);
  }
  if (::rename(next.c_str(), path.c_str()) != 0) return base::fail_errno("rename " + next);
  return {};
}

// The directories of `path` below `dir`, each 0755 whatever the umask.
base::Result<void> make_dirs(const std::string& dir, const fs::path& path) {
  fs::path made = dir;
  auto part = path.begin();
  for (;;) {
    if (::mkdir(made.c_str(), 0755) == 0) {
      if (::chmod(made.c_str(), 0755) != 0)
        return base::fail_errno("set the mode of " + made.string());
    } else if (errno != EEXIST) {
      return base::fail_errno("make the directory " + made.string());
    }
    if (part == path.end()) return {};
    made /= *part++;
  }
}

}  // namespace

SysfsFiles sysfs_files(const SysfsView& view) {
  SysfsFiles files;
  const auto device = [&](const std::string& path, const std::string& text) {
    files["infiniband/" + path] = {false, text + "\n"};
  };
  device("node_type", "1: CA");
  device("node_guid", view.node_guid);
  device("sys_image_guid", view.node_guid);
  device("node_desc", view.name);
  device("fw_ver", view.firmware);
  device("hca_type", "vrdma");
  device("board_id", "vrdma");
  device("hw_rev", "1");
  device("device/numa_node", "-1");  // its memory is wherever the program's is
  files["infiniband/device/net/" + view.netdev] = {true, "/sys/class/net/" + view.netdev};

  device("ports/1/state", view.up ? "4: ACTIVE" : "1: DOWN");
  device("ports/1/phys_state", view.up ? "5: LinkUp" : "3: Disabled");
  device("ports/1/rate", "80 Gb/sec (8X FDR10)");
  device("ports/1/link_layer", "Ethernet");
  device("ports/1/cap_mask", "0x00010000");
  device("ports/1/lid", "0x0");
  device("ports/1/lid_mask_count", "0");
  device("ports/1/sm_lid", "0x0");
  device("ports/1/sm_sl", "0");
  device("ports/1/pkeys/0", "0xffff");
  for (size_t i = 0; i < view.gids.size(); ++i) {
    const std::string index = std::to_string(i);
    device("ports/1/gids/" + index, gid_text(view.gids[i]));
    device("ports/1/gid_attrs/types/" + index, "RoCE v2");
    device("ports/1/gid_attrs/ndevs/" + index, view.netdev);
  }

  files["infiniband_verbs/ibdev"] = {false, view.name + "\n"};
  files["infiniband_verbs/abi_version"] = {false, "1\n"};
  files["infiniband_verbs/device"] = {true, "/sys/class/infiniband/" + view.name + "/device"};
  return files;
}

SysfsTree::~SysfsTree() {
  std::error_code ignored;
  fs::remove_all(dir_, ignored);
}

base::Result<void> SysfsTree::show(const SysfsView& view) {
  const SysfsFiles wanted = sysfs_files(view);
  for (const auto& [path, file] : wanted) {
    const auto before = shown_.find(path);
    if (before != shown_.end() && before->second == file) continue;
    if (auto made = make_dirs(dir_, fs::path(path).parent_path()); !made)
      return base::pass(std::move(made).error());
    if (auto written = write_file(dir_ + "/" + path, file); !written)
      return base::pass(std::move(written).error());
    shown_[path] = file;
  }
  std::erase_if(shown_, [&](const auto& shown) {
    if (wanted.contains(shown.first)) return false;
    ::unlink((dir_ + "/" + shown.first).c_str());
    return true;
  });
  return {};
}

}  // namespace vrdma::vrdmad
