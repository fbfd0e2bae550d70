#include "cli/kubernetes/dra/slices.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/unit/core/base/temp_dir.h"

namespace vrdma::cli::kubernetes {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using Json = nlohmann::json;

const SliceOwner kOwner{"vrdma.io", "node-1", "5e3e7a52"};

v1::Class a_class(const std::string& name, uint32_t devices = 8) {
  v1::Class its;
  its.set_name(name);
  its.set_parent("soft");
  its.set_devices(devices);
  its.set_free(UINT32_MAX);
  its.set_reach("network");
  return its;
}
void limit(google::protobuf::RepeatedPtrField<v1::QuotaSetting>* of, const char* kind,
           uint64_t limit) {
  auto& setting = *of->Add();
  setting.set_kind(kind);
  setting.set_limit(limit);
}
PoolDevice device_of(const v1::Class& which, const std::optional<Unhealthy>& why = {}) {
  return pool_device_of(which, why, "vrdma.io", "");
}

// ---- devices
// -------------------------------------------------------------------------------------

TEST(Pool, HasADeviceForAClass) {
  v1::Class its = a_class("small");
  limit(its.mutable_quota(), "qp", 64);
  limit(its.mutable_max_quota(), "qp", 256);
  limit(its.mutable_quota(), "bandwidth", 1'250'000'000);
  const auto device = pool_device_of(its, {}, "vrdma.io", "pci0000:00");
  EXPECT_EQ(device.name, "small");
  EXPECT_EQ(device.attributes.at("vrdma.io/class"), "small");
  EXPECT_EQ(device.attributes.at("vrdma.io/parent"), "soft");
  EXPECT_EQ(device.attributes.at("vrdma.io/reach"), "network");
  EXPECT_EQ(device.attributes.at("resource.kubernetes.io/pcieRoot"), "pci0000:00");
  EXPECT_EQ(device.capacities.at("vdevices"), (Capacity{8, 1, 1, 1}));
  EXPECT_EQ(device.capacities.at("qp"), (Capacity{512, 1, 64, 256}));
  // In bits.
  EXPECT_EQ(device.capacities.at("bandwidth"),
            (Capacity{80'000'000'000, 8, 10'000'000'000, 10'000'000'000}));
  EXPECT_EQ(device.capacities.at("mr_bytes").initial, uint64_t{16} << 30);
  EXPECT_EQ(device.taint, "");
}

TEST(Pool, TotalsAreEnoughForOneAndFitInTheApi) {
  v1::Class its = a_class("one", 1);
  limit(its.mutable_quota(), "qp", 1);
  limit(its.mutable_max_quota(), "qp", UINT64_MAX);  // "max"
  limit(its.mutable_quota(), "mr_bytes", uint64_t{1} << 46);
  its.set_devices(1'000'000);
  const auto device = device_of(its);
  EXPECT_EQ(device.capacities.at("qp").most, 65536u);
  EXPECT_GE(device.capacities.at("qp").total, 65536u);
  EXPECT_LE(device.capacities.at("mr_bytes").total, uint64_t{INT64_MAX});
  EXPECT_EQ(device.capacities.count("bandwidth"), 0u);  // without a limit
}

TEST(Pool, AnUnhealthyClassIsTaintedAndNotRemoved) {
  EXPECT_EQ(device_of(a_class("small"), Unhealthy{"vrdmad", "it is away"}).taint, "vrdmad");
  v1::Class full = a_class("small");
  full.set_free(0);
  EXPECT_EQ(device_of(full).taint, "full");
}

TEST(Pool, NamesOfDevicesAreLabels) {
  EXPECT_EQ(pool_device_name("small-1"), "small-1");
  const std::set<std::string> names = {pool_device_name("a_b"),
                                       pool_device_name("a.b"),
                                       pool_device_name("a-b"),
                                       pool_device_name("A-B"),
                                       pool_device_name("a-"),
                                       pool_device_name(std::string(63, 'X')),
                                       pool_device_name(std::string(62, 'X') + "Y")};
  EXPECT_EQ(names.size(), 7u);
  for (const auto& name : names) {
    EXPECT_LE(name.size(), 63u);
    EXPECT_TRUE(std::isalnum(name.front()) && std::isalnum(name.back())) << name;
    EXPECT_EQ(name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-"), name.npos) << name;
  }
}

TEST(Pool, ConsumedCapacityIsAQuota) {
  const auto quota = quota_of({{"vdevices", 1}, {"qp", 64}, {"bandwidth", 10'000'000'000}});
  ASSERT_TRUE(quota);
  ASSERT_EQ(quota->size(), 2u);
  EXPECT_EQ(quota->at(0).kind(), "bandwidth");
  EXPECT_EQ(quota->at(0).limit(), 1'250'000'000u);
  EXPECT_EQ(quota->at(1).limit(), 64u);
  EXPECT_EQ(quota_of({{"bandwidth", 1}})->at(0).limit(), 1u);  // never 0, which may be no limit
  EXPECT_THAT(quota_of({{"gold", 1}}).error().message(), HasSubstr("'gold'"));
}

TEST(Pool, KnowsTheRootOfAnAdapter) {
  const test::TempDir dir;
  const std::string device = dir / "devices/pci0000:16/0000:16:02.0/0000:17:00.0";
  std::filesystem::create_directories(device);
  std::filesystem::create_directories(dir / "class/infiniband/mlx5_0");
  std::filesystem::create_directory_symlink(device, dir / "class/infiniband/mlx5_0/device");
  EXPECT_EQ(pcie_root("mlx5_0", dir.path()), "pci0000:16");
  EXPECT_EQ(pcie_root("soft", dir.path()), "");
}

// ---- slices
// --------------------------------------------------------------------------------------

std::vector<PoolDevice> devices(size_t number) {
  std::vector<PoolDevice> all;
  for (size_t i = 0; i < number; ++i) all.push_back(device_of(a_class("c" + std::to_string(i))));
  return all;
}

// What the API server has after a plan.
std::vector<Slice> carried_out(const std::vector<SliceWrite>& plan, std::vector<Slice> existing) {
  for (const auto& write : plan) {
    std::erase_if(existing, [&](const Slice& one) { return one.name == write.name; });
    if (write.what != SliceWrite::What::kRemove) existing.push_back(*parse_slice(write.body));
  }
  return existing;
}

TEST(Slices, AreWrittenOnce) {
  const auto plan = plan_slices(kOwner, devices(2), {}, 0);
  ASSERT_EQ(plan.size(), 1u);
  EXPECT_EQ(plan[0].what, SliceWrite::What::kCreate);
  EXPECT_EQ(plan[0].name, "node-1-vrdma.io-0");
  const Json body = Json::parse(plan[0].body);
  EXPECT_EQ(body["spec"]["pool"],
            Json({{"name", "node-1"}, {"generation", 1}, {"resourceSliceCount", 1}}));
  EXPECT_EQ(body["spec"]["nodeName"], "node-1");
  EXPECT_EQ(body["spec"]["driver"], "vrdma.io");
  EXPECT_EQ(body["metadata"]["ownerReferences"][0]["uid"], "5e3e7a52");
  EXPECT_EQ(body["spec"]["devices"][0]["allowMultipleAllocations"], true);
  EXPECT_EQ(body["spec"]["devices"][0]["capacity"]["vdevices"],
            Json::parse(R"({"value": "8", "requestPolicy": {"default": "1",
                            "validRange": {"min": "1", "max": "1"}}})"));
  EXPECT_THAT(plan_slices(kOwner, devices(2), carried_out(plan, {}), 1), IsEmpty());
}

TEST(Slices, QuantitiesAreComparedAndNotTheirText) {
  auto plan = plan_slices(kOwner, devices(1), {}, 0);
  Json body = Json::parse(plan[0].body);
  auto& capacity = body["spec"]["devices"][0]["capacity"]["mr_bytes"];
  capacity["requestPolicy"]["default"] = "16Gi";
  plan[0].body = body.dump();
  EXPECT_THAT(plan_slices(kOwner, devices(1), carried_out(plan, {}), 1), IsEmpty());
  capacity["requestPolicy"]["default"] = "15Gi";
  plan[0].body = body.dump();
  EXPECT_EQ(plan_slices(kOwner, devices(1), carried_out(plan, {}), 1).size(), 1u);
}

TEST(Slices, AChangeRaisesTheGenerationOfAll) {
  const auto before = carried_out(plan_slices(kOwner, devices(130), {}, 0), {});
  ASSERT_EQ(before.size(), 3u);
  auto changed = devices(130);
  changed[0].taint = "vrdmad";
  const auto plan = plan_slices(kOwner, changed, before, 1);
  ASSERT_EQ(plan.size(), 3u);
  for (const auto& write : plan) {
    EXPECT_EQ(write.what, SliceWrite::What::kReplace);
    const auto slice = *parse_slice(write.body);
    EXPECT_EQ(slice.generation, 2u);
    EXPECT_EQ(slice.count, 3u);
    EXPECT_LE(slice.devices.size(), kMostInSlice);
  }
  EXPECT_THAT(plan_slices(kOwner, changed, carried_out(plan, before), 2), IsEmpty());
}

TEST(Slices, AreRemovedWhereThePoolHasFewer) {
  const auto before = carried_out(plan_slices(kOwner, devices(65), {}, 0), {});
  const auto plan = plan_slices(kOwner, devices(64), before, 0);
  ASSERT_EQ(plan.size(), 2u);
  EXPECT_EQ(plan[0].what, SliceWrite::What::kReplace);
  EXPECT_EQ(plan[1].what, SliceWrite::What::kRemove);
  EXPECT_EQ(plan_slices(kOwner, {}, before, 0).size(), 2u);
}

TEST(Slices, DeletedOnesGetANewGeneration) {
  const auto plan = plan_slices(kOwner, devices(65), {}, 7);
  for (const auto& write : plan) EXPECT_EQ(parse_slice(write.body)->generation, 8u);
  auto half = carried_out(plan, {});
  half.pop_back();
  for (const auto& write : plan_slices(kOwner, devices(65), half, 0))
    EXPECT_EQ(parse_slice(write.body)->generation, 9u);
}

TEST(Slices, ThatAreNotUnderstoodAreReplaced) {
  const auto plan = plan_slices(kOwner, devices(1), {}, 0);
  for (const auto& [place, value] : {std::pair{"/spec/pool/generation", Json("one")},
                                     {"/spec/pool/resourceSliceCount", Json(-1)},
                                     {"/spec/pool/name", Json("node-2")},
                                     {"/spec/devices/0/name", Json(1)},
                                     {"/spec/devices/0/capacity", Json({{"vdevices", 7}})},
                                     {"/spec/devices/0/taints", Json::array({1, 2})},
                                     {"/spec/devices", Json("none")}}) {
    Json body = Json::parse(plan[0].body);
    body[Json::json_pointer(place)] = value;
    EXPECT_EQ(plan_slices(kOwner, devices(1), {*parse_slice(body.dump())}, 0).size(), 1u) << place;
  }
}

TEST(Slices, ListsOfAnyFormAreReadOrRefused) {
  for (const char* const text : {"", "[]", "{}", "<html>", R"({"kind": "ResourceSliceList"})",
                                 R"({"kind": "Status", "metadata": {"resourceVersion": "1"}})",
                                 R"({"kind": "ResourceSliceList", "items": 7,
                                     "metadata": {"resourceVersion": "1"}})",
                                 R"({"kind": "ResourceSliceList", "items": [{}],
                                     "metadata": {"resourceVersion": "1"}})",
                                 R"({"kind": "ResourceSliceList", "items": [{"metadata":
                                     {"name": "../x"}}], "metadata": {"resourceVersion": "1"}})"})
    EXPECT_FALSE(parse_slices(text)) << text;
  const auto list = parse_slices(R"({"kind": "ResourceSliceList", "items": [
                                     {"metadata": {"name": "a"}, "spec": [null]}],
                                     "metadata": {"resourceVersion": "12"}})");
  ASSERT_TRUE(list);
  EXPECT_EQ(list->version, "12");
  EXPECT_EQ(list->slices.size(), 1u);
  EXPECT_TRUE(parse_slices(R"({"kind": "ResourceSliceList", "items": null,
                               "metadata": {"resourceVersion": "1"}})"));
  EXPECT_FALSE(parse_slice("{}"));
}

TEST(Slices, NamesFitInTheApi) {
  SliceOwner owner = kOwner;
  owner.node = std::string(253, 'n');
  owner.driver = std::string(63, 'd');
  const auto plan = plan_slices(owner, devices(1), {}, 0);
  EXPECT_LE(plan[0].name.size(), 253u);
}

}  // namespace
}  // namespace vrdma::cli::kubernetes
