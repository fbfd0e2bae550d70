// The doctor's analysis of libraries, and its output.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "cli/doctor/finding.h"
#include "cli/doctor/library.h"
#include "cli/doctor/links.h"
#include "cli/doctor/peer.h"
#include "cli/doctor/port.h"

namespace vrdma::cli::doctor {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::IsEmpty;

std::string content_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(DoctorLibrary, VersionNodesAreThoseOfTheFile) {
  const std::string library = content_of(DROP_IN);
  ASSERT_FALSE(library.empty());
  EXPECT_TRUE(is_drop_in(library));
  const auto nodes = version_nodes(library);
  EXPECT_THAT(nodes, Contains("IBVERBS_1.1"));
  EXPECT_THAT(nodes, Contains("IBVERBS_PRIVATE_34"));
  EXPECT_THAT(describe_nodes(nodes), HasSubstr("IBVERBS_PRIVATE_34"));
}

TEST(DoctorLibrary, DamagedFilesHaveNoneOrSome) {
  EXPECT_THAT(version_nodes(""), IsEmpty());
  EXPECT_THAT(version_nodes("\x7f"
                            "ELF"),
              IsEmpty());
  std::string library = content_of(DROP_IN);
  for (size_t length = library.size(); length > 0; length -= std::min<size_t>(length, 99'991))
    (void)version_nodes(library.substr(0, length));
  for (size_t at = 0; at < 64; ++at) {
    std::string damaged = library;
    damaged[at] = static_cast<char>(~damaged[at]);
    (void)version_nodes(damaged);
  }
}

TEST(DoctorLibrary, TheHighestPublicNodeIsTheGreatestNumber) {
  EXPECT_EQ(describe_nodes({"IBVERBS_1.9", "IBVERBS_1.14", "IBVERBS_1.2", "IBVERBS_PRIVATE_34"}),
            "public nodes to IBVERBS_1.14, private IBVERBS_PRIVATE_34");
  EXPECT_EQ(describe_nodes({}), "public nodes to none, private none");
}

TEST(DoctorLibrary, WhatTheLoaderSays) {
  const auto trace = parse_trace(
      "\tlinux-vdso.so.1 (0x1)\n"
      "\tlibibverbs.so.1 => /opt/v/libibverbs.so.1 (0x00007f)\n"
      "./p: /opt/v/libibverbs.so.1: version `IBVERBS_1.99' not found (required by ./p)\n");
  EXPECT_EQ(trace.library, "/opt/v/libibverbs.so.1");
  EXPECT_THAT(trace.complaints, ElementsAre(HasSubstr("IBVERBS_1.99")));
}

TEST(DoctorLibrary, CopiesInWheelsAreFound) {
  EXPECT_THAT(mapped_libraries("7f-80 r-xp 0 fe:00 1 /x.libs/libibverbs-1de1263b.so.1.14.48.0\n"
                               "80-81 r-xp 0 fe:00 1 /x.libs/libibverbs-1de1263b.so.1.14.48.0\n"
                               "81-82 rw-p 0 00:00 0 \n82-83 r-xp 0 fe:00 2 /lib/libc.so.6\n"),
              ElementsAre("/x.libs/libibverbs-1de1263b.so.1.14.48.0"));
}

v1::Vdev vdev(const char* name, const char* fabric, const char* reach, const char* gid) {
  v1::Vdev made;
  made.set_name(name);
  made.set_fabric(fabric);
  made.set_reach(reach);
  made.add_gids()->set_gid(gid);
  return made;
}

TEST(DoctorPeer, IsOneHost) {
  EXPECT_EQ(parse_peer("10.0.0.2").value().text(), "::ffff:10.0.0.2");
  EXPECT_EQ(parse_peer("fd00::2").value().text(), "fd00::2");
  for (const char* none :
       {"", "host", "10.0.0", "239.1.2.3", "ff02::1", "0.0.0.0", "::", "fe80::1"})
    EXPECT_EQ(parse_peer(none).error().code(), EINVAL) << none;
}

TEST(DoctorPeer, OnThisHost) {
  const std::vector all{vdev("va", "red", "host", "::ffff:10.0.0.1"),
                        vdev("vb", "red", "host", "::ffff:10.0.0.2"),
                        vdev("vc", "blue", "host", "::ffff:10.0.0.3"),
                        vdev("vd", "vdev/4", "host", "::ffff:10.0.0.4"),
                        vdev("ve", "green", "network", "::ffff:10.0.0.5")};
  const auto found = [&](size_t from, const char* to) {
    return judge_peer(*parse_peer(to), {&all[from]}, all, Way{});
  };
  EXPECT_EQ(found(0, "10.0.0.2").state, State::kOk);
  EXPECT_EQ(found(4, "10.0.0.3").state, State::kProblem);
  EXPECT_THAT(found(4, "10.0.0.3").text, HasSubstr("vc on this host, in fabric blue, which ends"));
  EXPECT_EQ(found(0, "10.0.0.3").state, State::kProblem);
  EXPECT_THAT(found(0, "10.0.0.3").text, HasSubstr("; vc in fabric blue has it"));
  EXPECT_THAT(found(0, "10.0.0.3").remedy, HasSubstr("'vrdmactl fabric set red --reach network'"));
  EXPECT_THAT(found(0, "10.0.0.9").text, HasSubstr("10.0.0.9 is not in the fabric of va (red)"));
  EXPECT_THAT(found(3, "10.0.0.9").remedy, HasSubstr("create vd again with --tenant or --fabric"));
}

TEST(DoctorPeer, IsAPeerOfTheFabric) {
  std::vector all{vdev("va", "red", "network", "::ffff:10.0.0.1")};
  for (const char* prefix : {"10.1.0.0/16", "fd00::/8"}) all[0].add_peers(prefix);
  const auto found = [&](const char* to) {
    return judge_peer(*parse_peer(to), {&all[0]}, all, std::nullopt);
  };
  EXPECT_EQ(found("10.1.2.3").state, State::kUnknown) << "the way was not tried";
  EXPECT_EQ(found("10.2.0.1").state, State::kProblem);
  EXPECT_THAT(found("10.2.0.1").text, HasSubstr("10.2.0.1 is no peer of fabric red: "));
}

TEST(DoctorPort, OfEveryAddressIsFound) {
  const std::string head = "   sl  local_address rem_address   st tx_queue rx_queue tr\n";
  const auto has = [&](const std::string& local) {
    return has_port_everywhere(head + "  757: " + local + " 00000000:0000 07 00000000:00000000\n");
  };
  EXPECT_TRUE(has("00000000:12B7"));
  EXPECT_TRUE(has("00000000000000000000000000000000:12B7"));
  EXPECT_FALSE(has("0100000A:12B7")) << "vrdmad's own";
  EXPECT_FALSE(has("00000000:12B8"));
  EXPECT_FALSE(has("00000000000000000000000001000000:12B7"));
  for (const char* damaged : {"", "\n", ":", ": ", "1: ", "1: 00000000", "1: :12B", "12B7\n\n: "})
    EXPECT_FALSE(has_port_everywhere(damaged)) << damaged;
}

TEST(DoctorPort, WhoHasIt) {
  const auto va = vdev("va", "red", "network", "::ffff:10.0.0.1");
  const auto vb = vdev("vb", "red", "wire", "::ffff:10.0.0.2");
  EXPECT_EQ(judge_port({&va}, false, true).state, State::kOk);
  EXPECT_EQ(judge_port({&va}, true, true).state, State::kProblem);
  EXPECT_THAT(judge_port({&va}, true, true).text, HasSubstr("so va exchanges no packets"));
  EXPECT_THAT(judge_port({&va}, true, true).remedy, HasSubstr("'rmmod rdma_rxe'"));
  EXPECT_THAT(judge_port({&va, &vb}, true, false).text, HasSubstr("so va, vb exchange no packets"));
  EXPECT_THAT(judge_port({&va}, true, false).remedy, HasSubstr("end it; 'ss -ulnp"));
}

TEST(DoctorLinks, OfOneTenantThatAWorkerServes) {
  const auto queue_pair = [](const char* because) {
    v1::QueuePair row;
    row.set_because(because);
    return row;
  };
  EXPECT_THAT(judge_links("va", {queue_pair(""), queue_pair("type"), queue_pair("another tenant")}),
              IsEmpty());
  const auto found = judge_links(
      "va", {queue_pair("rate limit"), queue_pair("another user"), queue_pair("rate limit")});
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].remedy, "run both programs as the same user");
  EXPECT_THAT(found[1].text, HasSubstr("2 of the queue pairs of va"));
  EXPECT_THAT(found[1].text, EndsWith("rate limit"));
  EXPECT_THAT(found[1].remedy, HasSubstr("msg_rate"));
}

TEST(DoctorPeer, OnTheWireOfThisHost) {
  std::vector all{vdev("va", "red", "wire", "::ffff:10.0.0.1"),
                  vdev("vb", "red", "wire", "::ffff:10.0.0.2"),
                  vdev("vc", "red", "wire", "::ffff:10.0.0.3")};
  for (size_t i = 0; i < all.size(); ++i) all[i].set_netns_cookie(i < 2 ? 1 : 2);
  const Way way{0, "::ffff:10.0.0.1", 0, PeerAnswer::kNone};
  const auto found = [&](const char* to) {
    return judge_peer(*parse_peer(to), {all.data()}, all, way).state;
  };
  EXPECT_EQ(found("10.0.0.2"), State::kOk) << "memory leads there";
  EXPECT_EQ(found("10.0.0.3"), State::kProblem) << "something drops the packets";
}

TEST(DoctorPeer, OnTheNetwork) {
  const std::vector all{vdev("va", "red", "network", "::ffff:10.0.0.1")};
  const auto found = [&](Way way) {
    return judge_peer(*parse_peer("10.0.0.2"), {all.data()}, all, way);
  };
  EXPECT_EQ(found({0, "::ffff:10.0.0.1", 0, PeerAnswer::kGiven}).state, State::kOk);
  EXPECT_EQ(found({0, "::ffff:10.0.0.1", 0, PeerAnswer::kNotAsked}).state, State::kUnknown);
  EXPECT_EQ(found({0, "::ffff:10.0.0.1", 0, PeerAnswer::kNone}).state, State::kProblem);
  EXPECT_THAT(found({0, "::ffff:10.0.0.1", 0, PeerAnswer::kTranslated}).text,
              HasSubstr("arrive with other addresses"));
  EXPECT_THAT(found({ENETUNREACH, "", 0, {}}).text, HasSubstr("there is no way to 10.0.0.2"));
  EXPECT_THAT(found({0, "::ffff:10.9.0.1", 0, {}}).text,
              HasSubstr("leave from 10.9.0.1, which is no"));
  EXPECT_THAT(found({0, "::ffff:10.0.0.1", EHOSTUNREACH, {}}).text, HasSubstr("no host answers"));
  const Finding closed = found({0, "::ffff:10.0.0.1", ECONNREFUSED, {}});
  EXPECT_EQ(closed.state, State::kUnknown);
  EXPECT_THAT(closed.text, HasSubstr("UDP port 4791 is closed there"));
  EXPECT_EQ(judge_peer(*parse_peer("10.0.0.2"), {all.data()}, all, {}).state, State::kUnknown);
}

TEST(DoctorFinding, OneLineEach) {
  const Findings findings{{"socket", State::kOk, "fine", ""},
                          {"gids", State::kProblem, "none\n at all", "give it one"}};
  std::ostringstream table, json;
  print_table(findings, table);
  EXPECT_EQ(table.str(), "ok       socket  fine\nproblem  gids    none\\x0a at all; give it one\n");
  print_json(findings, json);
  EXPECT_THAT(json.str(), HasSubstr("\"state\": \"problem\""));
  EXPECT_EQ(problems_in(findings), 1u);
}

}  // namespace
}  // namespace vrdma::cli::doctor
