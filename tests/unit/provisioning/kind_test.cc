#include "provisioning/kind.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

namespace vrdma::provisioning {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(Kind, HasOneNameEach) {
  EXPECT_EQ(all_kinds().size(), kKindCount);
  std::set<std::string_view> names;
  for (const Kind kind : all_kinds()) {
    names.insert(traits(kind).name);
    EXPECT_EQ(find_kind(traits(kind).name), kind);
    EXPECT_LE(traits(kind).initial, traits(kind).ceiling) << traits(kind).name;
  }
  EXPECT_EQ(names.size(), kKindCount);
  EXPECT_EQ(kind_names(),
            "context, pd, mr, mr_bytes, cq, cqe, qp, send_wr, recv_wr, srq, ah, mw, "
            "conns, conn_rate, req_rate, cm_ids, cm_conns, cm_rate, cm_events, cm_early, mr_rate, "
            "bandwidth, bandwidth_min, "
            "msg_rate, worker_memory, cpu");
  EXPECT_EQ(find_kind("frogs"), std::nullopt);
  EXPECT_EQ(find_kind(""), std::nullopt);
}

TEST(Kind, KnowsWhatBoundsEachObject) {
  for (const Kind kind : all_kinds())
    EXPECT_EQ(traits(kind).per_object(),
              kind == Kind::kCqe || kind == Kind::kSendWr || kind == Kind::kRecvWr);
}

// docs/limits.md explains the numbers.
TEST(Kind, IsEnoughForProgramsWithManyPeers) {
  constexpr uint64_t kPeers = 256;
  EXPECT_GE(traits(Kind::kCqe).initial, (384 + 384) * kPeers) << "ofi_rxm";
  EXPECT_GE(traits(Kind::kQp).initial, 2 * kPeers) << "UCX with two transports";
  EXPECT_GE(traits(Kind::kConns).initial, traits(Kind::kContexts).initial + kPeers);
}

TEST(ParseSettings, TakesNumbersAndSuffixes) {
  const auto settings = parse_settings("qp=64,mr=2k,mr_bytes=1G,cqe=3m,ah=0,mw=1t,pd=max");
  ASSERT_TRUE(settings) << settings.error().message();
  const std::vector<std::pair<std::string, uint64_t>> wanted{
      {"qp", 64}, {"mr", 2048},       {"mr_bytes", 1u << 30}, {"cqe", 3u << 20},
      {"ah", 0},  {"mw", 1ull << 40}, {"pd", kCeiling}};
  ASSERT_EQ(settings->size(), wanted.size());
  for (size_t i = 0; i < wanted.size(); ++i) {
    EXPECT_EQ((*settings)[i].kind, wanted[i].first);
    EXPECT_EQ((*settings)[i].limit, wanted[i].second);
  }
  EXPECT_TRUE(parse_settings("")->empty());
}

TEST(ParseSettings, RefusesWhatDoesNotFit) {
  for (const auto* text : {"qp",
                           "=3",
                           "qp=",
                           "qp=many",
                           "qp=-1",
                           "qp=+1",
                           "qp= 1",
                           "qp=1kk",
                           "qp=1.0000000001g",
                           "qp=.5k",
                           "qp=1.k",
                           "qp=1..5k",
                           "qp=0.1k",
                           "qp=1kb",
                           "qp=5%",
                           "mr_bytes=1bit",
                           "mr_bytes=5%",
                           "bandwidth=1kibit",
                           "cpu=5b",
                           "bandwidth=1bit",
                           "qp=0x10",
                           "qp=18446744073709551616",
                           "qp=18014398509481984k",
                           "qp=1,",
                           ",qp=1",
                           "qp=1,,mr=2",
                           "qp=1,qp=2",
                           "qp=k"}) {
    const auto settings = parse_settings(text);
    ASSERT_FALSE(settings) << text;
    EXPECT_EQ(settings.error().code(), EINVAL) << text;
    EXPECT_FALSE(settings.error().message().empty());
  }
  EXPECT_EQ(parse_settings("qp=many").error().message(),
            "quota qp: 'many' is not a number such as 64, 16k or max");
  EXPECT_EQ(parse_settings("mr_bytes=10gbit").error().message(),
            "quota mr_bytes: '10gbit' is not a number of bytes such as 512m, 1.5g, 16GB or max");
  EXPECT_EQ(parse_settings("mr=1.5").error().message(), "quota mr: '1.5' is not a whole number");
}

TEST(ParseSettings, TakesTheUnitsOfAKind) {
  const std::vector<std::pair<const char*, uint64_t>> all{{"bandwidth=10gbit", 1'250'000'000},
                                                          {"bandwidth=1.5Gbit", 187'500'000},
                                                          {"bandwidth=8bit", 1},
                                                          {"bandwidth=1mbit", 125'000},
                                                          {"bandwidth_min=50MB", 50u << 20},
                                                          {"bandwidth=1.5g", 3u << 29},
                                                          {"mr_bytes=16GB", 16ull << 30},
                                                          {"mr_bytes=16GiB", 16ull << 30},
                                                          {"mr_bytes=4096b", 4096},
                                                          {"worker_memory=0.5g", 512u << 20},
                                                          {"cpu=50%", 50},
                                                          {"cpu=250", 250},
                                                          {"qp=1.5k", 1536},
                                                          {"frogs=2k", 2048}};
  for (const auto& [text, limit] : all) {
    const auto settings = parse_settings(text);
    ASSERT_TRUE(settings) << text << ": " << settings.error().message();
    EXPECT_EQ(settings->front().limit, limit) << text;
  }
}

TEST(Understand, SuggestsTheNearestKind) {
  const auto sentence = [](const char* kind) { return understand({{kind, 1}}).error().message(); };
  EXPECT_THAT(sentence("qps"), HasSubstr("'qps'; do you mean qp?"));
  EXPECT_THAT(sentence("QP"), HasSubstr("do you mean qp?"));
  EXPECT_THAT(sentence("bandwith"), HasSubstr("do you mean bandwidth?"));
  EXPECT_THAT(sentence("mr-bytes"), HasSubstr("do you mean mr_bytes?"));
  EXPECT_THAT(sentence("frogs"), Not(HasSubstr("do you mean")));
  EXPECT_THAT(sentence("frogs"), HasSubstr(kind_names()));
}

TEST(Understand, RefusesWhatBlocksEverything) {
  EXPECT_EQ(understand({{"worker_memory", 1023}}).error().message(),
            "quota worker_memory: 1023 would block everything; the minimum is 1048576");
  EXPECT_TRUE(understand({{"worker_memory", 1 << 20}}));
  EXPECT_FALSE(understand({{"cpu", 0}}));
  EXPECT_TRUE(understand({{"qp", 0}}));
}

TEST(Kind, HelpNamesEach) {
  for (const Kind kind : all_kinds())
    EXPECT_THAT(help_on_kinds(), HasSubstr(" " + std::string(traits(kind).name)));
}

}  // namespace
}  // namespace vrdma::provisioning
