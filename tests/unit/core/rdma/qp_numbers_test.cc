#include "core/rdma/qp_numbers.h"

#include <gtest/gtest.h>

#include <set>

#include "core/rdma/device.h"

namespace vrdma::rdma {
namespace {

// So many that two draws of 24 bits each would have some in common.
constexpr int kMany = 20'000;

struct OfANamespace : testing::Test {
  std::shared_ptr<QpNumberSpace> space = std::make_shared<QpNumberSpace>();
  Device red, blue;
  Qp one, other;
  OfANamespace() {
    red.qp_numbers = std::make_shared<QpNumbers>(space);
    blue.qp_numbers = std::make_shared<QpNumbers>(space);
  }
};

TEST_F(OfANamespace, AreDifferentForAllItsVdevices) {
  std::set<uint32_t> all;
  for (int i = 0; i < kMany; ++i)
    for (Device* device : {&red, &blue}) {
      const uint32_t qpn = device->take_qpn(&one);
      EXPECT_TRUE(all.insert(qpn).second);
      EXPECT_TRUE(device->qp_numbers->contains(qpn));
      EXPECT_FALSE((device == &red ? blue : red).qp_numbers->contains(qpn));
    }
}

// The space of a new daemon begins anywhere.
TEST_F(OfANamespace, AreKeptAtATakeover) {
  std::set<uint32_t> old;
  Device before;
  for (int i = 0; i < kMany; ++i) old.insert(before.take_qpn(&one));
  for (const uint32_t qpn : old) EXPECT_TRUE(red.take_qpn(&one, qpn));
  for (int i = 0; i < kMany; ++i) EXPECT_FALSE(old.contains(blue.take_qpn(&one)));
}

// Daemons before gave numbers of their own to each vdevice.
TEST_F(OfANamespace, AreKeptIfTwoVdevicesHadTheSame) {
  EXPECT_TRUE(red.take_qpn(&one, 77));
  EXPECT_TRUE(blue.take_qpn(&other, 77));
  EXPECT_FALSE(blue.take_qpn(&other, 77));
  red.free_qpn(77);
  EXPECT_FALSE(red.qp_numbers->contains(77));
  EXPECT_TRUE(blue.qp_numbers->contains(77));
}

TEST(QpNumbers, AreFreeAfterTheirVdevice) {
  const auto space = std::make_shared<QpNumberSpace>(2);
  const QpNumbers kept(space);
  auto gone = std::make_unique<QpNumbers>(space);
  (void)gone->take();
  EXPECT_TRUE(kept.has_room());
  (void)gone->take();
  EXPECT_FALSE(kept.has_room());
  gone.reset();
  EXPECT_TRUE(kept.has_room());
}

}  // namespace
}  // namespace vrdma::rdma
