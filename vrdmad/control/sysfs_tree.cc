#include "vrdmad/control/sysfs_tree.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <sstream>
#include <utility>

#include "vrdmad/control/counter_files.h"
#include "vrdmad/control/counters.h"

namespace vrdma::vrdmad {

namespace fs = std::filesystem;

namespace {

// As the kernel prints a GID: eight groups of four digits, none abbreviated.
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

std::string hexadecimal(uint32_t value, int digits) {
  char text[16];
  std::snprintf(text, sizeof text, "0x%0*x", digits, value);
  return text;
}

// The low 16 bits of the verbs vendor_id and vendor_part_id, for programs that expect PCI numbers.
std::string pci_number(uint32_t id) { return hexadecimal(id & 0xffff, 4); }

// As rate_show() of the kernel (drivers/infiniband/core/sysfs.c) prints it.
std::string rate_text(verbs::LinkWidth width, verbs::LinkSpeed speed) {
  using verbs::LinkSpeed;
  using verbs::LinkWidth;
  unsigned lanes = 0;
  switch (width) {
    case LinkWidth::k1x:
      lanes = 1;
      break;
    case LinkWidth::k2x:
      lanes = 2;
      break;
    case LinkWidth::k4x:
      lanes = 4;
      break;
    case LinkWidth::k8x:
      lanes = 8;
      break;
    case LinkWidth::k12x:
      lanes = 12;
      break;
  }
  struct Speed {
    const char* name;
    unsigned lane;  // in 100 Mb/s
  };
  const auto [name, lane] = [&]() -> Speed {
    switch (speed) {
      case LinkSpeed::kDdr:
        return {" DDR", 50};
      case LinkSpeed::kQdr:
        return {" QDR", 100};
      case LinkSpeed::kFdr10:
        return {" FDR10", 100};
      case LinkSpeed::kFdr:
        return {" FDR", 140};
      case LinkSpeed::kEdr:
        return {" EDR", 250};
      case LinkSpeed::kHdr:
        return {" HDR", 500};
      case LinkSpeed::kNdr:
        return {" NDR", 1000};
      case LinkSpeed::kXdr:
        return {" XDR", 2000};
      case LinkSpeed::kSdr:
        break;
    }
    return {" SDR", 25};
  }();
  const unsigned rate = lanes * lane;
  return std::to_string(rate / 10) + (rate % 10 != 0 ? ".5" : "") + " Gb/sec (" +
         std::to_string(lanes) + "X" + name + ")";
}

// At least gid_tbl_len of ibv_query_port.
constexpr size_t kGidTable = 16;

// Of counters: milliseconds for which a value may be out of date.
constexpr auto kLifespan =
    std::chrono::duration_cast<std::chrono::milliseconds>(CounterFiles::kPeriod).count();

std::string ibdev_dir(const std::string& name) { return "device/infiniband/" + name + "/"; }

// While it exists, new files and directories get the mode that they are created with.
class PlainUmask {
 public:
  PlainUmask() : before_(::umask(022)) {}
  ~PlainUmask() { ::umask(before_); }
  PlainUmask(const PlainUmask&) = delete;
  PlainUmask& operator=(const PlainUmask&) = delete;

 private:
  mode_t before_;
};

// Makes missing directories below `root` and holds the current path open. Rejects symlinks, so that
// a writer in the tree cannot lead the daemon out of it.
class Folders {
 public:
  explicit Folders(std::string root) : root_(std::move(root)) {}

  // The directory `path` ("a/b"); open until the next call.
  base::Result<int> enter(const fs::path& path) {
    if (!base_.valid()) {
      if (auto opened = open(AT_FDCWD, root_, root_); !opened)
        return base::pass(std::move(opened).error());
      else
        base_ = std::move(*opened);
    }
    size_t depth = 0;
    for (const auto& part : path) {
      if (depth == open_.size() || open_[depth].first != part) {
        open_.resize(depth);
        auto opened = open(deepest(), part.string(), root_ + "/" + path.string());
        if (!opened) return base::pass(std::move(opened).error());
        open_.emplace_back(part, std::move(*opened));
      }
      ++depth;
    }
    open_.resize(depth);
    return deepest();
  }

