// The wire of vrdma-bad-wire: what it does to frames, without taps and with times that the test
// gives.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <set>

#include "cli/bad_wire/direction.h"
#include "cli/bad_wire/options.h"
#include "core/wire/ip.h"

namespace vrdma::cli::bad_wire {
namespace {

using testing::ElementsAre;
using namespace std::chrono_literals;

constexpr size_t kIp = 14;
constexpr TimePoint kStart{1s};

uint16_t folded(uint32_t total) {
  while (total > 0xffff) total = (total & 0xffff) + (total >> 16);
  return static_cast<uint16_t>(total);
}
uint32_t summed(const Frame& frame, size_t from, size_t to) {
  uint32_t total = 0;
  for (size_t i = from; i < to; ++i) total += frame[i] << ((i - from) % 2 == 0 ? 8 : 0);
  return total;
}
// 0xffff if it is right.
uint16_t udp_sum(const Frame& frame) {
  const Parts parts = parts_of(frame);
  const size_t addresses = parts.behind - kIp == 20 ? 8 : 32;
  return folded(summed(frame, parts.behind - addresses, parts.behind) + 17 +
                static_cast<uint32_t>(parts.end - parts.behind) +
                summed(frame, parts.behind, parts.end));
}

// With right checksums, and `number` in its payload.
Frame packet(int version, uint8_t number, uint8_t ecn = 2, uint16_t port = 4791) {
  constexpr size_t kPayload = 41;
  const size_t header = version == 4 ? 20 : 40, length = 8 + kPayload;
  Frame frame(kIp + header + length);
  frame[12] = version == 4 ? 0x08 : 0x86;
  frame[13] = version == 4 ? 0x00 : 0xdd;
  if (version == 4) {
    wire::Ipv4Header ip{};
    ip.version_and_words = wire::kIpv4NoOptions;
    ip.tos = ecn;
    ip.total_length = static_cast<uint16_t>(header + length);
    ip.fragment = 0x4000;
    ip.ttl = 64;
    ip.protocol = wire::kProtocolUdp;
    const uint8_t addresses[8] = {10, 0, 0, 1, 10, 0, 0, 2};
    std::memcpy(ip.source, addresses, sizeof addresses);
    ip.checksum = static_cast<uint16_t>(~wire::sum(ip));
    std::memcpy(&frame[kIp], &ip, sizeof ip);
  } else {
    wire::Ipv6Header ip{};
    ip.version_class_label = 6u << 28 | uint32_t{ecn} << 20;
    ip.payload_length = static_cast<uint16_t>(length);
    ip.next_header = wire::kProtocolUdp;
    ip.source[15] = 1;
    ip.destination[15] = 2;
    std::memcpy(&frame[kIp], &ip, sizeof ip);
  }
  wire::UdpHeader udp{};
  udp.source = 50000;
  udp.destination = port;
  udp.length = static_cast<uint16_t>(length);
  for (size_t i = 0; i < kPayload; ++i)
    frame[kIp + header + sizeof udp + i] = static_cast<uint8_t>(i * 7);
  frame.back() = number;
  std::memcpy(&frame[kIp + header], &udp, sizeof udp);
  udp.checksum = static_cast<uint16_t>(~udp_sum(frame));
  std::memcpy(&frame[kIp + header], &udp, sizeof udp);
  return frame;
}

// The numbers of those that leave at `now`.
std::vector<int> leaving(Direction& wire, TimePoint now) {
  std::vector<int> numbers;
  while (const auto frame = wire.give(now)) numbers.push_back(frame->back());
  return numbers;
}

int bits_that_differ(const Frame& a, const Frame& b, size_t from = 0) {
  int bits = 0;
  for (size_t i = from; i < a.size(); ++i) bits += __builtin_popcount(a[i] ^ b[i]);
  return bits;
}

TEST(BadWireFrame, FindsPacketsOfRoce) {
  for (const int version : {4, 6}) {
    EXPECT_TRUE(parts_of(packet(version, 0)).is_roce) << version;
    EXPECT_EQ(udp_sum(packet(version, 0)), 0xffff);
    const Parts other = parts_of(packet(version, 0, 2, 53));
    EXPECT_TRUE(other.is_udp && !other.is_roce);
    Frame fragment = packet(4, 0);
    fragment[kIp + 6] = 0x20;
    EXPECT_FALSE(parts_of(fragment).is_udp);
    for (Frame shorter = packet(version, 0); !shorter.empty(); shorter.pop_back())
      EXPECT_EQ(parts_of(shorter).is_roce, shorter.size() == packet(version, 0).size());
  }
  EXPECT_EQ(parts_of(Frame(60)).ip, 0u);
}

TEST(BadWireFrame, OneBitFlipsBehindTheIpHeader) {
  for (const int version : {4, 6}) {
    const Frame before = packet(version, 9);
    const Parts parts = parts_of(before);
    std::set<Frame> all;
    for (uint64_t random = 0; random < (parts.end - parts.behind) * 8; ++random) {
      Frame frame = before;
      ASSERT_TRUE(flip_bit(frame, parts, random, false));
      EXPECT_EQ(bits_that_differ(before, frame, parts.behind), 1);
      EXPECT_EQ(bits_that_differ(before, frame), 1);
      all.insert(frame);
    }
    EXPECT_EQ(all.size(), (parts.end - parts.behind) * 8) << "each bit can flip";
  }
}

TEST(BadWireFrame, ACorruptedPacketCanHaveTheRightChecksum) {
  for (const int version : {4, 6}) {
    const Frame before = packet(version, 9);
    const Parts parts = parts_of(before);
    for (uint64_t random = 0; random < 1000; ++random) {
      Frame frame = before;
      ASSERT_TRUE(flip_bit(frame, parts, random, true));
      EXPECT_EQ(bits_that_differ(before, frame, parts.behind + 8), 1);
      EXPECT_EQ(frame[parts.behind + 8 + 4], before[parts.behind + 8 + 4])
          << "the ICRC sees it not";
      EXPECT_EQ(udp_sum(frame), 0xffff);
    }
  }
}

TEST(BadWireFrame, AMarkChangesTheIpHeaderAlone) {
  for (const int version : {4, 6})
    for (uint8_t ecn = 0; ecn < 4; ++ecn) {
      Frame frame = packet(version, 9, ecn);
      const Frame before = frame;
      const bool permits = ecn == 1 || ecn == 2;
      ASSERT_EQ(mark(frame, parts_of(frame)), permits);
      if (!permits) {
        EXPECT_EQ(frame, before);
        continue;
      }
      EXPECT_EQ(frame[kIp + 1] >> (version == 4 ? 0 : 4) & 3, 3);
      EXPECT_EQ(bits_that_differ(before, frame, parts_of(frame).behind), 0);
      EXPECT_EQ(udp_sum(frame), 0xffff);
      if (version == 6) continue;
      wire::Ipv4Header ip{};
      std::memcpy(&ip, &frame[kIp], sizeof ip);
      EXPECT_EQ(wire::sum(ip), 0xffff);
    }
}

TEST(BadWireDirection, WithoutFaultsFramesPassInOrder) {
  Direction wire({}, 1);
  for (uint8_t i = 0; i < 3; ++i) wire.take(packet(4, i), kStart);
  EXPECT_EQ(wire.next(), kStart);
  EXPECT_THAT(leaving(wire, kStart), ElementsAre(0, 1, 2));
  EXPECT_FALSE(wire.next());
}

TEST(BadWireDirection, OtherFramesPassAtOnceUnlessFaultsAreForAll) {
  Faults faults;
  faults.loss = 1;
  faults.delay = 1s;
  Direction wire(faults, 1);
  wire.take(packet(4, 1, 2, 53), kStart);
  wire.take(packet(4, 2), kStart);
  EXPECT_THAT(leaving(wire, kStart), ElementsAre(1));
  EXPECT_EQ(wire.counts().others, 1u);
  EXPECT_EQ(wire.counts().lost, 1u);
  faults.all = true;
  Direction all(faults, 1);
  all.take(packet(4, 1, 2, 53), kStart);
  all.take(Frame(60), kStart);
  EXPECT_EQ(all.counts().lost, 2u);
}

TEST(BadWireDirection, AHeldPacketIsPassedByThreeOthers) {
  Faults faults;
  faults.reorder = 1;
  Direction held(faults, 1);
  for (uint8_t i = 0; i < 2; ++i) held.take(packet(4, i), kStart);
  EXPECT_THAT(leaving(held, kStart), ElementsAre());
  EXPECT_EQ(held.next(), kStart + Direction::kMostHeld);
  EXPECT_THAT(leaving(held, *held.next()), ElementsAre(0, 1));
  EXPECT_EQ(held.counts().reordered, 0u) << "none has passed them";
  // With a seed that holds few.
  faults.reorder = 0.02;
  Direction wire(faults, 7);
  std::vector<int> order;
  for (uint8_t i = 0; i < 200; ++i) {
    wire.take(packet(4, i), kStart);
    for (const int each : leaving(wire, kStart)) order.push_back(each);
  }
  for (const int each : leaving(wire, kStart + 1s)) order.push_back(each);
  ASSERT_EQ(order.size(), 200u);
  uint64_t displaced = 0;
  for (size_t i = 0; i < order.size(); ++i)
    if (order[i] < static_cast<int>(i)) {
      ++displaced;
      EXPECT_EQ(order[i] + 3, static_cast<int>(i));
    }
  EXPECT_GT(displaced, 0u);
  EXPECT_EQ(displaced, wire.counts().reordered);
}

TEST(BadWireDirection, DelayAndJitterKeepTheOrder) {
  Faults faults;
  faults.delay = 2ms;
  faults.jitter = 5ms;
  Direction wire(faults, 3);
  for (uint8_t i = 0; i < 100; ++i) wire.take(packet(4, i), kStart + i * 10us);
  EXPECT_THAT(leaving(wire, kStart + 2ms - 1ns), ElementsAre());
  std::vector<int> order;
  for (TimePoint now = kStart; now < kStart + 9ms; now += 10us)
    for (const int each : leaving(wire, now)) order.push_back(each);
  ASSERT_EQ(order.size(), 100u);
  EXPECT_TRUE(std::is_sorted(order.begin(), order.end()));
}

TEST(BadWireDirection, ARateMakesPacketsWaitAndTheQueueHasAnEnd) {
  Faults faults;
  const Frame frame = packet(4, 0);
  faults.rate = frame.size() * 8 * 1000;  // one each millisecond
  faults.queue = 10ms;
  faults.mark = 1;
  Direction wire(faults, 3);
  for (uint8_t i = 0; i < 20; ++i) wire.take(packet(4, i), kStart);
  EXPECT_EQ(wire.counts().overflowed, 9u);
  EXPECT_EQ(wire.counts().marked, 10u) << "the first one does not wait";
  EXPECT_THAT(leaving(wire, kStart + 3ms), ElementsAre(0, 1, 2));
  wire.take(packet(4, 99), kStart + 20ms);
  EXPECT_EQ(wire.counts().marked, 10u) << "the queue is empty";
}

TEST(BadWireDirection, CountsEachFrameOnce) {
  Faults faults;
  faults.loss = 0.1;
  faults.reorder = faults.duplicate = faults.corrupt = faults.mark = 0.2;
  Direction wire(faults, 42), again(faults, 42);
  const Frame frame = packet(6, 0);
  std::vector<Frame> got, got_again;
  for (int i = 0; i < 5000; ++i)
    for (auto& [one, all] : {std::pair(&wire, &got), std::pair(&again, &got_again)}) {
      one->take(frame, kStart);
      while (auto out = one->give(kStart)) all->push_back(std::move(*out));
    }
  EXPECT_EQ(got, got_again) << "a seed repeats what happens";
  const Counts& counts = wire.counts();
  EXPECT_EQ(counts.received + counts.duplicated, counts.lost + counts.forwarded + wire.inside());
  EXPECT_EQ(got.size(), counts.forwarded);
  uint64_t corrupted = 0, marked = 0;
  for (const Frame& each : got) {
    corrupted += udp_sum(each) != 0xffff ? 1 : 0;
    marked += (each[kIp + 1] >> 4 & 3) == 3 ? 1 : 0;
  }
  while (const auto rest = wire.give(kStart + 1s)) {
    corrupted += udp_sum(*rest) != 0xffff ? 1 : 0;
    marked += ((*rest)[kIp + 1] >> 4 & 3) == 3 ? 1 : 0;
  }
  EXPECT_EQ(corrupted, counts.corrupted);
  EXPECT_EQ(marked, counts.marked);
  for (const uint64_t count :
       {counts.lost * 2, counts.duplicated, counts.corrupted, counts.reordered})
    EXPECT_TRUE(count > 700 && count < 1300) << count;
}

TEST(BadWireOptions, WordsMeanTheSame) {
  Faults faults;
  CLI::App app;
  add_options(app, faults);
  app.parse(
      "--loss 1 --reorder 5% --delay 2.5 --jitter 1000us --rate 20Mbit --queue 0.05s --mark 10 "
      "--corrupt 1 --right-checksum --behind 7");
  EXPECT_DOUBLE_EQ(faults.loss, 0.01);
  EXPECT_EQ(faults.delay, Duration(2'500'000));
  EXPECT_TRUE(faults.any());
  EXPECT_FALSE(Faults{}.any());
  Faults repeated;
  CLI::App other;
  add_options(other, repeated);
  auto words = words_of(faults);
  std::reverse(words.begin(), words.end());  // as CLI11 wants them
  other.parse(words);
  EXPECT_EQ(words_of(repeated), words_of(faults));
  EXPECT_EQ(repeated.rate, 20'000'000u);
  EXPECT_EQ(repeated.queue, Duration(50ms));
  EXPECT_EQ(repeated.behind, 7u);
  EXPECT_TRUE(repeated.right_checksum && !repeated.all);
}

TEST(BadWireOptions, RefuseWhatIsNotMeant) {
  const auto sentence = [](std::vector<std::string> words) {
    Faults faults;
    CLI::App app;
    add_options(app, faults);
    std::reverse(words.begin(), words.end());
    try {
      app.parse(words);
    } catch (const CLI::ParseError& wrong) {
      return std::string(wrong.what());
    }
    return without_effect(app);
  };
  EXPECT_EQ(sentence({"--loss", "101"}),
            "--loss: '101' is not 0 to 100 percent, such as 1 or 0.5%");
  for (const char* wrong : {"nan", "-1", "", "1%%", "%", "1e400", "1 ", "inf"})
    EXPECT_NE(sentence({"--loss", wrong}), "") << wrong;
  for (const char* wrong : {"2m", "61s", "nan"})
    EXPECT_NE(sentence({"--delay", wrong}), "") << wrong;
  for (const char* wrong : {"10", "10gb", "1e30"})
    EXPECT_NE(sentence({"--rate", wrong}), "") << wrong;
  EXPECT_EQ(sentence({"--queue", "5"}), "--queue requires --rate");
  EXPECT_EQ(sentence({"--behind", "5"}), "--behind requires --reorder");
  EXPECT_EQ(sentence({"--right-checksum"}), "--right-checksum requires --corrupt");
  EXPECT_EQ(sentence({"--all"}), "--all has no effect without what it is for, such as --loss 1");
  EXPECT_EQ(sentence({"--all", "--loss", "1"}), "");
}

}  // namespace
}  // namespace vrdma::cli::bad_wire
