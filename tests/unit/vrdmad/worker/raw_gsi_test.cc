// Queue pair 1 by hand: MADs between a worker and the control thread, here one thread for both.
#include "vrdmad/worker/raw_gsi.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/vrdmad/cm/rig.h"

namespace vrdma::vrdmad {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using transport::AddressedMad;

struct RawGsis : testing::Test {
  CmRig rig;
  std::vector<uint64_t> arrived;  // transactions, at the second vdevice

  AddressedMad mad(uint64_t transaction) {
    AddressedMad all{};
    all.header.source = CmRig::gid(0);
    all.header.destination = CmRig::gid(1);
    all.mad.header.base_version = wire::kMadBaseVersion;
    all.mad.header.management_class = 4;
    all.mad.header.transaction_id = transaction;
    return all;
  }
  std::unique_ptr<transport::MadDesk> open(size_t vdevice) {
    return rig.gsis.at(vdevice)->open(*rig.loop, [this, vdevice](const AddressedMad& all) {
      EXPECT_EQ(all.header.source, CmRig::gid(0));
      EXPECT_EQ(all.header.destination, CmRig::gid(1));
      if (vdevice == 1) arrived.push_back(all.mad.header.transaction_id);
    });
  }
};

TEST_F(RawGsis, AreOneAtATime) {
  auto desk = open(0);
  ASSERT_NE(desk, nullptr);
  EXPECT_EQ(open(0), nullptr);
  desk.reset();
  EXPECT_NE(open(0), nullptr);
}

TEST_F(RawGsis, CarryMads) {
  const auto from = open(0), to = open(1);
  from->send(mad(7));
  from->send(mad(8));
  rig.settle();
  EXPECT_THAT(arrived, ElementsAre(7, 8));
  EXPECT_EQ(rig.devices[1]->endpoint().counters().raw_received, 2u);
}

TEST_F(RawGsis, SendNothingInTheNameOfAnother) {
  const auto from = open(0), to = open(1);
  AddressedMad forged = mad(1);
  forged.header.source = CmRig::gid(1);
  from->send(forged);
  rig.settle();
  EXPECT_THAT(arrived, IsEmpty());
  EXPECT_EQ(rig.devices[0]->endpoint().counters().refused, 1u);
}

TEST_F(RawGsis, GiveNothingToALaterOne) {
  const auto from = open(0);
  auto to = open(1);
  rig.settle();
  from->send(mad(1));
  rig.settle(1);  // on its way
  to.reset();
  to = open(1);
  rig.settle();
  EXPECT_THAT(arrived, IsEmpty());
  from->send(mad(2));
  rig.settle();
  EXPECT_THAT(arrived, ElementsAre(2));
}

TEST_F(RawGsis, LoseWhatIsTooMuch) {
  const auto from = open(0), to = open(1);
  rig.settle();
  for (uint64_t i = 0; i < RawGsi::kInFlight + 10; ++i) from->send(mad(i));
  EXPECT_EQ(rig.gsis[0]->lost(), 10u);
  rig.settle();
  EXPECT_EQ(arrived.size(), RawGsi::kInFlight);
  from->send(mad(1000));
  rig.settle();
  EXPECT_EQ(arrived.back(), 1000u);
}

TEST_F(RawGsis, OutliveTheirVdevice) {
  const auto from = open(0);
  auto to = open(1);
  from->send(mad(1));
  rig.devices[0].reset();
  from->send(mad(2));
  rig.devices[1].reset();
  rig.settle();
  EXPECT_THAT(arrived, IsEmpty());
  to.reset();
  rig.settle();
}

}  // namespace
}  // namespace vrdma::vrdmad
