#include "cli/kubernetes/dra/claim.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace vrdma::cli::kubernetes {
namespace {

using testing::HasSubstr;
using testing::Pair;
using testing::UnorderedElementsAre;
using Json = nlohmann::json;

constexpr char kUid[] = "0b51bbf2-0d2f-4b0e-9a4e-4f3d5a3d6c11";
constexpr char kShare[] = "a671734a-e8e5-11e4-8fde-42010af09327";

Json a_claim() {
  return Json::parse(R"({"kind": "ResourceClaim", "apiVersion": "resource.k8s.io/v1",
    "metadata": {"namespace": "shop", "name": "pay", "uid": "0b51bbf2-0d2f-4b0e-9a4e-4f3d5a3d6c11"},
    "status": {"allocation": {"devices": {"results": [
      {"request": "gpu", "driver": "gpu.example", "pool": "node-1", "device": "small",
       "consumedCapacity": {"odd": "-7"}},
      {"request": "net/first", "driver": "vrdma.io", "pool": "node-1", "device": "small",
       "shareID": "a671734a-e8e5-11e4-8fde-42010af09327",
       "consumedCapacity": {"vdevices": "1", "qp": "64", "mr_bytes": "2Gi"}}]}}}})");
}
Json& result(Json& claim) { return claim["status"]["allocation"]["devices"]["results"][1]; }

base::Result<std::vector<AllocatedDevice>> devices_of(const Json& claim) {
  return allocated_devices(claim.dump(), {"shop", "pay", kUid}, "vrdma.io", "node-1");
}
std::string refusal(const Json& claim) {
  const auto devices = devices_of(claim);
  EXPECT_FALSE(devices);
  return devices ? "" : devices.error().message();
}

TEST(Claim, HasTheDevicesThatTheSchedulerAllocated) {
  const auto devices = devices_of(a_claim());
  ASSERT_TRUE(devices) << devices.error().message();
  ASSERT_EQ(devices->size(), 1u);
  const auto& device = devices->front();
  EXPECT_EQ(device.request, "net");
  EXPECT_EQ(device.device, "small");
  EXPECT_EQ(device.share, kShare);
  EXPECT_TRUE(device.has_share_id);
  EXPECT_THAT(device.consumed, UnorderedElementsAre(Pair("vdevices", 1), Pair("qp", 64),
                                                    Pair("mr_bytes", uint64_t{2} << 30)));
}

TEST(Claim, NeedsNoShareId) {
  Json claim = a_claim();
  result(claim).erase("shareID");
  const auto devices = devices_of(claim);
  ASSERT_TRUE(devices);
  EXPECT_EQ(devices->front().share, "1");
  EXPECT_FALSE(devices->front().has_share_id);
}

TEST(Claim, HasNoneOfAnotherNodeOrUidOrBeforeItsAllocation) {
  Json claim = a_claim();
  result(claim)["pool"] = "node-2";
  EXPECT_TRUE(devices_of(claim)->empty());
  claim = a_claim();
  claim["metadata"]["uid"] = "another";
  EXPECT_TRUE(devices_of(claim)->empty());
  claim = a_claim();
  claim["status"] = Json::object();
  EXPECT_TRUE(devices_of(claim)->empty());
}

TEST(Claim, IsRefusedIfWhatItGrantsIsNotUnderstood) {
  Json claim = a_claim();
  result(claim)["consumedCapacity"]["qp"] = "many";
  EXPECT_THAT(refusal(claim), HasSubstr("it consumes 'qp': 'many' is not a quantity"));
  claim = a_claim();
  result(claim)["consumedCapacity"]["qp"] = 64;
  EXPECT_THAT(refusal(claim), HasSubstr("'qp'"));
  claim = a_claim();
  result(claim)["consumedCapacity"]["vrdma.io/qp"] = "1";
  EXPECT_THAT(refusal(claim), HasSubstr("it consumes 'qp' twice"));
  claim = a_claim();
  result(claim)["consumedCapacity"] = Json::array({1});
  EXPECT_THAT(refusal(claim), HasSubstr("no capacity"));
  claim = a_claim();
  result(claim)["adminAccess"] = true;
  EXPECT_THAT(refusal(claim), HasSubstr("administrative access"));
  for (const char* const share : {"../../etc/passwd", "a/b", "-a", ".", "a b", "x\n"}) {
    claim = a_claim();
    result(claim)["shareID"] = share;
    EXPECT_THAT(refusal(claim), HasSubstr("it has the share")) << share;
  }
  claim = a_claim();
  claim["status"]["allocation"]["devices"]["results"].push_back(result(claim));
  EXPECT_THAT(refusal(claim), HasSubstr("twice"));
}

TEST(Claim, HasNoConfigurationForUs) {
  Json claim = a_claim();
  auto& config = claim["status"]["allocation"]["devices"]["config"];
  config = Json::array({{{"opaque", {{"driver", "gpu.example"}, {"parameters", 1}}}}});
  EXPECT_TRUE(devices_of(claim));
  config.push_back({{"opaque", {{"driver", "vrdma.io"}, {"parameters", 1}}}});
  EXPECT_THAT(refusal(claim), HasSubstr("takes none"));
}

TEST(Claim, OfAnyOtherFormIsAnError) {
  for (const char* const text :
       {"", "null", "[]", "{}", "<html>", "{\"kind\": \"ResourceClaim\"}", "\"ResourceClaim\"",
        "{\"kind\": \"ResourceClaim\", \"metadata\": []}", "{\"kind\": \"Status\"}"}) {
    const auto devices = allocated_devices(text, {"shop", "pay", kUid}, "vrdma.io", "node-1");
    ASSERT_FALSE(devices) << text;
    EXPECT_EQ(devices.error().code(), EPROTO) << text;
  }
  for (const char* const place : {"/status", "/status/allocation", "/status/allocation/devices",
                                  "/status/allocation/devices/results"})
    for (const auto& value : {Json(7), Json("x"), Json::array({Json(), 1}), Json({{"a", 1}})}) {
      Json claim = a_claim();
      claim[Json::json_pointer(place)] = value;
      EXPECT_TRUE(devices_of(claim)->empty()) << place << value;
    }
  EXPECT_FALSE(
      allocated_devices(std::string(1 << 20, '['), {"shop", "pay", kUid}, "vrdma.io", "n"));
}

TEST(Claim, IsNamedByWhatCanBePartOfAPath) {
  EXPECT_TRUE(check_name({"shop", "pay.1-x", kUid}));
  EXPECT_EQ(claim_path({"shop", "pay", kUid}),
            "/apis/resource.k8s.io/v1/namespaces/shop/resourceclaims/pay");
  const std::string longest(253, 'a');
  EXPECT_TRUE(check_name({"shop", longest, kUid}));
  for (const ClaimName& wrong : {ClaimName{"", "pay", kUid},
                                 {"shop", "", kUid},
                                 {"shop", "pay", ""},
                                 {"shop", "../secrets/x", kUid},
                                 {"..", "pay", kUid},
                                 {"shop", "pay?x=1", kUid},
                                 {"shop", "pay", "../x"},
                                 {"shop", "pay", "a/b"},
                                 {"shop", longest + "a", kUid},
                                 {"shop", "pay", std::string(64, 'a')},
                                 {"Shop", "pay", kUid}})
    EXPECT_FALSE(check_name(wrong)) << wrong.space << "/" << wrong.name << " " << wrong.uid;
}

}  // namespace
}  // namespace vrdma::cli::kubernetes
