// Queue pair 1 by hand: MADs between a worker and the control thread, here one thread for both.
#include "vrdmad/worker/raw_gsi.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <memory>
#include <optional>
#include <vector>

#include "core/ipc/socket.h"
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
    return rig.gsis.at(vdevice)->open([this, vdevice](const AddressedMad& all) {
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
  rig.settle(1);  // it is in the socket of `to`
  EXPECT_EQ(rig.devices[1]->endpoint().counters().raw_received, 1u);
  EXPECT_THAT(arrived, IsEmpty());
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
  for (uint64_t i = 0; i < RawGsiSocket::kInFlight + 10; ++i) from->send(mad(i));
  EXPECT_EQ(rig.relays[0]->lost(), 10u);
  rig.settle();
  EXPECT_EQ(arrived.size(), RawGsiSocket::kInFlight);
  from->send(mad(1000));
  rig.settle();
  EXPECT_EQ(arrived.back(), 1000u);
  EXPECT_EQ(rig.relays[0]->lost(), 10u);
  EXPECT_EQ(rig.relays[1]->lost(), 0u);
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

// A worker's RawGsi, and the test at control's end of the socket.
struct AWorkersGsi : testing::Test {
  using Kind = RawGsiMessage::Kind;
  std::unique_ptr<base::EventLoop> loop = std::move(*base::EventLoop::create());
  base::Counter lost;
  base::Fd control;
  std::optional<RawGsi> gsi;
  std::vector<uint64_t> arrived;  // transactions

  AWorkersGsi() {
    auto ends = ipc::make_socket_pair(SOCK_NONBLOCK).value();
    control = std::move(ends.first);
    gsi.emplace(*loop, std::move(ends.second), lost);
  }
  auto open() {
    return gsi->open(
        [this](const AddressedMad& all) { arrived.push_back(all.mad.header.transaction_id); });
  }
  static AddressedMad mad(uint64_t transaction) {
    AddressedMad all{};
    all.header.source = CmRig::gid(0);
    all.header.destination = CmRig::gid(1);
    all.header.traffic_class = 2;
    all.header.hop_limit = 3;
    all.header.flow_label = 4;
    all.mad.header.transaction_id = transaction;
    return all;
  }
  void answer(const RawGsiMessage& message, size_t length = sizeof(RawGsiMessage)) const {
    ASSERT_EQ(::send(control.get(), &message, length, MSG_NOSIGNAL), static_cast<ssize_t>(length));
  }
  void settle() const {
    loop->post([this] { loop->stop(); });
    loop->run();
  }
  // The next message that control gets.
  [[nodiscard]] std::optional<RawGsiMessage> told() const {
    RawGsiMessage message;
    if (::recv(control.get(), &message, sizeof message, MSG_DONTWAIT) != sizeof message)
      return std::nullopt;
    return message;
  }
  [[nodiscard]] bool tells(Kind kind, uint64_t opening) const {
    const auto message = told();
    return message && message->kind == kind && message->opening == opening;
  }
  [[nodiscard]] bool has_hung_up() const {
    char byte = 0;
    return ::recv(control.get(), &byte, sizeof byte, MSG_DONTWAIT) == 0;
  }
};

TEST_F(AWorkersGsi, TellsControlWhatItDoes) {
  for (const uint64_t opening : {1u, 2u}) {
    auto desk = open();
    desk->send(mad(7));
    desk.reset();
    EXPECT_TRUE(tells(Kind::kOpened, opening));
    const auto sent = told();
    ASSERT_TRUE(sent);
    EXPECT_EQ(sent->kind, Kind::kMad);
    EXPECT_EQ(sent->opening, opening);
    const AddressedMad all = sent->addressed_mad();
    EXPECT_EQ(all.header.source, CmRig::gid(0));
    EXPECT_EQ(all.header.destination, CmRig::gid(1));
    EXPECT_EQ(all.header.traffic_class, 2u);
    EXPECT_EQ(all.header.hop_limit, 3u);
    EXPECT_EQ(all.header.flow_label, 4u);
    EXPECT_EQ(all.mad.header.transaction_id, 7u);
    EXPECT_TRUE(tells(Kind::kClosed, opening));
    EXPECT_FALSE(told());
  }
}

TEST_F(AWorkersGsi, ReceivesForTheCurrentOpeningOnly) {
  answer(RawGsiMessage::of(1, mad(1)));
  settle();
  auto desk = open();
  for (const uint64_t opening : {0u, 1u, 2u}) answer(RawGsiMessage::of(opening, mad(opening + 10)));
  settle();
  EXPECT_THAT(arrived, ElementsAre(11));
  desk.reset();
  answer(RawGsiMessage::of(1, mad(2)));
  answer(RawGsiMessage::of(0, mad(3)));
  settle();
  EXPECT_THAT(arrived, ElementsAre(11));
}

// Control does not read. The current state is told as soon as there is room.
TEST_F(AWorkersGsi, TellsControlLaterWhatHasNoRoom) {
  auto desk = open();
  uint64_t sent = 0;
  while (lost == 0) desk->send(mad(++sent));
  desk.reset();
  desk = open();
  desk->send(mad(++sent));
  EXPECT_EQ(lost, 2u);
  desk.reset();
  desk = open();
  settle();
  EXPECT_TRUE(tells(Kind::kOpened, 1));
  for (uint64_t i = 0; i < sent - 2; ++i) EXPECT_TRUE(tells(Kind::kMad, 1));
  EXPECT_FALSE(told());
  settle();
  EXPECT_TRUE(tells(Kind::kOpened, 3));
  settle();
  EXPECT_FALSE(told()) << "once is enough";
  desk->send(mad(1));
  EXPECT_TRUE(tells(Kind::kMad, 3));
  EXPECT_EQ(lost, 2u);
}

TEST_F(AWorkersGsi, TellsControlLaterThatItWasClosed) {
  auto desk = open();
  while (lost == 0) desk->send(mad(1));
  desk.reset();
  while (const auto message = told()) EXPECT_NE(message->kind, Kind::kClosed);
  settle();
  EXPECT_TRUE(tells(Kind::kClosed, 1));
  EXPECT_FALSE(told());
}

TEST_F(AWorkersGsi, DoesNotHearNonsense) {
  const auto desk = open();
  RawGsiMessage message = RawGsiMessage::of(1, mad(1));
  message.kind = Kind::kOpened;
  answer(message);
  answer(RawGsiMessage::of(1, mad(2)));
  settle();
  EXPECT_THAT(arrived, IsEmpty());
  while (told()) {
  }
  EXPECT_EQ(::send(control.get(), &message, sizeof message, MSG_NOSIGNAL), -1) << "it is open";
}

TEST_F(AWorkersGsi, LosesWhatItSendsAfterControlHasGone) {
  auto desk = open();
  control.reset();
  settle();
  desk->send(mad(1));
  EXPECT_EQ(lost, 1u);
  EXPECT_EQ(open(), nullptr);
  desk.reset();
  settle();
  EXPECT_NE(open(), nullptr);
}

TEST_F(AWorkersGsi, HangsUpWithItsVdevice) {
  gsi.reset();
  EXPECT_TRUE(has_hung_up());
}

}  // namespace
}  // namespace vrdma::vrdmad
