// The portable image of a session: what is accepted, and what is refused.
#include "vrdmad/records/session_image.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>

namespace vrdma::vrdmad {
namespace {

constexpr uint32_t kTarget = 3 | ipc::kTargetHandle;

// One object of each kind.
SessionImage whole() {
  SessionImage image;
  const auto served = [&image](Stored kind, uint32_t handle) -> SessionImage::Served& {
    SessionImage::Served& made = image.served[kind][handle].made;
    made.reply.handle.handle = handle;
    return made;
  };
  for (const auto kind : {Stored::kPd, Stored::kCq, Stored::kAh, Stored::kFlow}) served(kind, 1);
  SessionImage::Served& resized = served(Stored::kCqSize, 1);
  resized.request.resize_cq.handle = 1;
  served(Stored::kMr, 1).reply.reg_mr.key = ipc::key_of(7, 1);
  served(Stored::kMw, 1).reply.alloc_mw.key = ipc::key_of(8, 1);
  served(Stored::kSrq, 1).request.create_srq.xrcd = 1;
  image.served[Stored::kSrq][1].made.reply.create_srq.srqn = 4711;
  SessionImage::Served& qp = served(Stored::kQp, 2);
  qp.request.create_qp.type = static_cast<uint32_t>(verbs::QpType::kRc);
  qp.reply.create_qp.qpn = 17;
  image.served[Stored::kQp][2].answered = false;
  image.exporter[0].made.context = 4;
  image.imported_pds[2].made.origin = {4, 1, 0};
  image.imported_mrs[2].made = {ipc::key_of(9, 1), 2, {4, 1, ipc::key_of(9, 1)}};
  image.xrcds[1].made.named = 1;
  (void)image.channels[1];
  image.targets[kTarget].made = {1, 18};
  image.srq_sizes[1].made.max_wr = 32;
  SessionImage::QpState& state = image.qp_states[2].made;
  state.record.attributes.state = static_cast<uint32_t>(verbs::QpState::kRts);
  state.record.attributes.sq_psn = 0x123456;
  state.record.outbox = 1u << 28;
  state.record.outbox_depth = 16;
  state.record.linked_out = 1;
  verbs::Gid group{};
  group.bytes[0] = 0xff;
  state.groups = {group};
  state.record.groups = 1;
  image.qp_states[kTarget].made = {};
  image.bindings[1].made = {ipc::key_of(8, 2), 1, 2, verbs::kRemoteWrite, 4096, 64, 4096};
  image.claims[1u << 15 | 5].made = {0, 3, 0};
  image.notes[note_number(2, 7)].made = {1, 2, 3};
  image.begun = 9;
  image.reply.sequence = 8;
  return image;
}

bool is_accepted(const SessionImage& image) {
  return SessionImage::decode(image.encode()).has_value();
}

TEST(SessionImage, IsWhatItWasAfterwards) {
  const SessionImage image = whole();
  const auto bytes = image.encode();
  const auto decoded = SessionImage::decode(bytes);
  ASSERT_TRUE(decoded) << decoded.error().message();
  EXPECT_EQ(decoded->encode(), bytes);
  EXPECT_EQ(decoded->begun, 9u);
  EXPECT_EQ(decoded->reply.sequence, 8u);
  const auto& qp = decoded->served.at(Stored::kQp).at(2);
  EXPECT_FALSE(qp.answered);
  EXPECT_EQ(qp.made.request.call, ipc::Call::kCreateQp);
  EXPECT_EQ(qp.made.reply.create_qp.qpn, 17u);
  const auto& state = decoded->qp_states.at(2).made;
  EXPECT_EQ(state.record.attributes.sq_psn, 0x123456u);
  ASSERT_EQ(state.groups.size(), 1u);
  EXPECT_TRUE(state.groups[0].is_multicast());
  EXPECT_EQ(decoded->targets.at(kTarget).made.qpn, 18u);
  EXPECT_EQ(decoded->notes.at(note_number(2, 7)).made, (std::vector<uint8_t>{1, 2, 3}));
  // The corpus of the fuzz target is made by this: VRDMA_IMAGE=tests/fuzz/corpus_session_images/all
  if (const char* path = std::getenv("VRDMA_IMAGE"))
    std::ofstream(path, std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()),
               static_cast<std::streamsize>(bytes.size()));
}

TEST(SessionImage, IsRefusedIfItIsCutOffOrOfAnotherVersion) {
  const auto bytes = whole().encode();
  const auto before_last = bytes.size() - 8;
  for (const size_t size : {size_t{0}, size_t{8}, size_t{300}, before_last, bytes.size() - 1})
    EXPECT_FALSE(SessionImage::decode({bytes.data(), size})) << size;
  auto other = bytes;
  ++other[8];
  EXPECT_EQ(SessionImage::decode(other).error().code(), EPROTO);
  other = bytes;
  ++other[0];
  EXPECT_EQ(SessionImage::decode(other).error().code(), EINVAL);
}

TEST(SessionImage, IsRefusedIfANumberIsOutOfRange) {
  ASSERT_TRUE(is_accepted(whole()));
  const auto refused = [](auto change) {
    SessionImage image = whole();
    change(image);
    return !is_accepted(image);
  };
  const auto with_qpn = [&](uint32_t qpn, verbs::QpType type) {
    return refused([&](SessionImage& image) {
      auto& qp = image.served[Stored::kQp][2].made;
      qp.request.create_qp.type = static_cast<uint32_t>(type);
      qp.reply.create_qp.qpn = qpn;
    });
  };
  EXPECT_TRUE(with_qpn(1, verbs::QpType::kRc)) << "queue pair 1";
  EXPECT_FALSE(with_qpn(1, verbs::QpType::kGsi));
  EXPECT_TRUE(with_qpn(1u << 24, verbs::QpType::kRc));
  EXPECT_TRUE(with_qpn(17, verbs::QpType::kXrcTarget)) << "it has no request";
  const auto with_state = [&](auto change) {
    return refused([&](SessionImage& image) { change(image.qp_states[2].made); });
  };
  using State = SessionImage::QpState;
  EXPECT_TRUE(with_state([](State& state) { state.record.attributes.state = 7; }));
  EXPECT_TRUE(with_state([](State& state) { state.record.attributes.rq_psn = 1u << 24; }));
  EXPECT_TRUE(with_state([](State& state) { state.record.outbox_depth = 3; }));
  EXPECT_TRUE(with_state([](State& state) { state.record.outbox_depth = 1u << 16; }));
  EXPECT_TRUE(with_state([](State& state) { state.record.linked_in = 2; }));
  EXPECT_TRUE(with_state([](State& state) { state.record.remote = 2; }));
  EXPECT_TRUE(with_state([](State& state) { state.record.groups = 2; })) << "there is one";
  EXPECT_TRUE(with_state([](State& state) { state.groups[0].bytes[0] = 0xfe; }));
  EXPECT_TRUE(refused([](SessionImage& image) {
    image.served[Stored::kMr][1].made.reply.reg_mr.key = ipc::key_of(0, 1);
  }));
  EXPECT_TRUE(refused(
      [](SessionImage& image) { image.served[Stored::kSrq][1].made.reply.create_srq.srqn = 0; }));
  EXPECT_TRUE(refused([](SessionImage& image) { image.srq_sizes[1].made.max_wr = 1u << 16; }));
  EXPECT_TRUE(refused([](SessionImage& image) { image.exporter[0].made.context = 0; }));
  EXPECT_TRUE(refused([](SessionImage& image) { image.exporter[1].made.context = 4; }));
}

TEST(SessionImage, IsRefusedIfHandlesAreNotDistinctOrTooLarge) {
  const auto refused = [](auto change) {
    SessionImage image = whole();
    change(image);
    return !is_accepted(image);
  };
  const auto pd = [](SessionImage& image, uint32_t handle) {
    image.served[Stored::kPd][handle].made.reply.handle.handle = handle;
  };
  EXPECT_FALSE(refused([&](SessionImage& image) { pd(image, 3); }));
  EXPECT_TRUE(refused([&](SessionImage& image) { pd(image, 2); })) << "it is imported";
  EXPECT_TRUE(refused([&](SessionImage& image) { pd(image, 0); }));
  EXPECT_TRUE(refused([&](SessionImage& image) { pd(image, 1u << 24); }));
  const auto queue = [&](Stored kind, uint32_t handle) {
    return refused([&](SessionImage& image) {
      auto& made = image.served[kind][handle].made = image.served[kind].begin()->second.made;
      made.reply.handle.handle = handle;
    });
  };
  EXPECT_FALSE(queue(Stored::kCq, ipc::kMaxCqSlots));
  EXPECT_TRUE(queue(Stored::kCq, ipc::kMaxCqSlots + 1)) << "it would have no bell";
  EXPECT_FALSE(queue(Stored::kQp, ipc::kMaxQpSlots));
  EXPECT_TRUE(queue(Stored::kQp, ipc::kMaxQpSlots + 1));
  EXPECT_TRUE(refused([](SessionImage& image) {
    image.served[Stored::kPd][1].made.reply.handle.handle = 3;
  })) << "of another object";
  EXPECT_TRUE(refused([](SessionImage& image) { (void)image.channels[0]; }));
  EXPECT_TRUE(refused([](SessionImage& image) { (void)image.notes[7]; })) << "of no queue pair";
  EXPECT_TRUE(refused([](SessionImage& image) { image.notes[512].made.resize(257); }));
  EXPECT_TRUE(refused([](SessionImage& image) { image.targets[3].made = {1, 18}; }));
  ImageBytes twice(0, {});
  for (int i = 0; i < 2; ++i) twice.add(Stored::kChannel, 1, true, {});
  EXPECT_FALSE(SessionImage::decode(twice.take()));
  ImageBytes unknown(0, {});
  unknown.add(static_cast<Stored>(static_cast<uint16_t>(kLastStored) + 1), 1, true, {});
  EXPECT_FALSE(SessionImage::decode(unknown.take()));
}

}  // namespace
}  // namespace vrdma::vrdmad
