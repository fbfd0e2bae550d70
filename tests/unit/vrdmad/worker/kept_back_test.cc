// The sessions that wait for one whose process cannot be inspected, and no others.
#include "vrdmad/worker/kept_back.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace vrdma::vrdmad {
namespace {

constexpr uint64_t kRed = 1, kBlue = 2, kGreen = 3;

const std::function<bool(const QpName&)> kNothingLives = [](const QpName&) { return false; };

SessionTies session(const QpName& has, const std::set<QpName>& peers) {
  return {has.first, {has}, peers, false};
}

using Kept = std::vector<bool>;

TEST(KeptBack, AreOnlyPeersOfWhatIsMissing) {
  const std::vector<SessionTies> all{
      session({kRed, 11}, {{kBlue, 21}}),    // both are here
      session({kBlue, 21}, {{kRed, 11}}),    //
      session({kBlue, 22}, {{kRed, 12}}),    // its peer comes later
      session({kBlue, 23}, {{kGreen, 31}}),  // its peer has gone for good
      session({kRed, 13}, {}),               // of the vdevice of the missing one
  };
  EXPECT_EQ(kept_back(all, {kRed}, kNothingLives), (Kept{false, false, true, false, false}));
  EXPECT_EQ(kept_back(all, {}, kNothingLives), Kept(5)) << "nothing is awaited";
}

TEST(KeptBack, KeepTheirOwnPeersBack) {
  const std::vector<SessionTies> all{
      session({kGreen, 31}, {{kBlue, 21}}),
      session({kBlue, 21}, {{kRed, 11}, {kGreen, 31}}),
      session({kGreen, 32}, {{kBlue, 22}}),
      session({kBlue, 22}, {{kGreen, 32}}),
  };
  EXPECT_EQ(kept_back(all, {kRed}, kNothingLives), (Kept{true, true, false, false}));
}

TEST(KeptBack, FindPeersThatWereTakenOverBefore) {
  const std::vector<SessionTies> all{session({kBlue, 21}, {{kRed, 11}})};
  const auto lives = [](const QpName& name) { return name == QpName{kRed, 11}; };
  EXPECT_EQ(kept_back(all, {kRed}, lives), Kept{false});
}

TEST(KeptBack, AreThoseThatShareObjectsWithAMissingOne) {
  SessionTies importer = session({kRed, 11}, {});
  importer.shares = true;
  EXPECT_EQ(kept_back({importer}, {kRed}, kNothingLives), Kept{true});
  EXPECT_EQ(kept_back({importer}, {kBlue}, kNothingLives), Kept{false});
}

TEST(KeptBack, AreKnownByTheirImages) {
  verbs::Gid blue;
  blue.bytes[15] = 7;
  SessionImage image;
  ipc::Reply made;
  made.create_qp.qpn = 11;
  image.served[Stored::kQp][1].made.reply = made;
  image.targets[2].made.qpn = 12;
  QpRecord linked{};
  std::copy(blue.bytes.begin(), blue.bytes.end(), linked.attributes.av.dgid);
  linked.attributes.dest_qpn = 21;
  image.qp_states[3].made.record = linked;  // it was never linked
  linked.attributes.dest_qpn = 22;
  linked.linked_in = 1;
  image.qp_states[4].made.record = linked;
  const auto owner = [&](const verbs::Gid& gid) { return gid == blue ? kBlue : 0; };
  const SessionTies ties = ties_of(image, kRed, owner);
  EXPECT_EQ(ties.has, (std::set<QpName>{{kRed, 11}, {kRed, 12}}));
  EXPECT_EQ(ties.peers, (std::set<QpName>{{kBlue, 22}}));
  EXPECT_FALSE(ties.shares);
  image.xrcds[5] = {};
  EXPECT_TRUE(ties_of(image, kRed, owner).shares);
}

}  // namespace
}  // namespace vrdma::vrdmad
