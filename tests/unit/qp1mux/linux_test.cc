// Linux as a peer: what its rdma_cm sends over RoCE v2, byte by byte. The messages were captured
// between two hosts with rxe (Linux 6.1, from 192.0.2.2 to 192.0.2.1): rping -C 1 to port 7171;
// udaddy -c 1; a REQ to a port without a listener; one that a program rejected with rdma_reject(3).
#include <cstring>

#include "tests/unit/qp1mux/rig.h"

namespace vrdma::qp1mux {
namespace {

using testing::ElementsAre;

constexpr uint64_t kClientGuid = 0x505400fffe000002, kServerGuid = 0x505400fffe000001;
constexpr uint64_t kRpingService = 0x01061c03;
constexpr uint32_t kClientId = 0x6f8cc05b, kServerId = 0x5be57110;
constexpr uint32_t kLinuxQpn = 0x11, kClientPsn = 0xa0820a, kServerPsn = 0xe0ba45;

// The rest of each MAD is zeros.
constexpr const char* kReq =
    "0107020300000000000000025bc08c6f00100000000000006f8cc05b00000000"
    "0000000001061c03505400fffe00000200000000000000000000110100000001"
    "000000a0a0820aa7ffff37f0ffffffff00000000000000000000ffffc0000202"
    "00000000000000000000ffffc000020166b09000004000980000000000000000"
    "0000000000000000000000000000000000000000000000000000000000000000"
    "000000000040b83a000000000000000000000000c00002020000000000000000"
    "00000000c0000201";
constexpr const char* kRep =
    "0107020300000000000000025bc08c6f00130000000000005be571106f8cc05b"
    "000000000000110000000000e0ba4500010178e0505400fffe000001";
constexpr const char* kRtu = "0107020300000000000000025bc08c6f00140000000000006f8cc05b5be57110";
constexpr const char* kDreq =
    "0107020300000000000000025bc08c6f00150000000000006f8cc05b5be57110000011";
constexpr const char* kDrep = "0107020300000000000000025bc08c6f00160000000000005be571106f8cc05b";

constexpr uint64_t kUdaddyService = 0x01111c06;
constexpr uint16_t kUdaddyPort = 0xe409;
constexpr uint32_t kUdaddyQkey = 0x01234567;
constexpr const char* kSidrReq =
    "01070203000000000000000268f3f861001700000000000061f8f368ffff0000"
    "0000000001111c060040e409000000000000000000000000c000020200000000"
    "0000000000000000c0000201";
constexpr const char* kSidrRep =
    "01070203000000000000000268f3f861001800000000000061f8f36800000000"
    "000011000000000001111c0601234567";
constexpr const char* kNobodyListens =
    "01070203000000000000000268f3f86000120000000000000000000060f8f36800000008";
constexpr const char* kRefused =
    "01070203000000000000000268f3f863001200000000000033dc4df563f8f368"
    "0000001c00000000000000000000000000000000000000000000000000000000"
    "0000000000000000000000000000000000000000000000000000000000000000"
    "0000000000000000000000006e6f207468616e6b73";

wire::Mad mad_of(const char* hex) {
  wire::Mad mad{};
  auto* bytes = reinterpret_cast<uint8_t*>(&mad);
  for (size_t i = 0; hex[2 * i] != '\0'; ++i)
    bytes[i] = static_cast<uint8_t>(std::stoi(std::string(hex + 2 * i, 2), nullptr, 16));
  return mad;
}

// Text of a MAD without the values that each side chooses itself: the transaction and the ids.
template <class Message>
std::string text(wire::Mad mad) {
  auto& message = mad.as<Message>();
  mad.header.transaction_id = 0;
  if constexpr (requires { message.request_id; }) message.request_id = 0;
  if constexpr (requires { message.local_id; }) message.local_id = 0;
  if constexpr (requires { message.remote_id; }) message.remote_id = 0;
  return testing::PrintToString(std::vector<uint8_t>(
      reinterpret_cast<uint8_t*>(&mad), reinterpret_cast<uint8_t*>(&mad) + sizeof mad));
}

struct Linux : testing::Test {
  Rig rig;
  Host& host = rig.host();
  verbs::Gid client_gid = gid("192.0.2.2"), server_gid = gid("192.0.2.1");
  Server server;
  Side client;

