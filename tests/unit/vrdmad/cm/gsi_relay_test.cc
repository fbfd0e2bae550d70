// Control's end of a program's queue pair 1, and a worker that sends what it likes.
#include "vrdmad/cm/gsi_relay.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>
#include <sys/socket.h>

#include <algorithm>
#include <optional>
#include <sstream>
#include <string>

#include "tests/unit/vrdmad/cm/rig.h"

namespace vrdma::vrdmad {
namespace {

using transport::AddressedMad;
using Kind = RawGsiMessage::Kind;

class GsiRelayTest : public testing::Test {
 protected:
  GsiRelayTest() {
    worker_ = relay().connect().value();
    spdlog::set_default_logger(std::make_shared<spdlog::logger>(
        "test", std::make_shared<spdlog::sinks::ostream_sink_mt>(log_)));
  }
  ~GsiRelayTest() override { spdlog::set_default_logger(before_); }

  GsiRelay& relay() { return *rig_.relays[0]; }
  const qp1mux::Counters& counters() { return rig_.devices[0]->endpoint().counters(); }
  static RawGsiMessage message(Kind kind, uint64_t opening) {
    RawGsiMessage message;
    message.kind = kind;
    message.opening = opening;
    return message;
  }
  // From vdevice `from` to the other.
  static AddressedMad mad(uint64_t from) {
    AddressedMad all{};
    all.header.source = CmRig::gid(from);
    all.header.destination = CmRig::gid(1 - from);
    all.mad.header.base_version = wire::kMadBaseVersion;
    all.mad.header.management_class = 4;
    return all;
  }
  void send(const void* data, size_t length) {
    EXPECT_EQ(::send(worker_.get(), data, length, MSG_NOSIGNAL), static_cast<ssize_t>(length));
    rig_.settle();
  }
  void send(const RawGsiMessage& message) { send(&message, sizeof message); }
  void open(uint64_t opening) { send(message(Kind::kOpened, opening)); }
  // The other vdevice sends so many MADs to this one.
  void receive(int count) {
    const auto desk = rig_.gsis[1]->open([](const AddressedMad&) {});
    ASSERT_NE(desk, nullptr);
    for (; count > 0; --count) {
      desk->send(mad(1));
      rig_.settle(4);
    }
  }
  [[nodiscard]] std::optional<RawGsiMessage> arrived() const {
    RawGsiMessage message;
    if (::recv(worker_.get(), &message, sizeof message, MSG_DONTWAIT) != sizeof message)
      return std::nullopt;
    return message;
  }
  // A hang-up, and not just nothing to read.
  [[nodiscard]] bool is_heard() const {
    pollfd state{worker_.get(), POLLIN, 0};
    return ::poll(&state, 1, 0) == 0 || (state.revents & POLLHUP) == 0;
  }
  [[nodiscard]] bool is_open() {
    const uint64_t before = counters().raw_received;
    receive(1);
    return counters().raw_received > before;
  }
  [[nodiscard]] size_t warnings() const {
    const std::string text = log_.str();
    size_t count = 0;
    for (size_t at = 0; (at = text.find("is not heard", at)) != std::string::npos; ++at) ++count;
    return count;
  }

