#include "vrdmad/control/claims.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <fstream>

#include "core/rdma/peer.h"
#include "tests/unit/vrdmad/control/child_container.h"
#include "tests/unit/vrdmad/control/own_netns.h"

namespace vrdma::vrdmad {
namespace {

using testing::HasSubstr;

ClaimSpec ledger() {
  return {"u-1",
          "bank",
          "ledger.data",
          {{"data", "small", {{"qp", 8}, {"mr", UINT64_MAX}}}, {"control", "default", {}}},
          {{"team", "red"}}};
}

std::string error_of(const std::function<void(ClaimSpec&)>& change) {
  ClaimSpec claim = ledger();
  change(claim);
  const auto canonical = Claims::canonical(claim);
  if (canonical) return "";
  EXPECT_EQ(canonical.error().code(), EINVAL);
  return canonical.error().message();
}

TEST(Claims, have_one_form) {
  const auto claim = Claims::canonical(ledger());
  ASSERT_TRUE(claim) << claim.error().message();
  ClaimSpec other = ledger();
  std::swap(other.shares[0], other.shares[1]);
  std::swap(other.shares[1].quota[0], other.shares[1].quota[1]);
  EXPECT_EQ(*Claims::canonical(other), *claim);
  EXPECT_EQ(claim->shares[0].id, "control");
}

TEST(Claims, that_are_wrong_are_refused_with_a_sentence) {
  const std::string rule = "1 to 63 letters, digits and '-', with a letter or a digit at both ends";
  for (const char* const id : {"", "-a", "a-", "a/b", "a.b", "a_b", "a\nb", "../x"}) {
    EXPECT_THAT(error_of([&](auto& claim) { claim.uid = id; }), HasSubstr(rule)) << id;
    EXPECT_THAT(error_of([&](auto& claim) { claim.pod_namespace = id; }), HasSubstr(rule)) << id;
    EXPECT_THAT(error_of([&](auto& claim) { claim.shares[0].id = id; }), HasSubstr(rule)) << id;
  }
  EXPECT_THAT(error_of([](auto& claim) { claim.uid = std::string(64, 'a'); }), HasSubstr(rule));
  EXPECT_EQ(error_of([](auto& claim) { claim.uid = std::string(63, 'a'); }), "");
  for (const auto& name : {std::string(), std::string("a/b"), std::string(254, 'a')})
    EXPECT_THAT(error_of([&](auto& claim) { claim.name = name; }),
                HasSubstr("claim 'u-1': the name '"));
  EXPECT_THAT(error_of([](auto& claim) { claim.shares.clear(); }), HasSubstr("it has 0 shares"));
  EXPECT_THAT(error_of([](auto& claim) {
                for (int i = 0; i < 7; ++i)
                  claim.shares.push_back({"s" + std::to_string(i), "small", {}});
              }),
              HasSubstr("it has 9 shares: it needs 1 to 8"));
  EXPECT_THAT(error_of([](auto& claim) { claim.shares[1].id = "data"; }),
              HasSubstr("two shares have the id 'data'"));
  EXPECT_THAT(error_of([](auto& claim) { claim.shares[0].device_class = ""; }),
              HasSubstr("share 'data' has no class"));
  EXPECT_THAT(error_of([](auto& claim) {
                claim.shares[0].quota = {{"frogs", 1}};
              }),
              HasSubstr("claim 'u-1': share 'data': "));
  EXPECT_THAT(error_of([](auto& claim) {
                claim.shares[0].quota = {{"qp", 1}, {"qp", 1}};
              }),
              HasSubstr("claim 'u-1': share 'data': "));
  EXPECT_THAT(error_of([](auto& claim) { claim.labels["claim"] = "x"; }),
              HasSubstr("label 'claim' is that of vrdmad itself"));
  EXPECT_THAT(error_of([](auto& claim) {
                for (int i = 0; i < 6; ++i) claim.labels["l" + std::to_string(i)] = "";
              }),
              HasSubstr("7 labels are too many: it has at most 6"));
  EXPECT_THAT(error_of([](auto& claim) { claim.labels["/"] = "x"; }),
              HasSubstr("is not a valid label key"));
}

class ClaimsTest : public OwnNetns {
 protected:
  void SetUp() override {
    std::ofstream(classes_) << "[small]\n";
    OwnNetns::SetUp();
  }
  // By the present claim u-1, and the vdevice that a hook would ask for.
  base::Result<HookBackend::Given> give(const Container& container, const std::string& share) {
    auto claim = daemon_->find_claim("u-1");
    if (!claim) return base::pass(claim.error());
    return give(container, share, *claim);
  }
  base::Result<HookBackend::Given> give(const Container& container, const std::string& share,
                                        const ClaimSpec& claim) {
    VdevSpec wanted = spec("vrdma0");
    wanted.labels = {{"class", "small"}, {"claim", claim.uid}, {"share", share}};
    wanted.containers = {container};
    HookBackend::Terms terms;
    terms.shared = true;
    terms.claim = claim;
    return daemon_->give(wanted, *netns::current(), terms);
  }
  // Of the shares "control" and "data" of u-1.
  std::vector<uint32_t> vdevices() {
    for (const auto& info : daemon_->list_claims())
      if (info.claim.uid == "u-1") return info.vdevices;
    return {};
  }
  int put() {
    const auto put = daemon_->put_claim(ledger());
    return put ? 0 : put.error().code();
  }
  std::vector<ClaimSpec> stored() { return store_->claims().value(); }
};

TEST_F(ClaimsTest, are_on_disk_before_the_answer) {
  const auto put = daemon_->put_claim(ledger());
  ASSERT_TRUE(put) << put.error().message();
  EXPECT_EQ(put->claim, *Claims::canonical(ledger()));
  EXPECT_EQ(put->vdevices, (std::vector<uint32_t>{0, 0}));
  EXPECT_EQ(stored(), (std::vector<ClaimSpec>{put->claim}));
  ClaimSpec changed = ledger();
  changed.shares.pop_back();
  changed.labels.clear();
  ASSERT_TRUE(daemon_->put_claim(changed)) << "no container has a vdevice by it";
  EXPECT_EQ(stored(), (std::vector<ClaimSpec>{*Claims::canonical(changed)}));
  ASSERT_TRUE(daemon_->delete_claim("u-1", false));
  ASSERT_TRUE(daemon_->delete_claim("u-1", false)) << "an unknown one is no error";
  EXPECT_TRUE(stored().empty());
  EXPECT_TRUE(daemon_->list_claims().empty());
  EXPECT_EQ(daemon_->find_claim("u-1").error().message(),
            "vrdmad has no claim 'u-1': delete the pod, so that its node prepares the claim again");
}

TEST_F(ClaimsTest, name_classes_that_exist) {
  ClaimSpec claim = ledger();
  claim.shares[1].device_class = "large";
  const auto put = daemon_->put_claim(claim);
  ASSERT_FALSE(put);
  EXPECT_EQ(put.error().code(), ENOENT);
  EXPECT_THAT(put.error().message(), HasSubstr("claim 'u-1': "));
  EXPECT_THAT(put.error().message(), HasSubstr("'large'"));
  EXPECT_TRUE(daemon_->list_claims().empty());
  ASSERT_EQ(this->put(), 0);
  std::ofstream(classes_) << "[tiny]\n";
  EXPECT_EQ(this->put(), 0) << "what is there is a success, whatever became of its class";
}

TEST_F(ClaimsTest, give_the_containers_of_a_pod_one_vdevice_for_each_share) {
  ASSERT_EQ(put(), 0);
  ChildContainer one("one"), two("two");
  const auto first = give(one.container(), "data");
  ASSERT_TRUE(first) << first.error().message();
  EXPECT_TRUE(first->added);
  EXPECT_EQ(give(two.container(), "data")->vdevice, first->vdevice);
  EXPECT_EQ(vdevices(), (std::vector<uint32_t>{0, 1}));
  const auto other = give(two.container(), "control");
  ASSERT_TRUE(other) << other.error().message();
  EXPECT_NE(other->vdevice, first->vdevice) << "of the same class, but of another share";
  EXPECT_EQ(vdevices(), (std::vector<uint32_t>{1, 1}));
  VdevSpec by_class = spec("vrdma0");
  by_class.labels = {{"class", "small"}};
  by_class.containers = {two.container()};
  HookBackend::Terms terms;
  terms.shared = true;
  const auto plain = daemon_->give(by_class, *netns::current(), terms);
  ASSERT_TRUE(plain) << plain.error().message();
  EXPECT_NE(plain->vdevice, first->vdevice) << "the class alone is no claim";
  one.end();
  two.end();
  EXPECT_TRUE(eventually([&] { return vdevices() == std::vector<uint32_t>{0, 0}; }));
}

TEST_F(ClaimsTest, that_are_in_use_neither_change_nor_go) {
  ASSERT_EQ(put(), 0);
  ChildContainer one("one");
  ASSERT_TRUE(give(one.container(), "data"));
  EXPECT_EQ(put(), 0) << "the same content is a success";
  ClaimSpec changed = ledger();
  changed.shares[0].quota = {{"qp", 9}};
  EXPECT_EQ(daemon_->put_claim(changed).error().message(),
            "container one has vdevice pid:" + std::to_string(one.container().init.pid) +
                "/vrdma0 by claim 'u-1': end it before the claim changes");
  const auto kept = daemon_->delete_claim("u-1", false);
  ASSERT_FALSE(kept);
  EXPECT_EQ(kept.error().code(), EBUSY);
  EXPECT_EQ(stored().size(), 1U);
  EXPECT_EQ(daemon_->list_vdevs().size(), 1U);
  ASSERT_TRUE(daemon_->delete_claim("u-1", true));
  EXPECT_TRUE(daemon_->list_vdevs().empty()) << "its vdevices go with it";
  EXPECT_TRUE(store_->vdevs()->empty());
  EXPECT_TRUE(stored().empty());
}

TEST_F(ClaimsTest, that_change_while_a_hook_asks_are_refused) {
  ASSERT_EQ(put(), 0);
  ChildContainer one("one");
  const ClaimSpec before = *daemon_->find_claim("u-1");
  ClaimSpec changed = ledger();
  changed.shares[0].quota = {{"qp", 9}};
  ASSERT_TRUE(daemon_->put_claim(changed));
  const auto stale = give(one.container(), "data", before);
  ASSERT_FALSE(stale);
  EXPECT_EQ(stale.error().code(), EAGAIN);
  ASSERT_TRUE(daemon_->delete_claim("u-1", false));
  EXPECT_FALSE(give(one.container(), "data", *Claims::canonical(changed)));
  EXPECT_TRUE(daemon_->list_vdevs().empty());
}

class ManyClaimsTest : public ClaimsTest {
 protected:
  void SetUp() override {
    std::vector<Store::Change> all;
    ClaimSpec claim = *Claims::canonical(ledger());
    for (size_t i = 0; i < Claims::kMost - 1; ++i) {
      claim.uid = "many-" + std::to_string(i);
      all.emplace_back(claim);
    }
    for (const auto& written : store_->write(all)) ASSERT_TRUE(written);
    ClaimsTest::SetUp();
  }
};

TEST_F(ManyClaimsTest, have_a_bound) {
  EXPECT_EQ(daemon_->list_claims().size(), Claims::kMost - 1) << "they survive a restart";
  ASSERT_EQ(put(), 0);
  ClaimSpec claim = ledger();
  claim.uid = "one-too-many";
  const auto refused = daemon_->put_claim(claim);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), ENOSPC);
  EXPECT_THAT(refused.error().message(), HasSubstr("vrdmad has 4096 claims"));
  claim.uid = "many-0";
  claim.name = "other";
  EXPECT_TRUE(daemon_->put_claim(claim)) << "those that are there may change";
  ASSERT_TRUE(daemon_->delete_claim("many-0", false));
  claim.uid = "one-too-many";
  EXPECT_TRUE(daemon_->put_claim(claim));
}

}  // namespace
}  // namespace vrdma::vrdmad
