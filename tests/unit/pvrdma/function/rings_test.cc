#include "pvrdma/encoding/rings.h"

#include <gtest/gtest.h>

#include <deque>
#include <random>

namespace vrdma::pvrdma {
namespace {

struct Memory {
  Indices indices{};
  uint32_t entries[8]{};
};

// Both rings against a queue, over several turns of the indices.
TEST(Rings, AreQueues) {
  Memory in, out;
  Incoming incoming(&in.indices, reinterpret_cast<uint8_t*>(in.entries), 8, 4);
  Outgoing<uint32_t> outgoing(&out.indices, reinterpret_cast<uint8_t*>(out.entries), 8);
  std::deque<uint32_t> to_device, to_guest;
  std::mt19937 random(7);
  for (uint32_t i = 0; i < 20'000; ++i) {
    switch (random() % 4) {
      case 0:  // the guest produces
        if (to_device.size() < 8) {
          in.entries[in.indices.producer & 7] = i;
          in.indices.producer = (in.indices.producer + 1) & 15;
          to_device.push_back(i);
        }
        break;
      case 1: {
        const RingState state = incoming.look();
        ASSERT_EQ(to_device.empty() ? RingState::kNotReady : RingState::kReady, state);
        if (to_device.empty()) break;
        uint32_t got = 0;
        incoming.copy(&got, 0, 4);
        ASSERT_EQ(to_device.front(), got);
        incoming.advance();
        to_device.pop_front();
        break;
      }
      case 2:
        ASSERT_EQ(to_guest.size() < 8 ? RingState::kReady : RingState::kNotReady, outgoing.push(i));
        if (to_guest.size() < 8) to_guest.push_back(i);
        ASSERT_EQ(to_guest.size(), outgoing.standing());
        break;
      case 3:  // the guest consumes
        if (to_guest.empty()) break;
        ASSERT_EQ(to_guest.front(), out.entries[out.indices.consumer & 7]);
        out.indices.consumer = (out.indices.consumer + 1) & 15;
        to_guest.pop_front();
        break;
    }
  }
}

// What a guest can write as an index, wherever the device's own is.
TEST(Rings, ABrokenIndexIsSeen) {
  for (uint32_t own = 0; own < 16; ++own) {
    Memory in, out;
    Incoming incoming(&in.indices, reinterpret_cast<uint8_t*>(in.entries), 8, 4);
    Outgoing<uint32_t> outgoing(&out.indices, reinterpret_cast<uint8_t*>(out.entries), 8);
    for (uint32_t i = 0; i < own; ++i) {
      in.indices.producer = (i + 1) & 15;
      incoming.advance();
      out.indices.consumer = i;
      ASSERT_EQ(RingState::kReady, outgoing.push(i));
    }
    for (uint32_t theirs = 0; theirs < 70'000; ++theirs) {
      const uint32_t value = theirs < 40 ? theirs : 0u - theirs;
      in.indices.producer = value;
      const bool valid = value < 16;
      const bool in_reach = valid && ((value - own) & 15) <= 8;
      ASSERT_EQ(in_reach, incoming.look() != RingState::kBroken) << own << " " << value;
      out.indices.consumer = value;
      ASSERT_EQ(valid && ((own - value) & 15) <= 8, outgoing.standing().has_value());
    }
  }
}

}  // namespace
}  // namespace vrdma::pvrdma
