// A parent that exists only here: what it decides reaches its vdevices and their programs.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <infiniband/verbs.h>

#include <atomic>
#include <cstdlib>
#include <fstream>

#include "tests/unit/vrdmad/control/own_netns.h"

namespace vrdma::vrdmad {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

const char* const kDefault = "fe80::200:ff:fe00:0";  // of the MAC of lo

struct FakeSender final : rdma::Sender {
  void kick() override {}
  void link_changed() override {}
  void receive_posted() override {}
  [[nodiscard]] bool drained() const override { return true; }
};

struct Seen {
  netns::Link link;
  uint64_t qp = 0;  // limit that the vdevice was to have
  size_t room = verbs::kMaxGids;
  std::atomic<int> opened = 0, closed = 0;
};

class FakeParent final : public Parent {
 public:
  explicit FakeParent(std::shared_ptr<Seen> seen) : seen_(std::move(seen)) {}
  [[nodiscard]] std::string name() const override { return "fake0"; }
  [[nodiscard]] std::string kind() const override { return "ibdev"; }
  [[nodiscard]] std::string detail() const override { return "of a test"; }
  [[nodiscard]] std::string state() const override { return "DOWN"; }
  [[nodiscard]] std::optional<uint32_t> numa_node() const override { return 1; }
  [[nodiscard]] base::Result<ParentShare> open(const netns::Link& link,
                                               const provisioning::Limits& limits) override {
    if (of(limits, provisioning::Kind::kSrq) == 13) return base::fail(ENOSPC, "no 13 SRQs");
    seen_->link = link;
    seen_->qp = of(limits, provisioning::Kind::kQp);
    ParentShare share;
    share.capabilities.vendor_id = 0x15b3;
    share.capabilities.hardware_version = 9;
    share.capabilities.atomics = static_cast<uint32_t>(verbs::AtomicScope::kNone);
    share.capabilities.flags &= ~verbs::kXrc;
    share.capabilities.max_sge = 5;
    share.capabilities.max_inline = 100;
    share.capabilities.max_message = 1u << 30;
    share.capabilities.ack_delay = 21;
    share.capabilities.width = static_cast<uint32_t>(verbs::LinkWidth::k4x);
    share.capabilities.speed = static_cast<uint32_t>(verbs::LinkSpeed::kEdr);
    of(share.limits, provisioning::Kind::kQp) = 8;
    share.gids.prefixes = {*gid::Prefix::parse("127.0.0.0/8")};
    share.gids.room = seen_->room;
    ++seen_->opened;
    share.open = std::shared_ptr<void>(nullptr, [seen = seen_](void*) { ++seen->closed; });
    return share;
  }

 private:
  std::shared_ptr<Seen> seen_;
};

class ParentTest : public OwnNetns {
 protected:
  std::vector<std::unique_ptr<Parent>> parents() override {
    auto all = find_parents();
    all.push_back(std::make_unique<FakeParent>(seen_));
    return all;
  }
  static VdevSpec spec(const std::string& parent) {
    VdevSpec spec = OwnNetns::spec("red0");
    spec.parent = parent;
    return spec;
  }
  static uint64_t limit(const VdevInfo& info, const std::string& kind) {
    for (const auto& row : info.quota)
      if (row.kind == kind) return row.limit;
    return 0;
  }
  static std::vector<std::string> gids(const VdevInfo& info) {
    std::vector<std::string> all;
    for (const auto& row : info.gids) all.push_back(row.gid);
    return all;
  }

