#include "vrdmad/control/sysfs_tree.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "tests/unit/vrdmad/admin/fixture.h"

namespace vrdma::vrdmad {
namespace {

namespace fs = std::filesystem;

SysfsView view() {
  verbs::Gid gid;
  gid.bytes = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 1};
  return {"red0", "0211:22ff:fe33:4455", "vrdma-1", "eth0", true, {gid, verbs::Gid()}, "0-2,35", 3};
}

std::string read(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

TEST(SysfsTree, says_what_programs_read) {
  const TempDir temp;
  const std::string dir = temp.path() + "/red0";
  const mode_t before = ::umask(077);
  SysfsTree tree(dir);
  const auto shown = tree.show(view());
  ::umask(before);
  ASSERT_TRUE(shown) << shown.error().message();

  const std::string parent = dir + "/device", device = parent + "/infiniband/red0";
  EXPECT_EQ(read(device + "/node_type"), "1: CA\n");
  EXPECT_EQ(read(device + "/node_guid"), "0211:22ff:fe33:4455\n");
  EXPECT_EQ(read(device + "/fw_ver"), "vrdma-1\n");
  EXPECT_EQ(read(device + "/ports/1/state"), "4: ACTIVE\n");
  EXPECT_EQ(read(device + "/ports/1/link_layer"), "Ethernet\n");
  EXPECT_EQ(read(device + "/ports/1/gids/0"), "0000:0000:0000:0000:0000:ffff:0a00:0001\n");
  EXPECT_EQ(read(device + "/ports/1/gid_attrs/types/0"), "RoCE v2\n");
  for (const char* empty : {"1", "2", "15"}) {
    EXPECT_EQ(read(device + "/ports/1/gids/" + empty), "0000:0000:0000:0000:0000:0000:0000:0000\n");
    EXPECT_FALSE(fs::exists(device + "/ports/1/gid_attrs/types/" + empty));
  }
  EXPECT_FALSE(fs::exists(device + "/ports/1/gids/16"));
  EXPECT_EQ(read(parent + "/vendor"), "0x7672\n");
  EXPECT_EQ(read(parent + "/device"), "0x0001\n");
  EXPECT_EQ(read(parent + "/subsystem_vendor"), "0x7672\n");
  EXPECT_EQ(read(device + "/hw_rev"), "1\n");
  EXPECT_EQ(read(device + "/ports/1/rate"), "80 Gb/sec (8X FDR10)\n");
  EXPECT_EQ(read(device + "/ports/1/cap_mask"), "0x00010000\n");
  EXPECT_EQ(read(parent + "/local_cpulist"), "0-2,35\n");
  EXPECT_EQ(read(parent + "/local_cpus"), "8,00000007\n");
  EXPECT_EQ(read(device + "/ports/1/gid_attrs/ndevs/0"), "eth0\n");
  EXPECT_EQ(read(device + "/ports/1/counters/port_xmit_data"), "0\n");
  EXPECT_EQ(read(device + "/ports/1/hw_counters/link_downed"), "3\n");
  EXPECT_EQ(fs::read_symlink(parent + "/net/eth0"), "/sys/class/net/eth0");
  EXPECT_EQ(read(dir + "/infiniband_verbs/ibdev"), "red0\n");
  EXPECT_FALSE(fs::exists(dir + "/infiniband_verbs/dev"));
  for (const auto& entry : fs::recursive_directory_iterator(dir)) {
    const auto mode = static_cast<unsigned>(entry.symlink_status().permissions());
    if (!entry.is_symlink()) {
      EXPECT_EQ(mode, entry.is_directory() ? 0755U : 0444U) << entry.path();
    }
  }
}

TEST(SysfsTree, shows_the_capabilities_of_the_parent) {
  SysfsView other = view();
  other.capabilities.vendor_id = 0x0215b3;
  other.capabilities.vendor_part_id = 4129;
  other.capabilities.hardware_version = 7;
  other.capabilities.width = static_cast<uint32_t>(verbs::LinkWidth::k1x);
  other.capabilities.speed = static_cast<uint32_t>(verbs::LinkSpeed::kSdr);
  other.capabilities.port_flags = 0x04010000;
  SysfsFiles files = sysfs_files(other);
  EXPECT_EQ(files["device/vendor"].text, "0x15b3\n");
  EXPECT_EQ(files["device/subsystem_device"].text, "0x1021\n");
  const std::string device = "device/infiniband/red0/";
  EXPECT_EQ(files[device + "hw_rev"].text, "7\n");
  EXPECT_EQ(files[device + "ports/1/cap_mask"].text, "0x04010000\n");
  EXPECT_EQ(files[device + "ports/1/rate"].text, "2.5 Gb/sec (1X SDR)\n");
  other.capabilities.width = static_cast<uint32_t>(verbs::LinkWidth::k4x);
  other.capabilities.speed = static_cast<uint32_t>(verbs::LinkSpeed::kHdr);
  EXPECT_EQ(sysfs_files(other)[device + "ports/1/rate"].text, "200 Gb/sec (4X HDR)\n");
}

// From <vdevice> up, as from an adapter to its PCI device.
TEST(SysfsTree, leads_from_the_ibdev_to_its_device) {
  const TempDir temp;
  const fs::path dir = temp.path() + "/red0";
  SysfsTree tree(dir);
  ASSERT_TRUE(tree.show(view()));
  fs::create_directory(dir / "virtual");  // where it is mounted by that name
  fs::rename(dir / "device", dir / "virtual/red0");
  const fs::path ibdev = dir / "virtual/red0/infiniband/red0";
  EXPECT_EQ(fs::canonical(ibdev / "device"), dir / "virtual/red0");
  EXPECT_EQ(fs::canonical(ibdev / "../.."), dir / "virtual/red0");
}

TEST(SysfsTree, counts_in_the_units_of_the_kernel) {
  rdma::TrafficCounters traffic;
  traffic.port.send(4096);
  traffic.port.send(4, true);
  traffic.port.receive(8);
  traffic.count_failed(verbs::WcStatus::kRetryExceeded);
  traffic.count_failed(verbs::WcStatus::kFlushed);
  const auto counters = sysfs_counters("red0", traffic, {}, {});
  const auto value = [&](const char* name) {
    return counters.at(std::string("device/infiniband/red0/ports/1/") + name);
  };
  EXPECT_EQ(value("counters/port_xmit_data"), 1025U);
  EXPECT_EQ(value("counters/port_rcv_data"), 2U);
  EXPECT_EQ(value("counters/port_xmit_packets"), 2U);
  EXPECT_EQ(value("counters/unicast_xmit_packets"), 1U);
  EXPECT_EQ(value("counters/multicast_xmit_packets"), 1U);
  EXPECT_EQ(value("hw_counters/retry_exceeded_err"), 1U);
  EXPECT_EQ(value("hw_counters/req_cqe_error"), 2U);
}

TEST(SysfsTree, follows_changes_and_touches_nothing_else) {
  const TempDir temp;
  const std::string dir = temp.path() + "/red0";
  const auto inode_of = [&](const char* path) {
    struct stat status {};
    EXPECT_EQ(::stat((dir + path).c_str(), &status), 0) << path;
    return status.st_ino;
  };
  SysfsTree tree(dir);
  ASSERT_TRUE(tree.show(view()));
  const auto root = inode_of("/device/infiniband/red0");
  const auto guid = inode_of("/device/infiniband/red0/node_guid");

  SysfsView changed = view();
  changed.up = false;
  changed.netdev = "eth1";
  changed.gids.clear();
  ASSERT_TRUE(tree.show(changed));
  EXPECT_EQ(read(dir + "/device/infiniband/red0/ports/1/state"), "1: DOWN\n");
  EXPECT_EQ(read(dir + "/device/infiniband/red0/ports/1/gids/0"),
            "0000:0000:0000:0000:0000:0000:0000:0000\n");
  EXPECT_FALSE(fs::exists(dir + "/device/infiniband/red0/ports/1/gid_attrs/types/0"));
  EXPECT_FALSE(fs::is_symlink(dir + "/device/net/eth0"));
  EXPECT_TRUE(fs::is_symlink(dir + "/device/net/eth1"));
  EXPECT_EQ(inode_of("/device/infiniband/red0"), root) << "the directory may be mounted";
  EXPECT_EQ(inode_of("/device/infiniband/red0/node_guid"), guid);
  for (const auto& entry : fs::recursive_directory_iterator(dir))
    EXPECT_NE(entry.path().string().back(), '~') << entry.path();
}

// A writer in the tree cannot make the daemon write elsewhere.
TEST(SysfsTree, follows_no_symlink) {
  const TempDir temp;
  const std::string dir = temp.path() + "/red0", elsewhere = temp.path() + "/elsewhere";
  SysfsView changed = view();
  changed.up = false;
  changed.gids.clear();
  const std::string port = "/device/infiniband/red0/ports/1";
  for (const std::string place :
       {port.c_str(), "/device/infiniband/red0/ports", "/device/infiniband", "/device", ""}) {
    fs::create_directories(elsewhere + port + "/gids");
    const std::string inner = port.substr(place.size());
    fs::create_directories(elsewhere + inner + "/gids");
    std::ofstream(elsewhere + inner + "/gids/0") << "theirs";
    SysfsTree tree(dir);
    ASSERT_TRUE(tree.show(view()));
    fs::remove_all(dir + place);
    fs::create_directory_symlink(elsewhere, dir + place);
    const auto shown = tree.show(changed);
    EXPECT_FALSE(shown) << place;
    EXPECT_FALSE(fs::exists(elsewhere + inner + "/state")) << place;
    EXPECT_EQ(read(elsewhere + inner + "/gids/0"), "theirs") << place;
  }
  // A symlink is replaced, not written through.
  fs::remove_all(dir);
  fs::remove_all(elsewhere);
  std::ofstream(elsewhere) << "theirs";
  SysfsTree tree(dir);
  ASSERT_TRUE(tree.show(view()));
  for (const char* const name :
       {"/device/infiniband/red0/ports/1/state", "/device/infiniband/red0/ports/1/state~"}) {
    fs::remove(dir + name);
    fs::create_symlink(elsewhere, dir + name);
  }
  EXPECT_TRUE(tree.show(changed));
  EXPECT_EQ(read(dir + "/device/infiniband/red0/ports/1/state"), "1: DOWN\n");
  EXPECT_EQ(read(elsewhere), "theirs");
}

// A failure leaves nothing, and the next attempt succeeds.
TEST(SysfsTree, appears_as_a_whole) {
  const TempDir temp;
  const std::string dir = temp.path() + "/red0";
  std::ofstream(dir).put('x');
  {
    SysfsTree tree(dir);
    EXPECT_FALSE(tree.show(view()));
    fs::remove(dir);
    ASSERT_TRUE(tree.show(view()));
    EXPECT_EQ(read(dir + "/device/infiniband/red0/ports/1/state"), "4: ACTIVE\n");
    EXPECT_FALSE(fs::exists(dir + "~"));
  }
  std::ofstream(dir).put('x');
  { EXPECT_FALSE(SysfsTree(dir).show(view())); }
  EXPECT_FALSE(fs::exists(dir + "~"));
  EXPECT_TRUE(fs::exists(dir)) << "a file that the tree did not make remains";
}

// A program has the tree of the daemon before mounted, and sees what the next one writes.
TEST(SysfsTree, takes_the_tree_of_another_daemon_over) {
  const TempDir temp;
  const std::string dir = temp.path() + "/red0";
  {
    SysfsTree tree(dir);
    ASSERT_TRUE(tree.show(view()));
    tree.leave();
  }
  const base::Fd mounted(::open((dir + "/device/infiniband/red0/ports/1").c_str(), O_PATH));
  SysfsView changed = view();
  changed.up = false;
  changed.netdev = "eth1";
  SysfsTree next(dir);
  ASSERT_TRUE(next.show(changed));
  const std::string port = "/proc/self/fd/" + std::to_string(mounted.get());
  EXPECT_EQ(read(port + "/state"), "1: DOWN\n");
  EXPECT_FALSE(fs::is_symlink(dir + "/device/net/eth0"));
  auto counters = next.counters();
  const auto& fd = counters.at("device/infiniband/red0/ports/1/counters/port_rcv_data");
  ASSERT_EQ(::pwrite(fd.get(), "7\n", 2, 0), 2);
  EXPECT_EQ(read(port + "/counters/port_rcv_data"), "7\n");
}

TEST(SysfsTree, takes_itself_away) {
  const TempDir temp;
  const std::string dir = temp.path() + "/red0";
  {
    SysfsTree tree(dir);
    ASSERT_TRUE(tree.show(view()));
  }
  EXPECT_FALSE(fs::exists(dir));
}

TEST(SysfsTree, says_what_it_cannot_write) {
  const TempDir temp;
  std::ofstream(temp.path() + "/file").put('x');
  SysfsTree tree(temp.path() + "/file");
  const auto shown = tree.show(view());
  ASSERT_FALSE(shown);
  EXPECT_NE(shown.error().message().find(temp.path() + "/file"), std::string::npos);
}

}  // namespace
}  // namespace vrdma::vrdmad
