// Resolution of a service ID, by which datagram ids find each other.
#include "tests/unit/qp1mux/rig.h"

namespace vrdma::qp1mux {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

struct Sidr : TwoHosts {
  Listener datagrams = std::move(b.listen(kDatagramService, std::nullopt, 8, &server).value());

  SidrReq question() {
    SidrReq value;
    value.path.local = gid_a;
    value.path.remote = gid_b;
    value.service_id = kDatagramService;
    return value;
  }
  void resolve(Side& side, const SidrReq& with) {
    side.connection = a.connection(&side);
    EXPECT_TRUE(side.connection.send_sidr_req(with));
  }
  static SidrRep answer() {
    SidrRep value;
    value.qpn = 0x4242;
    value.qkey = 0x01234567;
    return value;
  }
};

TEST_F(Sidr, TellsQueuePairAndKey) {
  const std::vector<uint8_t> of_req(216, 1), of_rep(136, 2);
  SidrReq asked = question();
  asked.private_data = of_req;
  resolve(client, asked);
  EXPECT_EQ(client.state(), State::kSidrReqSent);
  rig.run();
  ASSERT_THAT(server.sides, SizeIs(1));
  EXPECT_EQ(server.last().state(), State::kSidrReqReceived);
  EXPECT_EQ(server.sidr_req.path.remote, gid_a);
  EXPECT_EQ(server.sidr_req.service_id, kDatagramService);
  EXPECT_EQ(server.data, of_req);
  EXPECT_TRUE(host_b.mux.connections()[0].datagram);
  SidrRep told = answer();
  told.private_data = of_rep;
  ASSERT_TRUE(server.last().connection.send_sidr_rep(told));
  rig.run();
  EXPECT_THAT(client.events, ElementsAre(EventKind::kSidrRepReceived));
  EXPECT_EQ(client.sidr.status, wire::SidrStatus::kValid);
  EXPECT_EQ(client.sidr.qpn, 0x4242u);
  EXPECT_EQ(client.sidr.qkey, 0x01234567u);
  EXPECT_EQ(client.data, of_rep);
  EXPECT_EQ(client.state(), State::kClosed);
  rig.run(std::chrono::seconds(1));
  EXPECT_THAT(states(host_a.mux), IsEmpty());
  EXPECT_THAT(states(host_b.mux), IsEmpty());
  EXPECT_THAT(server.last().events, IsEmpty());
}

TEST_F(Sidr, WithoutListenerIsUnsupported) {
  SidrReq asked = question();
  asked.service_id = kDatagramService + 1;
  resolve(client, asked);
  rig.run();
  EXPECT_EQ(client.sidr.status, wire::SidrStatus::kUnsupported);
}

TEST_F(Sidr, DroppedIsRejected) {
  resolve(client, question());
  rig.run();
  server.last().connection.reset();
  rig.run();
  EXPECT_EQ(client.sidr.status, wire::SidrStatus::kReject);
}

TEST_F(Sidr, LostMessagesAreRepeatedAndDuplicatesNotShown) {
  server.answer = [](Side& side) { EXPECT_TRUE(side.connection.send_sidr_rep(answer())); };
  for (const auto lost : {CmAttribute::kSidrReq, CmAttribute::kSidrRep}) {
    server.sides.clear();
    rig.lose(lost, 1);
    client.events.clear();
    resolve(client, question());
    rig.run(milliseconds(50));
    EXPECT_THAT(client.events, ElementsAre(EventKind::kSidrRepReceived));
    EXPECT_THAT(server.sides, SizeIs(1));
  }
}

TEST_F(Sidr, GivesUp) {
  rig.lose(CmAttribute::kSidrReq, 1000);
  SidrReq asked = question();
  asked.max_cm_retries = 1;
  resolve(client, asked);
  rig.run(2 * time_of(20));
  EXPECT_THAT(client.events, ElementsAre(EventKind::kSidrReqError));
  EXPECT_THAT(states(host_a.mux), IsEmpty());
}

TEST_F(Sidr, NamesOnlyItself) {
  const wire::IpHeader lie = wire::encode({gid("10.0.0.9"), gid_b, 1});
  SidrReq asked = question();
  asked.private_data = {reinterpret_cast<const uint8_t*>(&lie), sizeof lie};
  client.connection = a.connection(&client);
  EXPECT_EQ(client.connection.send_sidr_req(asked).error().code(), EADDRNOTAVAIL);
  resolve(client, question());
  rig.run();
  SidrRep forged = answer();
  forged.qpn = kForeignQpn;
  EXPECT_EQ(server.last().connection.send_sidr_rep(forged).error().code(), EPERM);
}

TEST_F(Sidr, AnswersOfOthersAreNotTaken) {
  resolve(client, question());
  rig.run();
  ASSERT_TRUE(server.last().connection.send_sidr_rep(answer()));
  Letter letter = rig.last(CmAttribute::kSidrRep);
  letter.source = gid("10.0.0.3");
  rig.inject(letter);
  EXPECT_THAT(client.events, IsEmpty());
  rig.run();
  EXPECT_THAT(client.events, SizeIs(1));
}

}  // namespace
}  // namespace vrdma::qp1mux
