#include "vrdmad/hooks/claimed.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace vrdma::vrdmad {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr HookCaller kRootsHook{0, 0, false};

ClaimSpec ledger() {
  return {"u-1",
          "bank",
          "ledger",
          {{"control", "default", {}}, {"data", "small", {{"qp", 8}}}},
          {{"team", "red"}}};
}

HookRequest by_claim() {
  HookRequest request;
  request.container = "c0ffee";
  request.pod_namespace = "bank";
  request.claim = "u-1";
  request.share = "data";
  return request;
}

std::string refusal_of(const HookRequest& asked) {
  if (const auto may = may_claim(asked, kRootsHook); !may) return may.error().message();
  const auto share = share_of(ledger(), asked);
  return share ? "" : share.error().message();
}

TEST(Claimed, a_share_has_its_class_and_its_quota) {
  ASSERT_EQ(refusal_of(by_claim()), "");
  const auto share = share_of(ledger(), by_claim());
  EXPECT_EQ(share->device_class, "small");
  const auto its =
      claimed(*api::Classes::parse(
                   "[small]\nquota = qp=64,mr=9\nper_container = yes\ntenant = red\n", "c.conf")
                   ->find("small"),
              *share);
  EXPECT_FALSE(its.per_container) << "a share is one vdevice for a pod";
  auto spec = grant(its, by_claim(), kRootsHook);
  ASSERT_TRUE(spec) << spec.error().message();
  EXPECT_THAT(spec->quota, ElementsAre(QuotaSetting{"mr", 9}, QuotaSetting{"qp", 8}));
  EXPECT_EQ(spec->tenant, "red");
  add_claim(ledger(), *share, &*spec);
  EXPECT_EQ(spec->labels, (std::map<std::string, std::string>{{"claim", "u-1"},
                                                              {"class", "small"},
                                                              {"container", "c0ffee"},
                                                              {"pod_namespace", "bank"},
                                                              {"share", "data"},
                                                              {"team", "red"}}));
}

TEST(Claimed, only_roots_hook_may_name_a_claim) {
  for (const HookCaller caller : {HookCaller{1001, 1001, false}, {1001, 0, false}})
    EXPECT_EQ(may_claim(by_claim(), caller).error().message(),
              "user 1001 may use no claim, because only root's runtimes may tell the pod: use a "
              "class");
  EXPECT_TRUE(may_claim(by_claim(), {0, 1001, false})) << "a pod with a user namespace";
}

TEST(Claimed, only_pods_of_its_namespace_may_use_a_claim) {
  HookRequest asked = by_claim();
  asked.pod_namespace = "shop";
  EXPECT_EQ(refusal_of(asked),
            "the pod is in namespace 'shop', and claim 'u-1' is for pods of namespace 'bank'");
  asked.pod_namespace = "";
  EXPECT_EQ(refusal_of(asked),
            "the container is in no pod of Kubernetes, and claim 'u-1' is for pods of namespace "
            "'bank'");
}

TEST(Claimed, a_request_names_a_class_or_a_claim_with_a_share) {
  HookRequest asked = by_claim();
  asked.device_class = "small";
  EXPECT_THAT(refusal_of(asked), HasSubstr("must name a class, or a claim and a share"));
  for (std::string HookRequest::*const missing : {&HookRequest::claim, &HookRequest::share}) {
    asked = by_claim();
    asked.*missing = "";
    EXPECT_THAT(refusal_of(asked), HasSubstr("must name a class, or a claim and a share"));
  }
  asked = by_claim();
  asked.share = "other";
  EXPECT_THAT(refusal_of(asked), HasSubstr("claim 'u-1' has no share 'other'"));
}

TEST(Claimed, a_container_cannot_change_the_quota) {
  HookRequest asked = by_claim();
  asked.quota = "qp=1";
  EXPECT_THAT(refusal_of(asked), HasSubstr("annotation vrdma.io/quota"));
}

}  // namespace
}  // namespace vrdma::vrdmad
