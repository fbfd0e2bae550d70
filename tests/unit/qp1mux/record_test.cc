// Damaged records of ids: each field that the code relies on is checked before it is used.
#include "qp1mux/record.h"

#include <gtest/gtest.h>

#include <cstring>

namespace vrdma::qp1mux {
namespace {

CmIdRecord connecting() {
  CmIdRecord record;
  record.space = wire::PortSpace::kTcp;
  record.service = CmService::kRc;
  record.state = CmIdState::kConnecting;
  record.is_bound = true;
  record.connection.state = State::kReqSent;
  record.connection.max_retries = 15;
  record.connection.response = time_of(20);
  (void)wire::begin<wire::CmReq>(record.connection.sent, 1);
  return record;
}

void make_neither_true_nor_false(bool* flag) {
  const uint8_t byte = 2;
  std::memcpy(flag, &byte, sizeof byte);
}

TEST(Record, OfAnIdThatConnectsIsSound) { EXPECT_TRUE(is_sound(connecting())); }

TEST(Record, OfAnIdWithoutAConnectionIsSound) {
  CmIdRecord record;
  record.space = wire::PortSpace::kUdp;
  EXPECT_TRUE(is_sound(record));
}

TEST(Record, OfAListenerIsDamagedWithoutAPortOrADevice) {
  Endpoint* const some = reinterpret_cast<Endpoint*>(1);  // of another process: not dereferenced
  CmIdRecord record;
  record.space = wire::PortSpace::kTcp;
  record.state = CmIdState::kListening;
  EXPECT_FALSE(is_sound(record));
  record.is_bound = true;
  EXPECT_TRUE(is_sound(record));
  record.local.gid.bytes[0] = 0xfe;
  EXPECT_FALSE(is_sound(record));
  record.route.endpoint = some;
  EXPECT_TRUE(is_sound(record));
}

TEST(Record, OfAnIdThatWaitsForANetworkHasAPort) {
  CmIdRecord record;
  record.space = wire::PortSpace::kTcp;
  record.state = CmIdState::kResolving;
  EXPECT_FALSE(is_sound(record));
  record.is_bound = true;
  EXPECT_TRUE(is_sound(record));
}

TEST(Record, WithEnumeratorsThatDoNotExistIsDamaged) {
  CmIdRecord record = connecting();
  record.state = static_cast<CmIdState>(9);
  EXPECT_FALSE(is_sound(record));
  record = connecting();
  record.service = static_cast<CmService>(4);
  EXPECT_FALSE(is_sound(record));
  record = connecting();
  record.space = static_cast<wire::PortSpace>(3);
  EXPECT_FALSE(is_sound(record));
  record = connecting();
  record.bound.space = static_cast<wire::PortSpace>(3);
  EXPECT_FALSE(is_sound(record));
  record = connecting();
  record.connection.state = static_cast<State>(12);
  EXPECT_FALSE(is_sound(record));
  record = connecting();
  record.connection.path.roce = static_cast<RoceVersion>(0);
  EXPECT_FALSE(is_sound(record));
}

TEST(Record, WithAFlagThatIsNeitherTrueNorFalseIsDamaged) {
  CmIdRecord record = connecting();
  make_neither_true_nor_false(&record.reuse);
  EXPECT_FALSE(is_sound(record));
  record = connecting();
  make_neither_true_nor_false(&record.is_bound);
  EXPECT_FALSE(is_sound(record));
  record = connecting();
  make_neither_true_nor_false(&record.connection.remote);
  EXPECT_FALSE(is_sound(record));
  record = connecting();
  make_neither_true_nor_false(&record.connection.stood);
  EXPECT_FALSE(is_sound(record));
  record = {};
  record.space = wire::PortSpace::kTcp;
  record.state = CmIdState::kListening;  // which requires is_bound
  make_neither_true_nor_false(&record.is_bound);
  EXPECT_FALSE(is_sound(record));
}

// Their sum would overflow, and a timer would be due immediately and forever.
TEST(Record, WithTimesOutOfRangeIsDamaged) {
  CmIdRecord record = connecting();
  record.connection.response = base::Duration::max();
  EXPECT_FALSE(is_sound(record));
  record = connecting();
  record.connection.response = base::Duration(-1);
  EXPECT_FALSE(is_sound(record));
  record = connecting();
  record.connection.timewait = base::Duration::max();
  EXPECT_FALSE(is_sound(record));
  record = connecting();
  record.connection.max_retries = 16;
  EXPECT_FALSE(is_sound(record));
}

// Repetitions are counted by the attribute of the message.
TEST(Record, WithoutTheMessageThatItRepeatsIsDamaged) {
  CmIdRecord record = connecting();
  record.connection.sent.header.attribute_id = 0;
  EXPECT_FALSE(is_sound(record));
  record.connection.sent.header.attribute_id = 0x4000;
  EXPECT_FALSE(is_sound(record));
}

}  // namespace
}  // namespace vrdma::qp1mux
