// The rules of IBTA 11.2.5.2 stated once more, in another way than the table under test: for each
// attribute, in which transitions of which types it is required (R) or optional (o).
#include "core/rdma/qp_state.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>

namespace vrdma::rdma {
namespace {

using verbs::QpAttrMask;
using verbs::QpState;
using verbs::QpType;

constexpr QpState kStates[] = {QpState::kReset, QpState::kInit, QpState::kRtr, QpState::kRts,
                               QpState::kSqd,   QpState::kSqe,  QpState::kErr};
constexpr QpType kTypes[] = {QpType::kRc,        QpType::kUc,           QpType::kUd,
                             QpType::kRawPacket, QpType::kXrcInitiator, QpType::kXrcTarget};

// "reset-init" and the like; the transitions that are legal at all, beside those to RESET and ERR.
std::string name(QpState from, QpState to) {
  static const char* const kNames[] = {"reset", "init", "rtr", "rts", "sqd", "sqe", "err"};
  return std::string(kNames[static_cast<int>(from)]) + "-" + kNames[static_cast<int>(to)];
}

bool exists(QpType type, const std::string& transition) {
  static const std::set<std::string> kAll{"reset-init", "init-init", "init-rtr",
                                          "rtr-rts",    "rts-rts",   "rts-sqd",
                                          "sqd-rts",    "sqd-sqd",   "sqe-rts"};
  if (transition == "sqe-rts" && verbs::is_reliable(type)) return false;
  return kAll.contains(transition);
}

struct Rule {
  QpAttrMask attribute;
  std::string types;  // of "rudpit": RC, UC, UD, raw packets, XRC initiator and target
  std::set<std::string> required, optional;
};

const std::vector<Rule>& rules() {
  using namespace verbs;  // NOLINT: names of attributes
  static const std::vector<Rule> kRules{
      {kQpPkeyIndex, "rudit", {"reset-init"}, {"init-init", "init-rtr", "sqd-sqd"}},
      {kQpPort, "rudpit", {"reset-init"}, {}},
      {kQpPort, "rudit", {}, {"init-init"}},
      {kQpPort, "rit", {}, {"sqd-sqd"}},
      {kQpAccessFlags,
       "ruit",
       {"reset-init"},
       {"init-init", "init-rtr", "rtr-rts", "rts-rts", "sqd-rts", "sqd-sqd"}},
      {kQpAccessFlags, "u", {}, {"sqe-rts"}},
      {kQpQkey,
       "d",
       {"reset-init"},
       {"init-init", "init-rtr", "rtr-rts", "rts-rts", "sqd-rts", "sqd-sqd", "sqe-rts"}},
      {kQpAv, "ruit", {"init-rtr"}, {"sqd-sqd"}},
      {kQpPathMtu, "ruit", {"init-rtr"}, {}},
      {kQpDestQpn, "ruit", {"init-rtr"}, {}},
      {kQpRqPsn, "ruit", {"init-rtr"}, {}},
      {kQpMaxDestRdAtomic, "rt", {"init-rtr"}, {"sqd-sqd"}},
      {kQpMinRnrTimer, "rt", {"init-rtr"}, {"rtr-rts", "rts-rts", "sqd-rts", "sqd-sqd"}},
      {kQpAltPath, "ruit", {}, {"init-rtr", "rtr-rts", "rts-rts", "sqd-rts", "sqd-sqd"}},
      {kQpPathMigState, "ruit", {}, {"rtr-rts", "rts-rts", "sqd-rts", "sqd-sqd"}},
      {kQpSqPsn, "rudit", {"rtr-rts"}, {}},
      {kQpTimeout, "rit", {"rtr-rts"}, {"sqd-sqd"}},
      {kQpRetryCnt, "ri", {"rtr-rts"}, {"sqd-sqd"}},
      {kQpRnrRetry, "ri", {"rtr-rts"}, {"sqd-sqd"}},
      {kQpMaxQpRdAtomic, "ri", {"rtr-rts"}, {"sqd-sqd"}},
      {kQpCurState, "rudit", {}, {"rtr-rts", "rts-rts", "sqd-rts"}},
      {kQpCurState, "ud", {}, {"sqe-rts"}},
      {kQpEnSqdAsyncNotify, "rudit", {}, {"rts-sqd"}},
      {kQpRateLimit, "", {}, {}},
      {kQpCap, "", {}, {}},
  };
  return kRules;
}

struct Wanted {
  bool exists = false;
  uint32_t required = 0, optional = 0;
};

char letter_of(QpType type) {
  switch (type) {
    case QpType::kRc:
      return 'r';
    case QpType::kUc:
      return 'u';
    case QpType::kGsi:
    case QpType::kUd:
      return 'd';
    case QpType::kRawPacket:
      return 'p';
    case QpType::kXrcInitiator:
      return 'i';
    case QpType::kXrcTarget:
      return 't';
  }
  return '?';
}

Wanted wanted(QpType type, QpState from, QpState to) {
  if (to == QpState::kReset || to == QpState::kErr) return {true, 0, 0};
  const std::string transition = name(from, to);
  Wanted sum{exists(type, transition), 0, 0};
  const char letter = letter_of(type);
  for (const Rule& rule : rules()) {
    if (rule.types.find(letter) == std::string::npos) continue;
    if (rule.required.contains(transition)) sum.required |= rule.attribute;
    if (rule.optional.contains(transition)) sum.optional |= rule.attribute;
  }
  return sum;
}

TEST(QpStates, FollowTheTable) {
  for (const QpType type : kTypes)
    for (const QpState from : kStates)
      for (const QpState to : kStates) {
        const Wanted rule = wanted(type, from, to);
        const std::string what = name(from, to) + " of type " + std::to_string(int(type));
        EXPECT_EQ(modify_is_legal(type, from, to, rule.required), rule.exists) << what;
        EXPECT_EQ(modify_is_legal(type, from, to, rule.required | rule.optional), rule.exists)
            << what;
        if (!rule.exists) continue;
        for (uint32_t bit = 0; bit < 32; ++bit) {
          const uint32_t one = 1u << bit;
          if (one == verbs::kQpState) continue;
          const bool allowed = ((rule.required | rule.optional) & one) != 0;
          EXPECT_EQ(modify_is_legal(type, from, to, rule.required | one), allowed)
              << what << ", with bit " << bit;
          const bool needed = (rule.required & one) != 0;
          EXPECT_EQ(modify_is_legal(type, from, to, rule.required & ~one), !needed)
              << what << ", without bit " << bit;
        }
      }
}

TEST(QpStates, KnowNoOtherStatesOrTypes) {
  for (const uint32_t state : {7u, 8u, 0xffffffffu})
    for (const QpState known : kStates) {
      EXPECT_FALSE(modify_is_legal(QpType::kRc, known, static_cast<QpState>(state), 0));
    }
  EXPECT_FALSE(modify_is_legal(static_cast<QpType>(7), QpState::kReset, QpState::kInit,
                               verbs::kQpPkeyIndex | verbs::kQpPort | verbs::kQpAccessFlags));
}

}  // namespace
}  // namespace vrdma::rdma
