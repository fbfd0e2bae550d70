#include "provisioning/kind.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

namespace vrdma::provisioning {
namespace {

using testing::HasSubstr;

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
  for (const auto* text : {"qp", "=3", "qp=", "qp=many", "qp=-1", "qp=+1", "qp= 1", "qp=1kk",
                           "qp=1.5g", "qp=0x10", "qp=18446744073709551616", "qp=18014398509481984k",
                           "qp=1,", ",qp=1", "qp=1,,mr=2", "qp=1,qp=2", "qp=k"}) {
    const auto settings = parse_settings(text);
    ASSERT_FALSE(settings) << text;
    EXPECT_EQ(settings.error().code(), EINVAL) << text;
    EXPECT_FALSE(settings.error().message().empty());
  }
  EXPECT_THAT(parse_settings("qp=many").error().message(), HasSubstr("quota qp: 'many'"));
}

}  // namespace
}  // namespace vrdma::provisioning
