#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "cli/rdma/command.h"

namespace vrdma::cli::rdma {
namespace {

namespace fs = std::filesystem;

// A /sys with the vdevice va and, before it, an adapter of the kernel.
class RdmaTest : public testing::Test {
 protected:
  void SetUp() override {
    char dir[] = "/tmp/vrdma-rdma-XXXXXX";
    ASSERT_NE(::mkdtemp(dir), nullptr);
    sys_ = dir;
    fs::create_directories(sys_ + "/class/infiniband");
    add("va", "virtual/vrdma/va");
    add("mlx5_0", "pci0000:00/0000:00:05.0");
  }
  void TearDown() override { fs::remove_all(sys_); }

  void add(const std::string& name, const std::string& device) {
    const std::string parent = sys_ + "/devices/" + device, ibdev = parent + "/infiniband/" + name;
    fs::create_directories(ibdev + "/ports/1/hw_counters");
    fs::create_directories(parent + "/net/eth0");
    fs::create_directories(parent + "/resources");
    fs::create_symlink("../../../" + fs::path(device).filename().string(), ibdev + "/device");
    fs::create_symlink("../../devices/" + device + "/infiniband/" + name,
                       sys_ + "/class/infiniband/" + name);
    for (const auto& [file, text] :
         {std::pair{"/infiniband/" + name + "/fw_ver", "vrdma-1"},
          {"/infiniband/" + name + "/node_guid", "0211:22ff:fe33:4455"},
          {"/infiniband/" + name + "/sys_image_guid", "0211:22ff:fe33:4455"},
          {"/infiniband/" + name + "/ports/1/state", "4: ACTIVE"},
          {"/infiniband/" + name + "/ports/1/phys_state", "5: LinkUp"},
          {"/infiniband/" + name + "/ports/1/cap_mask", "0x00010000"},
          {"/infiniband/" + name + "/ports/1/hw_counters/sent_pkts", "7"},
          {"/infiniband/" + name + "/ports/1/hw_counters/lifespan", "500"},
          {"/net/eth0/ifindex", "3"},
          {"/resources/qp", "2"},
          {"/resources/pd", "1"}})
      std::ofstream(parent + file) << text << "\n";
  }
  // What is printed; "pass" if it is another rdma's.
  [[nodiscard]] std::string says(const std::vector<std::string>& words) const {
    const auto got = answer(words, sys_);
    if (!got) return "pass";
    return got->status == 0 ? got->output : "status " + std::to_string(got->status);
  }

  std::string sys_;
};

TEST_F(RdmaTest, tells_of_vdevices_as_iproute2_does) {
  const std::string dev =
      "0: va: node_type ca fw vrdma-1 node_guid 0211:22ff:fe33:4455 sys_image_guid "
      "0211:22ff:fe33:4455 \n";
  EXPECT_EQ(says({"dev"}), dev);
  EXPECT_EQ(says({"d", "sh", "va"}), dev);
  const std::string link = "link va/1 state ACTIVE physical_state LINK_UP netdev eth0 ";
  EXPECT_EQ(says({"link"}), link + "\n");
  EXPECT_EQ(says({"link", "show", "va/1"}), link + "\n");
  EXPECT_EQ(says({"-d", "link"}), link + "netdev_index 3 \n    caps: <CM>\n");
  EXPECT_EQ(says({"resource"}), "0: va: pd 1 qp 2 \n");
  EXPECT_EQ(says({"res", "show", "va"}), "0: va: pd 1 qp 2 \n");
  EXPECT_EQ(says({"statistic"}), "link va/1 sent_pkts 7 \n");
  EXPECT_EQ(says({"stat", "show", "link", "va/1"}), "link va/1 sent_pkts 7 \n");
}

TEST_F(RdmaTest, and_as_json) {
  const std::string link =
      "[{\"ifindex\":0,\"ifname\":\"va\",\"port\":1,\"state\":\"ACTIVE\",\"physical_state\":"
      "\"LINK_UP\",\"netdev\":\"eth0\",\"netdev_index\":3}]\n";
  EXPECT_EQ(says({"-j", "link"}), link);
  EXPECT_EQ(says({"link", "show", "-j"}), link) << "as rdma-core's tests write it";
  EXPECT_EQ(
      says({"-jp", "resource"}),
      "[ {\n        \"ifindex\": 0,\n        \"ifname\": \"va\",\n        \"pd\": 1,\n        "
      "\"qp\": 2\n    } ]\n");
  add("vb", "virtual/vrdma/vb");
  EXPECT_EQ(
      says({"-j", "statistic"}),
      "[{\"ifindex\":0,\"ifname\":\"va\",\"port\":1,\"sent_pkts\":7},{\"ifindex\":1,\"ifname\":"
      "\"vb\",\"port\":1,\"sent_pkts\":7}]\n");
}

TEST_F(RdmaTest, leaves_the_rest_to_another) {
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{},
        {"system"},
        {"s"},
        {"monitor"},
        {"-V"},
        {"--version"},
        {"dev", "show", "mlx5_0"},
        {"link", "show", "mlx5_0/1"},
        {"link", "show", "va/2"},
        {"link", "add", "rxe0", "type", "rxe", "netdev", "eth0"},
        {"dev", "set", "va", "name", "vb"},
        {"statistic", "qp", "set", "link", "va/1", "auto", "off"}})
    EXPECT_EQ(says(words), "pass") << (words.empty() ? "nothing" : words.back());
  fs::remove(sys_ + "/class/infiniband/va");
  EXPECT_EQ(says({"dev"}), "pass") << "there is no vdevice";
  fs::remove_all(sys_ + "/class");
  EXPECT_EQ(says({"dev"}), "pass");
}

TEST_F(RdmaTest, does_not_list_single_objects) {
  EXPECT_EQ(says({"resource", "show", "qp"}), "status 1");
  EXPECT_EQ(says({"resource", "show", "mr", "dev", "va"}), "status 1");
}

}  // namespace
}  // namespace vrdma::cli::rdma