 private:
  [[nodiscard]] int deepest() const {
    return open_.empty() ? base_.get() : open_.back().second.get();
  }
  static base::Result<base::Fd> open(int above, const std::string& name, const std::string& path) {
    if (::mkdirat(above, name.c_str(), 0755) != 0 && errno != EEXIST)
      return base::fail_errno("make the directory " + path);
    base::Fd fd(::openat(above, name.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (!fd.valid()) return base::fail_errno("open the directory " + path);
    return fd;
  }

  std::string root_;
  base::Fd base_;
  std::vector<std::pair<fs::path, base::Fd>> open_;
};

// Makes `name` in the open directory `folder`; errors name it `path`. Returns the file, open for
// writing, or nothing for a link.
base::Result<base::Fd> make_file(int folder, const std::string& name, const SysfsFile& file,
                                 const std::string& path) {
  if (file.link) {
    if (::symlinkat(file.text.c_str(), folder, name.c_str()) != 0)
      return base::fail_errno("make " + path);
    return {};
  }
  base::Fd fd(
      ::openat(folder, name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0444));
  if (!fd.valid()) return base::fail_errno("make " + path);
  const ssize_t written = ::write(fd.get(), file.text.data(), file.text.size());
  if (written != static_cast<ssize_t>(file.text.size()))
    return base::fail_errno("write " + path, written < 0 ? errno : ENOSPC);
  return fd;
}

// As make_file(), but replaces an existing file as a whole.
base::Result<base::Fd> replace_file(int folder, const std::string& name, const SysfsFile& file,
                                    const std::string& path) {
  const std::string next = name + "~";
  ::unlinkat(folder, next.c_str(), 0);
  auto made = make_file(folder, next, file, path + "~");
  if (!made) return made;
  if (::renameat(folder, next.c_str(), folder, name.c_str()) != 0)
    return base::fail_errno("rename " + path + "~");
  return made;
}

}  // namespace

std::string cpu_mask(const std::string& cpus) {
  std::vector<uint32_t> words(1);
  std::istringstream ranges(cpus);
  for (std::string range; std::getline(ranges, range, ',');) {
    unsigned first = 0, last = 0;
    const int read = std::sscanf(range.c_str(), "%u-%u", &first, &last);
    if (read < 2) last = first;
    constexpr unsigned kMost = 8192;  // CONFIG_NR_CPUS
    if (read < 1 || last < first || last >= kMost) continue;
    for (unsigned cpu = first; cpu <= last; ++cpu) {
      if (cpu / 32 >= words.size()) words.resize(cpu / 32 + 1);
      words[cpu / 32] |= 1u << cpu % 32;
    }
  }
  std::string text;
  for (auto word = words.rbegin(); word != words.rend(); ++word) {
    char digits[10];
    std::snprintf(digits, sizeof digits, text.empty() ? "%x" : ",%08x", *word);
    text += digits;
  }
  return text;
}

std::map<std::string, uint64_t> sysfs_counters(const std::string& name,
                                               const rdma::TrafficCounters& traffic,
                                               const transport::roce::Counters& network,
                                               const std::vector<provisioning::Row>& rows) {
  using provisioning::Kind;
  const auto& [sent, received] = std::pair{traffic.port.sent, traffic.port.received};
  const auto failed = [&](verbs::WcStatus status) {
    return traffic.failed[static_cast<size_t>(status)];
  };
  uint64_t all_failed = 0;
  for (const uint64_t count : traffic.failed) all_failed += count;
  std::map<std::string, uint64_t> counters;
  const std::string port = ibdev_dir(name) + "ports/1/";
  for (const auto& [file, value] : std::initializer_list<std::pair<const char*, uint64_t>>{
           {"counters/port_xmit_data", sent.bytes / 4},
           {"counters/port_rcv_data", received.bytes / 4},
           {"counters/port_xmit_packets", sent.packets()},
           {"counters/port_rcv_packets", received.packets()},
           {"counters/unicast_xmit_packets", sent.unicast},
           {"counters/unicast_rcv_packets", received.unicast},
           {"counters/multicast_xmit_packets", sent.multicast},
           {"counters/multicast_rcv_packets", received.multicast},
           // As rxe has them, then as mlx5 does.
           {"hw_counters/sent_pkts", sent.packets()},
           {"hw_counters/rcvd_pkts", received.packets()},
           {"hw_counters/retry_exceeded_err", failed(verbs::WcStatus::kRetryExceeded)},
           {"hw_counters/retry_rnr_exceeded_err", failed(verbs::WcStatus::kRnrRetryExceeded)},
           {"hw_counters/req_cqe_error", all_failed},
           {"hw_counters/req_cqe_flush_error", failed(verbs::WcStatus::kFlushed)},
           {"hw_counters/req_remote_access_errors", failed(verbs::WcStatus::kRemoteAccessError)},
           {"hw_counters/req_remote_invalid_request",
            failed(verbs::WcStatus::kRemoteInvalidRequest)}})
    counters[port + file] = value;
  for (const auto& [event, count] : network_events(network))
    counters[port + "hw_counters/" + event] = count;
  // As rdma-resource(8) calls them.
  for (const auto& [file, kind] :
       std::initializer_list<std::pair<const char*, Kind>>{{"pd", Kind::kPd},
                                                           {"cq", Kind::kCq},
                                                           {"qp", Kind::kQp},
                                                           {"cm_id", Kind::kCmIds},
                                                           {"mr", Kind::kMr},
                                                           {"ctx", Kind::kContexts},
                                                           {"srq", Kind::kSrq}}) {
    const auto row = std::find_if(rows.begin(), rows.end(),
                                  [wanted = kind](const auto& one) { return one.kind == wanted; });
    counters[std::string("device/resources/") + file] = row != rows.end() ? row->used : 0;
  }
  return counters;
}

SysfsFiles sysfs_files(const SysfsView& view) {
  SysfsFiles files;
  const auto parent = [&](const std::string& path, const std::string& text) {
    files["device/" + path] = {false, text + "\n"};
  };
  const auto device = [&](const std::string& path, const std::string& text) {
    files[ibdev_dir(view.name) + path] = {false, text + "\n"};
  };
  device("node_type", "1: CA");
  device("node_guid", view.node_guid);
  device("sys_image_guid", view.node_guid);
  device("node_desc", view.name);
  device("fw_ver", view.firmware);
  device("hca_type", "vrdma");
  device("board_id", "vrdma");
  const verbs::Capabilities& all = view.capabilities;
  device("hw_rev", std::to_string(all.hardware_version));
  parent("numa_node", "-1");  // no memory of its own
  for (const char* const prefix : {"", "subsystem_"}) {
    parent(std::string(prefix) + "vendor", pci_number(all.vendor_id));
    parent(std::string(prefix) + "device", pci_number(all.vendor_part_id));
  }
  parent("class", "0x020000");  // Ethernet controller
  parent("local_cpulist", view.cpus);
  parent("local_cpus", cpu_mask(view.cpus));
  parent("max_link_speed", "8.0 GT/s PCIe");  // speed times width exceeds `rate`
  parent("current_link_speed", "8.0 GT/s PCIe");
  parent("max_link_width", "16");
  parent("current_link_width", "16");
  if (!view.netdev.empty())
    files["device/net/" + view.netdev] = {true, "/sys/class/net/" + view.netdev};
  files[ibdev_dir(view.name) + "device"] = {true, "../../../" + view.name};

  device("ports/1/state", view.up ? "4: ACTIVE" : "1: DOWN");
  device("ports/1/phys_state", view.up ? "5: LinkUp" : "3: Disabled");
  device("ports/1/rate", rate_text(static_cast<verbs::LinkWidth>(all.width),
                                   static_cast<verbs::LinkSpeed>(all.speed)));
  device("ports/1/link_layer", "Ethernet");
  device("ports/1/cap_mask", hexadecimal(all.port_flags, 8));
  device("ports/1/lid", "0x0");
  device("ports/1/lid_mask_count", "0");
  device("ports/1/sm_lid", "0x0");
  device("ports/1/sm_sl", "0");
  device("ports/1/pkeys/0", "0xffff");
  for (size_t i = 0; i < view.gids.size(); ++i) {
    const std::string index = std::to_string(i);
    device("ports/1/gids/" + index, gid_text(view.gids[i]));
    if (view.gids[i].is_unspecified()) continue;
    device("ports/1/gid_attrs/types/" + index, "RoCE v2");
    device("ports/1/gid_attrs/ndevs/" + index, view.netdev);
  }
  for (size_t i = view.gids.size(); i < kGidTable; ++i)
    device("ports/1/gids/" + std::to_string(i), gid_text(verbs::Gid()));

  for (const auto& [path, value] : sysfs_counters(view.name, {}, {}, {})) {
    files[path] = {false, std::to_string(value) + "\n", true};
  }
  // What cannot happen.
  for (const char* const name :
       {"symbol_error", "link_error_recovery", "port_rcv_errors", "port_rcv_remote_physical_errors",
        "port_rcv_switch_relay_errors", "port_xmit_discards", "port_xmit_constraint_errors",
        "port_rcv_constraint_errors", "local_link_integrity_errors",
        "excessive_buffer_overrun_errors", "VL15_dropped", "port_xmit_wait"})
    device(std::string("ports/1/counters/") + name, "0");
  device("ports/1/counters/link_downed", std::to_string(view.downs));
  device("ports/1/hw_counters/link_downed", std::to_string(view.downs));
  device("ports/1/hw_counters/lifespan", std::to_string(kLifespan));

  files["infiniband_verbs/ibdev"] = {false, view.name + "\n"};
  files["infiniband_verbs/abi_version"] = {false, "1\n"};
  files["infiniband_verbs/device"] = {true, "/sys/devices/virtual/vrdma/" + view.name};
  return files;
}

namespace {

// What is in the tree of a daemon that has ended. All of it differs from what will be shown.
SysfsFiles found_in(const std::string& dir) {
  SysfsFiles found;
  std::error_code error;
  if (!fs::is_directory(fs::symlink_status(dir, error))) return found;
  for (fs::recursive_directory_iterator entry(dir, error), end; !error && entry != end;
       entry.increment(error))
    if (!fs::is_directory(entry->symlink_status(error)))
      found[entry->path().lexically_relative(dir).string()] = {};
  return found;
}

}  // namespace

SysfsTree::~SysfsTree() {
  if (left_) return;
  std::error_code ignored;
  fs::remove_all(shown_.empty() ? dir_ + "~" : dir_, ignored);
}

void SysfsTree::take_over() { shown_ = found_in(dir_); }

base::Result<void> SysfsTree::show(const SysfsView& view) {
  SysfsFiles wanted = sysfs_files(view);
  const PlainUmask umask;
  if (shown_.empty()) shown_ = found_in(dir_);
  if (shown_.empty()) {
    if (auto made = make(wanted); !made) return made;
    shown_ = std::move(wanted);
    return {};
  }
  Folders folders(dir_);
  for (const auto& [path, file] : wanted) {
    const auto before = shown_.find(path);
    if (before != shown_.end() && before->second == file) continue;
    const fs::path whole(path);
    const auto folder = folders.enter(whole.parent_path());
    if (!folder) return base::pass(folder.error());
    auto made = replace_file(*folder, whole.filename(), file, dir_ + "/" + path);
    if (!made) return base::pass(std::move(made).error());
    if (file.moves) counters_[path] = std::move(*made);
    shown_[path] = file;
  }
  std::erase_if(shown_, [&](const auto& shown) {
    if (wanted.contains(shown.first)) return false;
    const fs::path whole(shown.first);
    if (const auto folder = folders.enter(whole.parent_path()))
      ::unlinkat(*folder, whole.filename().c_str(), 0);
    return true;
  });
  return {};
}

// Renames the finished tree into place, so that a reader finds all of it or nothing.
base::Result<void> SysfsTree::make(const SysfsFiles& files) {
  const std::string next = dir_ + "~";
  std::error_code ignored;
  fs::remove_all(next, ignored);  // left by a killed daemon or a failed attempt
  Folders folders(next);
  for (const auto& [path, file] : files) {
    const fs::path whole(path);
    const auto folder = folders.enter(whole.parent_path());
    if (!folder) return base::pass(folder.error());
    auto made = make_file(*folder, whole.filename(), file, next + "/" + path);
    if (!made) return base::pass(std::move(made).error());
    if (file.moves) counters_[path] = std::move(*made);
  }
  if (::rename(next.c_str(), dir_.c_str()) != 0) return base::fail_errno("make " + dir_);
  return {};
}

}  // namespace vrdma::vrdmad
