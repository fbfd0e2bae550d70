#include "cli/criu/mounts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace vrdma::cli::criu {
namespace {

using Kind = HostMount::Kind;

// A line of mountinfo: the root of mount 219 in its file system, where it is mounted, and its
// options.
std::string line(const std::string& root, const std::string& point,
                 const std::string& options = "ro,nosuid,nodev,relatime") {
  return "219 265 0:23 " + root + " " + point + " " + options + " - tmpfs tmpfs rw,size=1k";
}

const std::vector<HostMount> kSample{{3, Kind::kLibrary, "libibverbs.so.1"},
                                     {5, Kind::kLibrary, "stubs/libdl.so.2"},
                                     {7, Kind::kSockets, ""},
                                     {8, Kind::kDevice, "vrdma0"},
                                     {9, Kind::kVerbs, "vrdma0"}};

TEST(CriuMounts, KnowsWhatTheHookMounts) {
  const std::tuple<std::string, std::string, HostMount> mounts[] = {
      {"/usr/lib/vrdma/libibverbs.so.1",
       "/run/vrdma/lib/libibverbs.so.1",
       {219, Kind::kLibrary, "libibverbs.so.1"}},
      {"/usr/lib/vrdma/librdmacm.so.1//deleted",
       "/usr/lib/x86_64-linux-gnu/librdmacm.so.1.3.44.0",
       {219, Kind::kLibrary, "librdmacm.so.1"}},
      {"/librspreload.so",
       "/run/vrdma/lib/librspreload.so",
       {219, Kind::kLibrary, "librspreload.so"}},
      {"/usr/lib/vrdma/stubs/libdl.so.2",
       "/run/vrdma/stubs/libdl.so.2",
       {219, Kind::kLibrary, "stubs/libdl.so.2"}},
      {"/vrdma/netns/7", "/run/vrdma/netns/7", {219, Kind::kSockets, ""}},
      {"/vrdma/netns/8", "/run/vrdma/netns/7", {219, Kind::kSockets, ""}},  // restored once already
      {"/vrdma/sysfs/7/red/device", "/sys/devices/virtual/vrdma/red", {219, Kind::kDevice, "red"}},
      {"/vrdma/sysfs/7/red/infiniband_verbs",
       "/sys/class/infiniband_verbs/uverbs0",
       {219, Kind::kVerbs, "red"}},
  };
  for (const auto& [root, point, expected] : mounts) {
    const auto mount = host_mount(line(root, point));
    ASSERT_TRUE(mount) << root;
    EXPECT_EQ(*mount, expected) << root;
  }
}

TEST(CriuMounts, LeavesOthersAlone) {
  const std::string others[] = {
      line("/usr/lib/vrdma/libibverbs.so.1", "/run/vrdma/lib/libibverbs.so.1",
           "rw,nosuid,relatime"),
      line("/usr/lib/libc.so.6", "/usr/lib/libc.so.6"),
      line("/home/libdl.so.2", "/lib/libdl.so.2"),
      line("/vrdma/netns/7", "/mnt/7"),
      line("/vrdma/netns/x", "/run/vrdma/netns/x"),
      line("/vrdma/sysfs/x/red/device", "/sys/devices/virtual/vrdma/red"),
      line("/vrdma/sysfs/7/red/power", "/sys/devices/virtual/vrdma/red"),
      line("/7/red/device", "/sys/devices/virtual/vrdma/red"),
      line("/", "/run/vrdma"),
      "",
      "219 265 0:23 /vrdma/netns/7",
  };
  for (const std::string& other : others) EXPECT_FALSE(host_mount(other)) << other;
}

TEST(CriuMounts, AreDecodedAsTheyWereEncoded) {
  const auto again = decode_mounts(encode(kSample));
  ASSERT_TRUE(again) << again.error().message();
  EXPECT_EQ(*again, kSample);
  EXPECT_TRUE(decode_mounts(encode({})));
}

TEST(CriuMounts, RefusesWhatNoPluginWrites) {
  const std::pair<std::string, std::string> changes[] = {
      {"\"version\": 1", "\"version\": 2"},
      {"\"id\": 3", "\"id\": -3"},
      {"\"id\": 3", "\"id\": \"3\""},
      {"\"library\"", "\"file\""},
      {"libibverbs.so.1", "../../../etc/shadow"},
      {"libibverbs.so.1", "libc.so.6"},
      {"\"name\": \"\"", "\"name\": \"..\""},
      {"\"name\": \"vrdma0\"", "\"name\": \"..\""},
      {"\"name\": \"vrdma0\"", "\"name\": \".\""},
      {"\"name\": \"vrdma0\"", "\"name\": \"\""},
      {"\"name\": \"vrdma0\"", "\"name\": \"../7/red\""},
      {"\"name\": \"vrdma0\"", "\"name\": \"red\\u0000\""},
      {"\"mounts\": [", "\"mounts\": 7, \"was\": ["},
  };
  for (const auto& [from, to] : changes) {
    std::string bytes = encode(kSample);
    const size_t at = bytes.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    EXPECT_FALSE(decode_mounts(bytes.replace(at, from.size(), to))) << from << " -> " << to;
  }
  EXPECT_FALSE(decode_mounts(""));
  EXPECT_FALSE(decode_mounts("[]"));
}

TEST(CriuMounts, ComeFromTheNetworkNamespaceThatTheContainerIsInNow) {
  const Host host{"/usr/lib/vrdma", "/run/vrdma"};
  const char* const sources[] = {
      "/usr/lib/vrdma/libibverbs.so.1", "/usr/lib/vrdma/stubs/libdl.so.2", "/run/vrdma/netns/12",
      "/run/vrdma/sysfs/12/vrdma0/device", "/run/vrdma/sysfs/12/vrdma0/infiniband_verbs"};
  for (size_t i = 0; i < kSample.size(); ++i)
    EXPECT_EQ(source_of(kSample[i], host, 12), sources[i]);
}

}  // namespace
}  // namespace vrdma::cli::criu