  CmRig rig_;
  base::Fd worker_;
  std::ostringstream log_;
  std::shared_ptr<spdlog::logger> before_ = spdlog::default_logger();
};

TEST_F(GsiRelayTest, SendsWhatIsOfTheCurrentOpening) {
  send(RawGsiMessage::of(1, mad(0)));
  EXPECT_EQ(counters().raw_sent, 0u) << "before it was opened";
  open(1);
  send(RawGsiMessage::of(1, mad(0)));
  EXPECT_EQ(counters().raw_sent, 1u);
  open(2);
  send(RawGsiMessage::of(1, mad(0)));
  EXPECT_EQ(counters().raw_sent, 1u) << "of the opening before";
  send(RawGsiMessage::of(2, mad(0)));
  EXPECT_EQ(counters().raw_sent, 2u);
  send(message(Kind::kClosed, 1));
  send(RawGsiMessage::of(2, mad(0)));
  EXPECT_EQ(counters().raw_sent, 3u) << "another opening was closed";
  send(message(Kind::kClosed, 2));
  send(RawGsiMessage::of(2, mad(0)));
  EXPECT_EQ(counters().raw_sent, 3u);
  EXPECT_TRUE(is_heard());
}

TEST_F(GsiRelayTest, GivesTheWorkerWhatArrivesWhileItIsOpen) {
  EXPECT_FALSE(is_open());
  EXPECT_FALSE(arrived());
  open(7);
  receive(1);
  const auto given = arrived();
  ASSERT_TRUE(given);
  EXPECT_EQ(given->kind, Kind::kMad);
  EXPECT_EQ(given->opening, 7u);
  EXPECT_EQ(given->addressed_mad().header.source, CmRig::gid(1));
  EXPECT_EQ(given->addressed_mad().header.destination, CmRig::gid(0));
  EXPECT_FALSE(arrived());
  send(message(Kind::kClosed, 7));
  EXPECT_FALSE(is_open());
}

TEST_F(GsiRelayTest, LosesWhatTheWorkerDoesNotRead) {
  open(1);
  receive(RawGsiSocket::kInFlight);
  EXPECT_EQ(relay().lost(), 0u);
  receive(3);
  EXPECT_EQ(relay().lost(), 3u);
  uint32_t read = 0;
  while (arrived()) ++read;
  EXPECT_EQ(read, RawGsiSocket::kInFlight);
  receive(1);
  EXPECT_TRUE(arrived());
  EXPECT_EQ(relay().lost(), 3u);
}

TEST_F(GsiRelayTest, TreatsTheEndOfTheWorkerAsClosed) {
  open(1);
  EXPECT_TRUE(is_open());
  worker_.reset();
  rig_.settle();
  EXPECT_FALSE(is_open());
  EXPECT_EQ(warnings(), 0u);
}

TEST_F(GsiRelayTest, DoesNotHearAWorkerThatSendsNonsense) {
  const RawGsiMessage good = RawGsiMessage::of(1, mad(0));
  std::array<uint8_t, sizeof good + 1> longer{};
  std::memcpy(longer.data(), &good, sizeof good);
  size_t expected = 0;
  const auto expect_end = [&](const std::string& what) {
    EXPECT_FALSE(is_heard()) << what;
    EXPECT_EQ(warnings(), ++expected) << what;
    EXPECT_FALSE(is_open()) << what;
    worker_ = relay().connect().value();
  };
  open(1);
  send(&good, sizeof good - 1);
  expect_end("a short message");
  open(1);
  send(longer.data(), longer.size());
  expect_end("a long message");
  for (const uint32_t kind : {0u, 4u, ~0u}) {
    open(1);
    send(message(static_cast<Kind>(kind), 1));
    expect_end("kind " + std::to_string(kind));
  }
  open(1);
  send(message(Kind::kOpened, 0));
  expect_end("no opening");
  open(1);
  EXPECT_TRUE(ipc::send_message(worker_.get(), &good, sizeof good, {worker_.get()}));
  rig_.settle();
  expect_end("a descriptor");
  EXPECT_NE(log_.str().find("vdevice va:"), std::string::npos) << log_.str();
}

TEST_F(GsiRelayTest, ForgetsAWorkerThatIsReplaced) {
  open(5);
  const base::Fd old = std::move(worker_);
  worker_ = relay().connect().value();
  EXPECT_FALSE(is_open());
  const RawGsiMessage late = message(Kind::kOpened, 6);
  EXPECT_EQ(::send(old.get(), &late, sizeof late, MSG_NOSIGNAL), -1);
  open(1);
  receive(1);
  EXPECT_TRUE(arrived());
}

TEST_F(GsiRelayTest, OpensAnEndpointThatComesLater) {
  relay().attach(nullptr);
  open(1);
  EXPECT_FALSE(is_open());
  relay().attach(&rig_.devices[0]->endpoint());
  EXPECT_TRUE(is_open());
}

// A worker that sends without end has the control thread for a moment only.
TEST_F(GsiRelayTest, ReadsALittleInAPass) {
  open(1);
  const RawGsiMessage all = RawGsiMessage::of(1, mad(0));
  while (::send(worker_.get(), &all, sizeof all, MSG_DONTWAIT | MSG_NOSIGNAL) > 0) {
  }
  rig_.settle(1);
  EXPECT_EQ(counters().raw_sent, 64u);
  rig_.settle();
  EXPECT_EQ(counters().raw_sent, RawGsiSocket::kInFlight);
}

}  // namespace
}  // namespace vrdma::vrdmad
