#include "cli/mounts/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

namespace vrdma::cli {
namespace {

using Kind = Mount::Kind;

// Prints a step as "bind /a on /b ro".
std::string text_of(const Mount& step) {
  std::string text;
  switch (step.kind) {
    case Kind::kDirectory:
      return "dir " + step.to;
    case Kind::kSysfs:
      return "sysfs on " + step.to + (step.read_only ? " ro" : "");
    case Kind::kTmpfs:
      return "tmpfs on " + step.to;
    case Kind::kLink:
      return "link " + step.to + " -> " + step.from;
    case Kind::kBind:
      text = (step.own ? "own " : "bind ") + step.from + " on " + step.to;
  }
  if (step.file) text += " file";
  if (step.read_only) text += " ro";
  if (step.optional) text += " optional";
  return text;
}

std::vector<std::string> text_of(const Plan& plan) {
  std::vector<std::string> lines;
  for (const auto& step : plan) lines.push_back(text_of(step));
  return lines;
}

// A file system represented by a map.
Look look_at(std::map<std::string, std::vector<Entry>> directories) {
  return [directories](const std::string& path) -> std::optional<std::vector<Entry>> {
    const auto it = directories.find(path);
    if (it == directories.end()) return {};
    return it->second;
  };
}

const ShownVdevice kRed{"red0", "/run/vrdma/sysfs/7/red0"};
const ShownVdevice kBlue{"blue0", "/run/vrdma/sysfs/7/blue0"};

TEST(PlanDevices, a_host_without_rdma_gets_all_of_it) {
  const auto plan = plan_devices(
      look_at({{"/sys/class", {{"net", Entry::Kind::kDirectory, ""}, {"block", {}, ""}}},
               {"/sys/devices/virtual", {{"net", Entry::Kind::kDirectory, ""}}}}),
      {kRed});
  EXPECT_THAT(
      text_of(plan),
      testing::ElementsAre(
          "tmpfs on /sys/class", "own /sys/class/block on /sys/class/block",
          "own /sys/class/net on /sys/class/net", "dir /sys/class/infiniband",
          "dir /sys/class/infiniband_verbs", "tmpfs on /sys/devices/virtual",
          "own /sys/devices/virtual/net on /sys/devices/virtual/net",
          "dir /sys/devices/virtual/vrdma", "dir /dev/infiniband", "tmpfs on /dev/infiniband",
          "bind /run/vrdma/sysfs/7/red0/device on /sys/devices/virtual/vrdma/red0 ro",
          "bind /run/vrdma/sysfs/7/red0/infiniband_verbs on "
          "/sys/class/infiniband_verbs/uverbs0 ro",
          "link /sys/class/infiniband/red0 -> "
          "../../devices/virtual/vrdma/red0/infiniband/red0",
          "own /dev/null on /dev/infiniband/red0 file"));
}

TEST(PlanDevices, devices_of_the_kernel_stay) {
  const Look look = look_at(
      {{"/sys/class/infiniband", {{"mlx5_0", Entry::Kind::kLink, "../../devices/pci/mlx5_0"}}},
       {"/sys/class/infiniband_verbs",
        {{"uverbs1", Entry::Kind::kLink, "../../devices/pci/uverbs1"},
         {"abi_version", Entry::Kind::kFile, ""}}},
       {"/dev/infiniband",
        {{"uverbs1", Entry::Kind::kFile, ""}, {"by-path", Entry::Kind::kDirectory, ""}}}});
  const ShownVdevice namesake{"mlx5_0", "/run/vrdma/sysfs/7/mlx5_0"};
  EXPECT_THAT(
      text_of(plan_devices(look, {kRed, namesake, kBlue})),
      testing::ElementsAre(
          "tmpfs on /sys/class/infiniband",
          "link /sys/class/infiniband/mlx5_0 -> ../../devices/pci/mlx5_0",
          "tmpfs on /sys/class/infiniband_verbs",
          "own /sys/class/infiniband_verbs/abi_version on "
          "/sys/class/infiniband_verbs/abi_version file",
          "link /sys/class/infiniband_verbs/uverbs1 -> ../../devices/pci/uverbs1",
          "tmpfs on /sys/devices/virtual", "dir /sys/devices/virtual/vrdma", "dir /dev/infiniband",
          "tmpfs on /dev/infiniband", "own /dev/infiniband/by-path on /dev/infiniband/by-path",
          "own /dev/infiniband/uverbs1 on /dev/infiniband/uverbs1 file",
          "bind /run/vrdma/sysfs/7/blue0/device on /sys/devices/virtual/vrdma/blue0 ro",
          "bind /run/vrdma/sysfs/7/blue0/infiniband_verbs on "
          "/sys/class/infiniband_verbs/uverbs0 ro",
          "link /sys/class/infiniband/blue0 -> "
          "../../devices/virtual/vrdma/blue0/infiniband/blue0",
          "own /dev/null on /dev/infiniband/blue0 file",
          "bind /run/vrdma/sysfs/7/red0/device on /sys/devices/virtual/vrdma/red0 ro",
          "bind /run/vrdma/sysfs/7/red0/infiniband_verbs on "
          "/sys/class/infiniband_verbs/uverbs2 ro",
          "link /sys/class/infiniband/red0 -> "
          "../../devices/virtual/vrdma/red0/infiniband/red0",
          "own /dev/null on /dev/infiniband/red0 file"));
}

TEST(PlanDevices, one_class_alone_is_kept_where_the_other_is_made) {
  const Look look = look_at(
      {{"/sys/class",
        {{"infiniband", Entry::Kind::kDirectory, ""}, {"net", Entry::Kind::kDirectory, ""}}},
       {"/sys/class/infiniband", {{"rxe0", Entry::Kind::kLink, "../../devices/rxe0"}}}});
  EXPECT_THAT(
      text_of(plan_devices(look, {})),
      testing::ElementsAre(
          "tmpfs on /sys/class", "own /sys/class/net on /sys/class/net",
          "dir /sys/class/infiniband", "link /sys/class/infiniband/rxe0 -> ../../devices/rxe0",
          "dir /sys/class/infiniband_verbs", "tmpfs on /sys/devices/virtual",
          "dir /sys/devices/virtual/vrdma", "dir /dev/infiniband", "tmpfs on /dev/infiniband"));
}

// The directory of the first run is read-only.
TEST(PlanDevices, a_second_run_makes_the_directory_of_the_vdevices_anew) {
  const auto lines = text_of(plan_devices(
      look_at(
          {{"/sys/devices/virtual",
            {{"net", Entry::Kind::kDirectory, ""}, {"vrdma", Entry::Kind::kDirectory, ""}}},
           {"/sys/devices/virtual/vrdma", {{"blue0", Entry::Kind::kDirectory, ""}}},
           {"/sys/class/infiniband",
            {{"blue0", Entry::Kind::kLink, "../../devices/virtual/vrdma/blue0/infiniband/blue0"}}},
           {"/sys/class/infiniband_verbs", {{"uverbs0", Entry::Kind::kDirectory, ""}}}}),
      {kRed}));
  const auto from = std::find(lines.begin(), lines.end(), "tmpfs on /sys/devices/virtual");
  const auto to = std::find(lines.begin(), lines.end(), "dir /dev/infiniband");
  EXPECT_THAT(std::vector(from, to),
              testing::ElementsAre(
                  "tmpfs on /sys/devices/virtual",
                  "own /sys/devices/virtual/net on /sys/devices/virtual/net",
                  "dir /sys/devices/virtual/vrdma",
                  "own /sys/devices/virtual/vrdma/blue0 on /sys/devices/virtual/vrdma/blue0"));
}

// If one tenant could write to these files, another would read what it wrote.
TEST(PlanDevices, what_vrdmad_keeps_is_read_only_and_each_place_has_one_mount) {
  std::vector<ShownVdevice> many;
  for (int i = 0; i < 100; ++i)
    many.push_back({"v" + std::to_string(i), "/t/v" + std::to_string(i)});
  std::set<std::string> places;
  for (const auto& step : plan_devices(look_at({}), many)) {
    if (step.kind != Kind::kBind) continue;
    EXPECT_TRUE(step.read_only || (step.own && step.from == "/dev/null"));
    EXPECT_TRUE(places.insert(step.to).second) << step.to;
  }
  EXPECT_EQ(places.size(), 300U);
}

TEST(PlanSysfs, what_is_mounted_below_comes_back) {
  EXPECT_THAT(
      text_of(plan_sysfs({"/sys/fs/cgroup", "/sys/kernel/debug"}, true)),
      testing::ElementsAre("sysfs on /sys ro", "own /sys/fs/cgroup on /sys/fs/cgroup optional",
                           "own /sys/kernel/debug on /sys/kernel/debug optional"));
  EXPECT_THAT(text_of(plan_sysfs({}, false)), testing::ElementsAre("sysfs on /sys"));
}

}  // namespace
}  // namespace vrdma::cli