  std::shared_ptr<Seen> seen_ = std::make_shared<Seen>();
};

TEST_F(ParentTest, SharesWhatItIs) {
  const auto made = daemon_->create_vdev(spec("fake0"), false);
  ASSERT_TRUE(made) << made.error().message();
  EXPECT_EQ(seen_->link.name, "lo");
  EXPECT_EQ(seen_->link.netns_cookie, netns::current()->cookie);
  EXPECT_EQ(seen_->qp, provisioning::traits(provisioning::Kind::kQp).initial);

  EXPECT_EQ(limit(*made, "qp"), 8u);
  EXPECT_EQ(limit(*made, "cq"), provisioning::traits(provisioning::Kind::kCq).initial);
  EXPECT_THAT(gids(*made), ElementsAre(kDefault, "::ffff:127.0.0.1")) << "::1 is not permitted";

  Program one = program();
  EXPECT_EQ(one.hello.device().vendor_id, 0x15b3u);
  EXPECT_EQ(one.hello.device().max_inline, 100u);
  EXPECT_EQ(one.hello.device().speed, static_cast<uint32_t>(verbs::LinkSpeed::kEdr));
  EXPECT_EQ(one.call(ipc::Call::kQueryDevice).device.max_qp, 8u);
}

TEST_F(ParentTest, IsWhatItsClassesAreOn) {
  std::ofstream(classes_) << "[a]\nparent = fake0\n";
  const auto listed = daemon_->list_classes();
  ASSERT_TRUE(listed) << listed.error().message();
  EXPECT_EQ(listed->at(0).parent_state, "DOWN");
  EXPECT_EQ(listed->at(0).numa_node, 1u);
  EXPECT_EQ(listed->at(1).parent_state, "ACTIVE") << "of default";
  EXPECT_FALSE(listed->at(1).numa_node);
}

// By the library that they load.
TEST_F(ParentTest, DecidesWhatProgramsSee) {
  ASSERT_TRUE(daemon_->create_vdev(spec("fake0"), false));
  ::setenv("VRDMA_RUN_DIR", run_dir_.path().c_str(), 1);
  void* const library = ::dlopen(VRDMA_LIBIBVERBS, RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(library, nullptr) << ::dlerror();
  const auto find = [&](const char* name, auto* type) {
    return reinterpret_cast<decltype(type)>(::dlsym(library, name));
  };
  const auto get_list =
      find("ibv_get_device_list", static_cast<decltype(ibv_get_device_list)*>(nullptr));
  const auto free_list =
      find("ibv_free_device_list", static_cast<decltype(ibv_free_device_list)*>(nullptr));
  const auto open = find("ibv_open_device", static_cast<decltype(ibv_open_device)*>(nullptr));
  const auto close = find("ibv_close_device", static_cast<decltype(ibv_close_device)*>(nullptr));
  const auto query_device =
      find("ibv_query_device", static_cast<decltype(ibv_query_device)*>(nullptr));
  using QueryPort = int (*)(ibv_context*, uint8_t, ibv_port_attr*);
  const auto query_port = find("ibv_query_port", QueryPort());

  ibv_device** const list = get_list(nullptr);
  ASSERT_NE(list, nullptr);
  ASSERT_NE(list[0], nullptr);
  ibv_context* const context = open(list[0]);
  ASSERT_NE(context, nullptr);
  ibv_device_attr device{};
  EXPECT_EQ(query_device(context, &device), 0);
  EXPECT_EQ(device.vendor_id, 0x15b3u);
  EXPECT_EQ(device.hw_ver, 9u);
  EXPECT_EQ(device.atomic_cap, IBV_ATOMIC_NONE);
  EXPECT_EQ(device.device_cap_flags & IBV_DEVICE_XRC, 0u);
  EXPECT_EQ(device.max_sge, 5);
  EXPECT_EQ(device.max_qp, 8);
  EXPECT_EQ(device.local_ca_ack_delay, 21);
  ibv_port_attr port{};
  EXPECT_EQ(query_port(context, 1, &port), 0);
  EXPECT_EQ(port.active_speed, static_cast<uint8_t>(verbs::LinkSpeed::kEdr));
  EXPECT_EQ(port.active_width, static_cast<uint8_t>(verbs::LinkWidth::k4x));
  EXPECT_EQ(port.max_msg_sz, 1u << 30);
  EXPECT_EQ(close(context), 0);
  free_list(list);
}

TEST_F(ParentTest, BoundsTheLimitsForGood) {
  ASSERT_TRUE(daemon_->create_vdev(spec("fake0"), false));
  const auto above = daemon_->set_quota("red0", {{"qp", 9}});
  ASSERT_FALSE(above);
  EXPECT_EQ(above.error().code(), EBUSY);
  EXPECT_THAT(above.error().message(), HasSubstr("grants at most 8"));
  const auto below = daemon_->set_quota("red0", {{"qp", 3}});
  ASSERT_TRUE(below) << below.error().message();
  EXPECT_EQ(limit(*below, "qp"), 3u);
  const auto most = daemon_->set_quota("red0", {{"qp", provisioning::kCeiling}});
  ASSERT_TRUE(most) << most.error().message();
  EXPECT_EQ(limit(*most, "qp"), 8u);
}

TEST_F(ParentTest, BoundsTheGidTable) {
  seen_->room = 1;
  const auto made = daemon_->create_vdev(spec("fake0"), false);
  ASSERT_TRUE(made) << made.error().message();
  EXPECT_THAT(gids(*made), ElementsAre(kDefault));
}

TEST_F(ParentTest, MayRefuse) {
  VdevSpec impossible = spec("fake0");
  impossible.quota = {{"srq", 13}};
  const auto refused = daemon_->create_vdev(impossible, false);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), ENOSPC);
  EXPECT_THAT(refused.error().message(), HasSubstr("parent 'fake0': no 13 SRQs"));
  EXPECT_EQ(seen_->opened, 0);
}

TEST_F(ParentTest, TakesItsShareBack) {
  ASSERT_TRUE(daemon_->create_vdev(spec("fake0"), false));
  const Program still_open = program();
  EXPECT_EQ(seen_->opened, 1);
  EXPECT_EQ(seen_->closed, 0);
  ASSERT_TRUE(daemon_->delete_vdev("red0"));
  EXPECT_EQ(seen_->closed, 1);
}

TEST_F(ParentTest, IsAskedForItsOwnVdevicesOnly) {
  const auto made = daemon_->create_vdev(spec("soft"), false);
  ASSERT_TRUE(made) << made.error().message();
  EXPECT_EQ(seen_->opened, 0);
  EXPECT_EQ(program().hello.device().vendor_id, verbs::kSoftCapabilities.vendor_id);
  EXPECT_THAT(gids(*made), ElementsAre(kDefault, "::ffff:127.0.0.1", "::1"));
}

}  // namespace
}  // namespace vrdma::vrdmad