  Endpoint endpoint(uint64_t guid, const verbs::Gid& at) {
    return TwoHosts::attach_to(host.mux, setup("ours", guid), at);
  }
  // Drops the messages of our side: the peer is Linux.
  void be_alone() {
    rig.fate = [](const Letter&) { return std::vector<base::Duration>{}; };
  }
  void arrives(wire::Mad mad, const verbs::Gid& from, const verbs::Gid& to) {
    host.mux.receive({"red", from, to, RoceVersion::kV2, 0, 64, 0, mad});
  }
  Req req() {
    static const wire::IpHeader header = wire::encode({client_gid, server_gid, 0xb83a});
    Req value;
    value.path.local = client_gid;
    value.path.remote = server_gid;
    value.path.flow_label = 0x66b09;
    value.service_id = kRpingService;
    value.qpn = kLinuxQpn;
    value.starting_psn = kClientPsn;
    value.responder_resources = value.initiator_depth = 1;
    value.ack_timeout = 19;
    value.flow_control = false;
    value.private_data = {reinterpret_cast<const uint8_t*>(&header), sizeof header};
    return value;
  }
  SidrReq sidr_req() {
    static const wire::IpHeader header = wire::encode({client_gid, server_gid, kUdaddyPort});
    SidrReq value;
    value.path.local = client_gid;
    value.path.remote = server_gid;
    value.service_id = kUdaddyService;
    value.private_data = {reinterpret_cast<const uint8_t*>(&header), sizeof header};
    return value;
  }
  static Rep rep() {
    Rep value;
    value.qpn = kLinuxQpn;
    value.starting_psn = kServerPsn;
    value.responder_resources = value.initiator_depth = 1;
    value.failover = 0;
    value.flow_control = false;
    return value;
  }
};

TEST_F(Linux, IsSpokenToInItsOwnWords) {
  Endpoint a = endpoint(kClientGuid, client_gid), b = endpoint(kServerGuid, server_gid);
  const Listener listener = std::move(b.listen(kRpingService, std::nullopt, 8, &server).value());
  server.answer = [](Side& side) { EXPECT_TRUE(side.connection.send_rep(rep())); };
  TwoHosts::confirm(client);
  client.connection = a.connection(&client);
  ASSERT_TRUE(client.connection.send_req(req()));
  rig.run();
  ASSERT_TRUE(client.connection.send_dreq());
  rig.run();
  ASSERT_TRUE(server.last().connection.send_drep());
  EXPECT_EQ(text<wire::CmReq>(rig.last(CmAttribute::kReq).mad), text<wire::CmReq>(mad_of(kReq)));
  EXPECT_EQ(text<wire::CmRep>(rig.last(CmAttribute::kRep).mad), text<wire::CmRep>(mad_of(kRep)));
  EXPECT_EQ(text<wire::CmRtu>(rig.last(CmAttribute::kRtu).mad), text<wire::CmRtu>(mad_of(kRtu)));
  EXPECT_EQ(text<wire::CmDreq>(rig.last(CmAttribute::kDreq).mad),
            text<wire::CmDreq>(mad_of(kDreq)));
  EXPECT_EQ(text<wire::CmDrep>(rig.last(CmAttribute::kDrep).mad),
            text<wire::CmDrep>(mad_of(kDrep)));
}

TEST_F(Linux, Connects) {
  be_alone();
  Endpoint b = endpoint(kServerGuid, server_gid);
  const Listener listener = std::move(b.listen(kRpingService, std::nullopt, 8, &server).value());
  arrives(mad_of(kReq), client_gid, server_gid);
  ASSERT_EQ(server.sides.size(), 1u);
  EXPECT_EQ(server.req.ca_guid, kClientGuid);
  EXPECT_EQ(server.req.qpn, kLinuxQpn);
  EXPECT_EQ(server.req.starting_psn, kClientPsn);
  EXPECT_EQ(server.req.path_mtu, 3);
  EXPECT_EQ(server.req.ack_timeout, 19);
  EXPECT_EQ(server.req.retry_count, 7);
  EXPECT_EQ(server.req.rnr_retry_count, 7);
  EXPECT_EQ(server.req.max_cm_retries, 15);
  EXPECT_EQ(server.req.responder_resources, 1);
  EXPECT_EQ(server.req.initiator_depth, 1);
  const auto ends = wire::ip_ends(server.data.data());
  ASSERT_TRUE(ends);
  EXPECT_EQ(*ends, (wire::IpEnds{client_gid, server_gid, 0xb83a}));
  Connection& connection = server.last().connection;
  ASSERT_TRUE(connection.send_rep(rep()));
  EXPECT_EQ(rig.last(CmAttribute::kRep).mad.header.transaction_id,
            mad_of(kReq).header.transaction_id);
  EXPECT_EQ(rig.last(CmAttribute::kRep).mad.as<wire::CmRep>().remote_id, kClientId);
  wire::Mad rtu = mad_of(kRtu), dreq = mad_of(kDreq);
  rtu.as<wire::CmRtu>().remote_id = connection.local_id();
  dreq.as<wire::CmDreq>().remote_id = connection.local_id();
  arrives(rtu, client_gid, server_gid);
  EXPECT_EQ(connection.state(), State::kEstablished);
  arrives(dreq, client_gid, server_gid);
  EXPECT_THAT(server.last().events, ElementsAre(EventKind::kRtuReceived, EventKind::kDreqReceived));
  ASSERT_TRUE(connection.send_drep());
  EXPECT_EQ(rig.last(CmAttribute::kDrep).mad.header.transaction_id, dreq.header.transaction_id);
  EXPECT_EQ(rig.last(CmAttribute::kDrep).mad.as<wire::CmDrep>().remote_id, kClientId);
}

TEST_F(Linux, IsConnectedTo) {
  be_alone();
  Endpoint a = endpoint(kClientGuid, client_gid);
  client.connection = a.connection(&client);
  ASSERT_TRUE(client.connection.send_req(req()));
  wire::Mad rep_mad = mad_of(kRep), drep = mad_of(kDrep);
  rep_mad.header.transaction_id = rig.last(CmAttribute::kReq).mad.header.transaction_id;
  rep_mad.as<wire::CmRep>().remote_id = client.connection.local_id();
  arrives(rep_mad, server_gid, client_gid);
  ASSERT_THAT(client.events, ElementsAre(EventKind::kRepReceived));
  EXPECT_EQ(client.rep.ca_guid, kServerGuid);
  EXPECT_EQ(client.rep.qpn, kLinuxQpn);
  EXPECT_EQ(client.rep.starting_psn, kServerPsn);
  EXPECT_EQ(client.rep.target_ack_delay, 15);
  EXPECT_EQ(client.rep.rnr_retry_count, 7);
  EXPECT_FALSE(client.rep.srq);
  ASSERT_TRUE(client.connection.send_rtu());
  EXPECT_EQ(rig.last(CmAttribute::kRtu).mad.as<wire::CmRtu>().remote_id, kServerId);
  ASSERT_TRUE(client.connection.send_dreq());
  EXPECT_EQ(rig.last(CmAttribute::kDreq).mad.as<wire::CmDreq>().remote_qpn, kLinuxQpn);
  drep.header.transaction_id = rig.last(CmAttribute::kDreq).mad.header.transaction_id;
  drep.as<wire::CmDrep>().remote_id = client.connection.local_id();
  arrives(drep, server_gid, client_gid);
  EXPECT_EQ(client.state(), State::kTimewait);
  EXPECT_THAT(client.events, ElementsAre(EventKind::kRepReceived, EventKind::kDrepReceived));
}

TEST_F(Linux, ResolvesServicesInItsOwnWords) {
  Endpoint a = endpoint(kClientGuid, client_gid), b = endpoint(kServerGuid, server_gid);
  const Listener listener = std::move(b.listen(kUdaddyService, std::nullopt, 8, &server).value());
  server.answer = [](Side& side) {
    SidrRep answer;
    answer.qpn = kLinuxQpn;
    answer.qkey = kUdaddyQkey;
    EXPECT_TRUE(side.connection.send_sidr_rep(answer));
  };
  client.connection = a.connection(&client);
  ASSERT_TRUE(client.connection.send_sidr_req(sidr_req()));
  rig.run();
  EXPECT_EQ(text<wire::CmSidrReq>(rig.last(CmAttribute::kSidrReq).mad),
            text<wire::CmSidrReq>(mad_of(kSidrReq)));
  EXPECT_EQ(text<wire::CmSidrRep>(rig.last(CmAttribute::kSidrRep).mad),
            text<wire::CmSidrRep>(mad_of(kSidrRep)));
}

TEST_F(Linux, AsksAndAnswersForDatagrams) {
  be_alone();
  Endpoint a = endpoint(kClientGuid, client_gid), b = endpoint(kServerGuid, server_gid);
  const Listener listener = std::move(b.listen(kUdaddyService, std::nullopt, 8, &server).value());
  arrives(mad_of(kSidrReq), client_gid, server_gid);
  ASSERT_EQ(server.sides.size(), 1u);
  EXPECT_EQ(server.sidr_req.service_id, kUdaddyService);
  const auto ends = wire::ip_ends(server.data.data());
  ASSERT_TRUE(ends);
  EXPECT_EQ(*ends, (wire::IpEnds{client_gid, server_gid, kUdaddyPort}));
  client.connection = a.connection(&client);
  ASSERT_TRUE(client.connection.send_sidr_req(sidr_req()));
  const wire::Mad sent = rig.last(CmAttribute::kSidrReq).mad;
  wire::Mad answer = mad_of(kSidrRep);
  answer.header.transaction_id = sent.header.transaction_id;
  answer.as<wire::CmSidrRep>().request_id = sent.as<wire::CmSidrReq>().request_id;
  arrives(answer, server_gid, client_gid);
  ASSERT_THAT(client.events, ElementsAre(EventKind::kSidrRepReceived));
  EXPECT_EQ(client.sidr.status, wire::SidrStatus::kValid);
  EXPECT_EQ(client.sidr.qpn, kLinuxQpn);
  EXPECT_EQ(client.sidr.qkey, kUdaddyQkey);
}

TEST_F(Linux, IsRefusedInItsOwnWords) {
  Endpoint a = endpoint(kClientGuid, client_gid), b = endpoint(kServerGuid, server_gid);
  client.connection = a.connection(&client);
  ASSERT_TRUE(client.connection.send_req(req()));
  rig.run();
  EXPECT_EQ(text<wire::CmRej>(rig.last(CmAttribute::kRej).mad),
            text<wire::CmRej>(mad_of(kNobodyListens)));

  const Listener listener = std::move(b.listen(kRpingService, std::nullopt, 8, &server).value());
  const std::string words = "no thanks";
  server.answer = [&](Side& side) {
    Rej refusal;
    refusal.private_data = {reinterpret_cast<const uint8_t*>(words.c_str()), words.size() + 1};
    EXPECT_TRUE(side.connection.send_rej(refusal));
  };
  client.connection = a.connection(&client);
  ASSERT_TRUE(client.connection.send_req(req()));
  rig.run();
  EXPECT_EQ(text<wire::CmRej>(rig.last(CmAttribute::kRej).mad),
            text<wire::CmRej>(mad_of(kRefused)));
}

TEST_F(Linux, Refuses) {
  be_alone();
  Endpoint a = endpoint(kClientGuid, client_gid);
  for (const auto& [mad, reason] : {std::pair{kNobodyListens, RejectReason::kInvalidServiceId},
                                    std::pair{kRefused, RejectReason::kConsumer}}) {
    Side refused;
    refused.connection = a.connection(&refused);
    ASSERT_TRUE(refused.connection.send_req(req()));
    wire::Mad answer = mad_of(mad);
    answer.header.transaction_id = rig.last(CmAttribute::kReq).mad.header.transaction_id;
    answer.as<wire::CmRej>().remote_id = refused.connection.local_id();
    arrives(answer, server_gid, client_gid);
    ASSERT_THAT(refused.events, ElementsAre(EventKind::kRejReceived));
    EXPECT_EQ(refused.reason, reason);
    const std::string words(reinterpret_cast<const char*>(refused.data.data()));
    EXPECT_EQ(words, reason == RejectReason::kConsumer ? "no thanks" : "");
  }
}

}  // namespace
}  // namespace vrdma::qp1mux
