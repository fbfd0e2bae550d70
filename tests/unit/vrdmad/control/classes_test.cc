// What the daemon says of the classes of containers, and what a class does to its fabric.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "tests/unit/vrdmad/control/child_container.h"
#include "tests/unit/vrdmad/control/own_netns.h"

namespace vrdma::vrdmad {
namespace {

using testing::HasSubstr;

class ClassesTest : public OwnNetns {
 protected:
  // Gives a vdevice of class "a" to a container, whose first process is in this test's namespace.
  base::Result<HookBackend::Given> give(const VdevSpec& its, std::optional<Reach> reach = {},
                                        std::optional<std::vector<gid::Prefix>> peers = {}) {
    VdevSpec spec = its;
    spec.labels["class"] = "a";
    spec.containers = {container_.container()};
    HookBackend::Terms terms;
    terms.reach = reach;
    terms.peers = std::move(peers);
    return daemon_->give(spec, *netns::current(), terms);
  }
  ClassInfo class_a() {
    const auto listed = daemon_->list_classes();
    EXPECT_TRUE(listed) << listed.error().message();
    return listed ? listed->at(0) : ClassInfo();
  }
  ChildContainer container_{"c0ffee"};
};

TEST_F(ClassesTest, AreCountedAgainstTheirBudgets) {
  std::ofstream(classes_) << "[a]\ntenant = red\nquota = qp=10\ndevices = 5\n"
                             "[wrong]\nquota = frogs=1\n[z]\nparent = none0\n";
  const auto listed = daemon_->list_classes();
  ASSERT_TRUE(listed) << listed.error().message();
  ASSERT_EQ(listed->size(), 4u);
  EXPECT_EQ(listed->at(0).name, "a");
  EXPECT_EQ(listed->at(0).devices, 5u);
  EXPECT_EQ(listed->at(0).free, UINT32_MAX);
  EXPECT_THAT(listed->at(0).quota, testing::ElementsAre(QuotaSetting{"qp", 10}));
  EXPECT_EQ(listed->at(1).name, "default");
  EXPECT_THAT(listed->at(2).error, HasSubstr("class 'wrong': quota: "));
  EXPECT_EQ(listed->at(3).error, classes_ + ": class 'z': there is no parent 'none0'");

  ASSERT_TRUE(daemon_->set_budget({BudgetSpec::Scope::kTenant, "red", {}, {{"qp", 35}}, 0}));
  EXPECT_EQ(class_a().free, 3u);
  VdevSpec spec = OwnNetns::spec("vrdma0");
  spec.tenant = "red";
  spec.quota = {{"qp", 10}};
  ASSERT_TRUE(give(spec));
  EXPECT_EQ(class_a().given, 1u);
  EXPECT_EQ(class_a().free, 2u);
  container_.end();
  EXPECT_TRUE(eventually([&] { return class_a().given == 0; }));
  EXPECT_EQ(class_a().free, 3u);

  std::ofstream(classes_) << "[a\n";
  EXPECT_THAT(daemon_->list_classes().error().message(), HasSubstr("does not begin a class"));
}

TEST_F(ClassesTest, MakeTheirFabricsReachWhatTheySay) {
  VdevSpec spec = OwnNetns::spec("vrdma0");
  spec.tenant = spec.fabric = "k8s/shop";
  const auto reach = [&] {
    for (const auto& fabric : daemon_->list_fabrics())
      if (fabric.spec.name == spec.fabric) return fabric.spec.reach;
    return Reach::kHost;
  };
  ASSERT_TRUE(give(spec, Reach::kHost)) << "it is so";
  EXPECT_EQ(reach(), Reach::kHost);
  ASSERT_TRUE(give(spec));
  EXPECT_EQ(reach(), Reach::kHost) << "a class without a reach leaves it";
  ASSERT_TRUE(give(spec, Reach::kNetwork));
  EXPECT_EQ(reach(), Reach::kNetwork) << "also for vdevices that were there";
  EXPECT_THAT(give(spec, Reach::kHost).error().message(),
              HasSubstr("fabric k8s/shop reaches the network, and class 'a' is for this host"));
  ASSERT_TRUE(give(spec));
  EXPECT_EQ(reach(), Reach::kNetwork);
  ASSERT_TRUE(give(spec, Reach::kWire));
  EXPECT_EQ(reach(), Reach::kWire);
  ASSERT_TRUE(give(spec, Reach::kNetwork)) << "the wire is of the network";
  EXPECT_EQ(reach(), Reach::kWire);
}

TEST_F(ClassesTest, GiveTheirFabricsThePeersThatTheyName) {
  VdevSpec spec = OwnNetns::spec("vrdma0");
  spec.tenant = spec.fabric = "k8s/shop";
  const auto prefixes = gid::parse_prefixes({"10.0.0.0/8"}).value();
  const auto settings = [&] { return daemon_->list_fabrics().at(0).spec; };
  ASSERT_TRUE(give(spec, Reach::kNetwork, prefixes));
  EXPECT_EQ(settings(), (FabricSpec{"k8s/shop", Reach::kNetwork, prefixes}));
  ASSERT_TRUE(give(spec, Reach::kNetwork));
  EXPECT_EQ(settings().peers, prefixes) << "a class without peers leaves them";
  ASSERT_TRUE(give(spec, Reach::kNetwork, std::vector<gid::Prefix>()));
  EXPECT_EQ(settings(), (FabricSpec{"k8s/shop", Reach::kNetwork, {}}));
}

}  // namespace
}  // namespace vrdma::vrdmad
