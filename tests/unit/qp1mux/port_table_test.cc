#include "qp1mux/port_table.h"

#include <set>

#include "tests/unit/qp1mux/rig.h"

namespace vrdma::qp1mux {
namespace {

struct Ports : testing::Test {
  PortTable table{40000, 40009};
  std::vector<PortTable::Binding> held;

  // 0, or the errno.
  int bind(const PortRequest& request) {
    auto result = table.bind(request);
    if (!result) return result.error().code();
    held.push_back(std::move(*result));
    return 0;
  }
  static PortRequest at(const char* address, uint16_t port) {
    PortRequest request;
    request.netns = 1;
    request.address = gid(address);
    request.port = port;
    return request;
  }
};

TEST_F(Ports, AreOfAnAddress) {
  EXPECT_EQ(bind(at("10.0.0.1", 7000)), 0);
  EXPECT_EQ(bind(at("10.0.0.1", 7000)), EADDRINUSE);
  EXPECT_EQ(bind(at("10.0.0.1", 7001)), 0);
  EXPECT_EQ(bind(at("10.0.0.2", 7000)), 0);
  EXPECT_EQ(held[0].port(), 7000);
  EXPECT_EQ(held[0].request().address, gid("10.0.0.1"));
  held.erase(held.begin());
  EXPECT_EQ(bind(at("10.0.0.1", 7000)), 0);
  held.clear();
  EXPECT_EQ(table.bound(), 0u);
}

TEST_F(Ports, AreOfANamespaceAndAPortSpace) {
  EXPECT_EQ(bind(at("10.0.0.1", 7000)), 0);
  PortRequest other = at("10.0.0.1", 7000);
  other.netns = 2;
  EXPECT_EQ(bind(other), 0);
  other.netns = 1;
  other.space = wire::PortSpace::kUdp;
  EXPECT_EQ(bind(other), 0);
}

TEST_F(Ports, AWildcardIsEverywhere) {
  EXPECT_EQ(bind(at("0.0.0.0", 7000)), 0);
  EXPECT_EQ(bind(at("10.0.0.1", 7000)), EADDRNOTAVAIL);
  EXPECT_EQ(bind(at("0.0.0.0", 7000)), EADDRNOTAVAIL);
  EXPECT_EQ(bind(at("10.0.0.1", 7001)), 0);
  EXPECT_EQ(bind(at("0.0.0.0", 7001)), EADDRNOTAVAIL);
  EXPECT_EQ(bind(at("::", 7001)), EADDRNOTAVAIL);
}

TEST_F(Ports, FamiliesAreApartIfBothSaySo) {
  PortRequest v4 = at("0.0.0.0", 7000), v6 = at("::", 7000);
  v6.family_only = true;
  EXPECT_EQ(bind(v6), 0);
  EXPECT_EQ(bind(v4), EADDRNOTAVAIL);
  v4.family_only = true;
  EXPECT_EQ(bind(v4), 0);
}

TEST_F(Ports, AreSharedUntilOneListens) {
  PortRequest request = at("10.0.0.1", 7000);
  request.reuse = true;
  EXPECT_EQ(bind(request), 0);
  EXPECT_EQ(bind(request), 0);
  EXPECT_EQ(held[0].listen().error().code(), EADDRINUSE);
  held.pop_back();
  EXPECT_TRUE(held[0].listen());
  EXPECT_EQ(bind(request), EADDRINUSE);
}

TEST_F(Ports, NeedTheWillOfBothToBeShared) {
  PortRequest request = at("10.0.0.1", 7000);
  EXPECT_EQ(bind(request), 0);
  request.reuse = true;
  EXPECT_EQ(bind(request), EADDRINUSE);
}

TEST_F(Ports, LowOnesNeedThePrivilege) {
  PortRequest request = at("10.0.0.1", 1023);
  EXPECT_EQ(bind(request), EACCES);
  request.privileged = true;
  EXPECT_EQ(bind(request), 0);
  EXPECT_EQ(bind(at("10.0.0.1", 1024)), 0);
}

TEST_F(Ports, FreeOnesAreFoundUntilNoneIsLeft) {
  std::set<uint16_t> found;
  for (int i = 0; i < 10; ++i) {
    ASSERT_EQ(bind(at("10.0.0.1", 0)), 0);
    EXPECT_GE(held.back().port(), 40000);
    EXPECT_LE(held.back().port(), 40009);
    found.insert(held.back().port());
  }
  EXPECT_EQ(found.size(), 10u);
  EXPECT_EQ(bind(at("10.0.0.1", 0)), EADDRNOTAVAIL);
  held.pop_back();
  EXPECT_EQ(bind(at("10.0.0.1", 0)), 0);
}

}  // namespace
}  // namespace vrdma::qp1mux
