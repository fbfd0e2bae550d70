#include "vrdmad/worker/messages_codec.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace vrdma::vrdmad {
namespace {

using provisioning::Kind;
using Bytes = std::vector<uint8_t>;

verbs::Gid gid(uint8_t first, uint8_t last) {
  verbs::Gid made;
  made.bytes.front() = first;
  made.bytes.back() = last;
  return made;
}

// At least one of each alternative.
std::vector<ToWorker> to_worker() {
  const Ways ways{true, false, {{gid(0xfd, 0), 8}, {gid(0xfd, 2), 128}}};
  AddVdevice add{
      7,     "mlx5_0", "/run/netns/a/mlx5_0", "red", "tenant/red", 1ull << 63, 42, 5, true,
      false, ways};
  rdma::Peer peer;
  peer.pid = 4711;
  peer.start_time = 1ull << 40;
  peer.gids = {1, 2, 3, 4};
  peer.network_namespace = {5, 6};
  const Known program{9, peer};
  const KitValues kit{3, {1, 2}, {3, 4}, "/kubepods/pod7", 0x3f, {{{5, 6}, 4096}}};
  add.capabilities.max_message = 1ull << 40;
  add.capabilities.max_mtu = 3;
  add.limits = {{Kind::kQp, 8}, {Kind::kCpu, UINT64_MAX}};
  add.tenant_budget = {3, "tenant red"};
  add.parent_budget = {UINT64_MAX, "parent soft"};
  return {Begin{5, 30'000, 7, true},
          add,
          RemoveVdevice{7, 11},
          NewConnection{7, 1, program},
          SetPort{7, {true, 9000, 3, std::array<uint8_t, 6>{2, 0, 0, 0, 0, 255}}},
          SetPort{7, {false, 0, 0, std::nullopt}},
          SetGids{7, {gid(0xfe, 1), gid(0xfd, 2)}},
          SetGids{7, {}},
          Collect{7, 12},
          CheckLimits{7, 13, {{Kind::kQp, 8}, {Kind::kCpu, UINT64_MAX}}},
          SetLimits{7, 14, {{Kind::kMr, 0}}, true},
          AskCgroups{7, 15, "/kubepods/pod7"},
          AskQueuePairs{7, 16, 17},
          AskExports{7, 20, 21},
          Kit{1, 2, 3000, 0, kit},
          Kit{1, 2, 0, EPERM, {}},
          AdoptSession{7, 1, program, kit, 9},
          AdoptChannels{1, {1, 2, UINT32_MAX}},
          TakeOver{},
          ParkSession{7, 1, 18, ParkSession::Step::kEnd},
          AttachSession{{7, 1, program, kit}, 19, {5, 6}, 7, 8, 9},
          Await{7, 3000, true},
          SetWays{7, ways},
          RoceSocket{7, gid(0xfd, 2), 0, 8, 0xfd},
          RoceSocket{7, gid(0xfd, 2), EADDRINUSE}};
}
std::vector<ToControl> to_control() {
  return {Done{1, 0, {}},
          Done{2, ENOENT, "the vdevice has gone"},
          CgroupUse{3, {{"/a", {{Kind::kQp, 2}}}, {"/b", {}}}, true},
          CgroupUse{4, {}, false},
          WantKit{1, {5, 6}},
          Accepted{1},
          Ended{1},
          Say{base::LogLevel::kWarning, "vdevice red0: a program speaks version 1"},
          WantRates{3},
          Crashed{11, 7},
          Refused{7, 4711, Refused::Why::kCeiling, Kind::kQp, 3},
          WantRoceSocket{7, gid(0xfd, 2)},
          QueuePairs{1, {}, false},
          QueuePairs{2,
                     {{17,
                       4711,
                       verbs::QpType::kRc,
                       verbs::QpState::kErr,
                       QueuePairs::Transport::kNetwork,
                       rdma::NotDirect::kEarlier,
                       gid(0xfd, 2),
                       gid(0xfd, 3),
                       18,
                       {1, 2, 3, 4, {5, 6, 7, 8, 9}},
                       {10, 11},
                       {12, 13}}},
                     true},
          LeaveGroup{7, gid(0xff, 2)},
          Exports{1, {}, false},
          Exports{2,
                  {{17,
                    4711,
                    {"/run/vm0.sock",
                     true,
                     ipc::DoorbellMode::kTrap,
                     20,
                     {1, 2, 3, 4, 5, 6, 7, 8, 9, UINT64_MAX}}},
                   {18, 4712, {}}},
                  true}};
}

template <class Message, class Decode>
void expect_round_trips(const std::vector<Message>& messages, Decode decode) {
  std::vector<bool> seen(std::variant_size_v<Message>);
  for (const Message& message : messages) {
    seen[message.index()] = true;
    const auto bytes = encode(message);
    ASSERT_TRUE(bytes);
    const auto again = decode(*bytes);
    ASSERT_TRUE(again) << message.index();
    EXPECT_EQ(*again, message) << message.index();
    for (size_t size = 0; size < bytes->size(); ++size)
      EXPECT_FALSE(decode(std::span(*bytes).first(size))) << message.index() << ", cut to " << size;
    Bytes longer = *bytes;
    longer.push_back(0);
    EXPECT_FALSE(decode(longer)) << message.index() << ", with more behind it";
  }
  EXPECT_EQ(std::ranges::count(seen, false), 0) << "an alternative is not tested";
  EXPECT_FALSE(decode(Bytes(64, static_cast<uint8_t>(seen.size())))) << "there is no such message";
  EXPECT_FALSE(decode(Bytes(64, 0xff)));
}

TEST(MessagesCodec, gives_each_message_back_and_refuses_what_is_cut_or_longer) {
  expect_round_trips(to_worker(), decode_to_worker);
  expect_round_trips(to_control(), decode_to_control);
}

TEST(MessagesCodec, has_a_fixed_form) {
  EXPECT_EQ(encode(ToWorker(Collect{0x0102, 3})),
            (Bytes{6, 2, 1, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(encode(ToControl(Done{1, 2, "no"})),
            (Bytes{0, 1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 2, 0, 'n', 'o'}));
  // A worker that crashes writes these bytes itself.
  EXPECT_EQ(encode(ToControl(Crashed{11, 0x0102})),
            (Bytes{std::variant_size_v<ToControl> - 1, 11, 0, 0, 0, 2, 1, 0, 0}));
}

TEST(MessagesCodec, does_not_write_what_is_beyond_a_bound) {
  EXPECT_TRUE(encode(ToWorker(SetGids{1, std::vector<verbs::Gid>(kMostGids)})));
  EXPECT_FALSE(encode(ToWorker(SetGids{1, std::vector<verbs::Gid>(kMostGids + 1)})));
  AddVdevice add;
  add.name.assign(kMostName, 'x');
  EXPECT_TRUE(encode(ToWorker(add)));
  add.name += 'x';
  EXPECT_FALSE(encode(ToWorker(add)));
  EXPECT_TRUE(encode(ToWorker(AskCgroups{1, 1, std::string(kMostText, 'x')})));
  EXPECT_FALSE(encode(ToWorker(AskCgroups{1, 1, std::string(kMostText + 1, 'x')})));
  CgroupUse use;
  use.groups.resize(CgroupUse::kMost);
  for (auto& group : use.groups) {
    group.path.assign(kMostText, 'x');
    for (const Kind kind : provisioning::all_kinds()) group.used.push_back({kind, 1});
  }
  EXPECT_TRUE(encode(ToControl(use))) << "the largest answer is no larger than a message may be";
  use.groups.emplace_back();
  EXPECT_FALSE(encode(ToControl(use)));
  QueuePairs queue_pairs;
  queue_pairs.rows.resize(QueuePairs::kMost);
  for (auto& row : queue_pairs.rows) row.type = verbs::QpType::kRc;
  EXPECT_TRUE(encode(ToControl(queue_pairs)));
  queue_pairs.rows.emplace_back();
  EXPECT_FALSE(encode(ToControl(queue_pairs)));
  Exports exports;
  exports.rows.resize(Exports::kMost);
  for (auto& row : exports.rows) row.is.socket.assign(ipc::ExportState::kMostPath, '\xff');
  EXPECT_TRUE(encode(ToControl(exports)));
  exports.rows.back().is.socket += 'x';
  EXPECT_FALSE(encode(ToControl(exports)));
  exports.rows.back().is.socket.clear();
  exports.rows.emplace_back();
  EXPECT_FALSE(encode(ToControl(exports)));
}

TEST(MessagesCodec, does_not_read_what_is_beyond_a_bound) {
  const auto with = [](const ToWorker& message, size_t at, uint8_t byte) {
    Bytes bytes = encode(message).value();
    bytes.at(at) = byte;
    return decode_to_worker(bytes).has_value();
  };
  const ToWorker limits = SetLimits{1, 1, {{Kind::kMr, 9}}, false};
  constexpr size_t kCount = 17, kFirstKind = 21, kLimited = 30;
  EXPECT_TRUE(with(limits, kLimited, 1));
  EXPECT_FALSE(with(limits, kLimited, 2)) << "a flag is 0 or 1";
  EXPECT_FALSE(with(limits, kCount, 2)) << "there is one";
  EXPECT_FALSE(with(limits, kCount + 3, 0x80)) << "2 G of them";
  EXPECT_FALSE(with(limits, kFirstKind, provisioning::kKindCount)) << "there is no such kind";
  EXPECT_FALSE(with(SetPort{1, {}}, 9, 7)) << "a flag";
  const AddVdevice add;
  constexpr size_t kBehind =
      4 + sizeof(verbs::Capabilities) + 4 + 2 * (8 + 2);  // peers, limits, budgets
  const size_t permissions = encode(ToWorker(add))->size() - kBehind - 8;
  EXPECT_TRUE(with(add, permissions, 7));
  EXPECT_FALSE(with(add, permissions, 8)) << "there is no such permission";
  for (const size_t flag : {6, 7}) {
    EXPECT_TRUE(with(add, permissions + flag, 1));
    EXPECT_FALSE(with(add, permissions + flag, 2)) << "a flag";
  }
  const SetWays ways{1, {true, false, {{gid(0xfd, 0), 8}}}};
  for (const size_t flag : {9, 10}) EXPECT_FALSE(with(ways, flag, 2)) << "a flag";
  EXPECT_FALSE(with(ways, 11, 2)) << "there is one prefix";
  EXPECT_TRUE(with(ways, 11 + 4 + 16, 128));
  EXPECT_FALSE(with(ways, 11 + 4 + 16, 129)) << "a GID has 128 bits";
  EXPECT_FALSE(encode(ToWorker(SetWays{1, {true, false, std::vector<gid::Prefix>(65)}})));
}

TEST(MessagesCodec, reads_no_unknown_mode_of_doorbells) {
  const Bytes bytes = encode(ToControl(Exports{1, {{2, 3, {}}}, false})).value();
  constexpr size_t kMode = 1 + 8 + 4 + 4 + 4 + 2 + 1, kHasDriver = kMode + 4;
  const auto with = [&](size_t at, uint8_t byte) {
    Bytes changed = bytes;
    changed.at(at) = byte;
    return decode_to_control(changed).has_value();
  };
  EXPECT_TRUE(with(kMode, 1));
  EXPECT_FALSE(with(kMode, 2));
  EXPECT_TRUE(with(kHasDriver, 1));
  EXPECT_FALSE(with(kHasDriver, 2)) << "a flag";
  EXPECT_FALSE(with(kHasDriver + 1, 1)) << "a version of no driver";
}

// The sentence goes to an operator's terminal.
TEST(MessagesCodec, reads_no_control_characters_and_no_negative_error) {
  Bytes bytes = encode(ToControl(Done{1, 2, "no"})).value();
  EXPECT_TRUE(decode_to_control(bytes));
  bytes.back() = 0x1b;
  EXPECT_FALSE(decode_to_control(bytes));
  bytes.back() = 'o';
  bytes.at(12) = 0x80;
  EXPECT_FALSE(decode_to_control(bytes));
}

}  // namespace
}  // namespace vrdma::vrdmad
