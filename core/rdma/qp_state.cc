#include "core/rdma/qp_state.h"

#include <array>

namespace vrdma::rdma {

using namespace verbs;  // NOLINT: the table below is nothing but its names

namespace {

constexpr uint8_t kRcBit = 1, kUcBit = 2, kUdBit = 4, kIniBit = 8, kTgtBit = 16, kRawBit = 32;
constexpr uint8_t kReliable = kRcBit | kIniBit | kTgtBit;
constexpr uint8_t kConnected = kReliable | kUcBit;
constexpr uint8_t kAllTypes = kConnected | kUdBit;  // beside raw packets
constexpr uint8_t kResponds = kRcBit | kTgtBit;     // reliably; the others never answer

struct Transition {
  uint8_t types;
  QpState from, to;
  uint32_t required, optional;
};

// What a connected queue pair may change on its way to RTS, and where it stands in SQD.
constexpr uint32_t kUsual = kQpCurState | kQpAccessFlags | kQpAltPath | kQpPathMigState;
constexpr uint32_t kMovable = kQpAv | kQpAltPath | kQpPathMigState | kQpAccessFlags | kQpPkeyIndex;

constexpr std::array kTransitions{
    Transition{kConnected, QpState::kReset, QpState::kInit, kQpPkeyIndex | kQpPort | kQpAccessFlags,
               0},
    Transition{kUdBit, QpState::kReset, QpState::kInit, kQpPkeyIndex | kQpPort | kQpQkey, 0},
    Transition{kRawBit, QpState::kReset, QpState::kInit, kQpPort, 0},
    Transition{kRawBit, QpState::kInit, QpState::kInit, 0, 0},
    Transition{kRawBit, QpState::kInit, QpState::kRtr, 0, 0},
    Transition{kRawBit, QpState::kRtr, QpState::kRts, 0, 0},
    Transition{kRawBit, QpState::kRts, QpState::kRts, 0, 0},
    Transition{kRawBit, QpState::kRts, QpState::kSqd, 0, 0},
    Transition{kRawBit, QpState::kSqd, QpState::kRts, 0, 0},
    Transition{kRawBit, QpState::kSqd, QpState::kSqd, 0, 0},
    Transition{kRawBit, QpState::kSqe, QpState::kRts, 0, 0},

    Transition{kConnected, QpState::kInit, QpState::kInit, 0,
               kQpPkeyIndex | kQpPort | kQpAccessFlags},
    Transition{kUdBit, QpState::kInit, QpState::kInit, 0, kQpPkeyIndex | kQpPort | kQpQkey},

    Transition{kResponds, QpState::kInit, QpState::kRtr,
               kQpAv | kQpPathMtu | kQpDestQpn | kQpRqPsn | kQpMaxDestRdAtomic | kQpMinRnrTimer,
               kQpAltPath | kQpAccessFlags | kQpPkeyIndex},
    Transition{kUcBit | kIniBit, QpState::kInit, QpState::kRtr,
               kQpAv | kQpPathMtu | kQpDestQpn | kQpRqPsn,
               kQpAltPath | kQpAccessFlags | kQpPkeyIndex},
    Transition{kUdBit, QpState::kInit, QpState::kRtr, 0, kQpPkeyIndex | kQpQkey},

    Transition{kRcBit, QpState::kRtr, QpState::kRts,
               kQpTimeout | kQpRetryCnt | kQpRnrRetry | kQpSqPsn | kQpMaxQpRdAtomic,
               kUsual | kQpMinRnrTimer},
    Transition{kIniBit, QpState::kRtr, QpState::kRts,
               kQpTimeout | kQpRetryCnt | kQpRnrRetry | kQpSqPsn | kQpMaxQpRdAtomic, kUsual},
    Transition{kTgtBit, QpState::kRtr, QpState::kRts, kQpTimeout | kQpSqPsn,
               kUsual | kQpMinRnrTimer},
    Transition{kUcBit, QpState::kRtr, QpState::kRts, kQpSqPsn, kUsual},
    Transition{kUdBit, QpState::kRtr, QpState::kRts, kQpSqPsn, kQpCurState | kQpQkey},

    Transition{kResponds, QpState::kRts, QpState::kRts, 0, kUsual | kQpMinRnrTimer},
    Transition{kUcBit | kIniBit, QpState::kRts, QpState::kRts, 0, kUsual},
    Transition{kUdBit, QpState::kRts, QpState::kRts, 0, kQpCurState | kQpQkey},

    Transition{kAllTypes, QpState::kRts, QpState::kSqd, 0, kQpEnSqdAsyncNotify},

    Transition{kResponds, QpState::kSqd, QpState::kRts, 0, kUsual | kQpMinRnrTimer},
    Transition{kUcBit | kIniBit, QpState::kSqd, QpState::kRts, 0, kUsual},
    Transition{kUdBit, QpState::kSqd, QpState::kRts, 0, kQpCurState | kQpQkey},

    Transition{kRcBit, QpState::kSqd, QpState::kSqd, 0,
               kMovable | kQpPort | kQpTimeout | kQpRetryCnt | kQpRnrRetry | kQpMaxQpRdAtomic |
                   kQpMaxDestRdAtomic | kQpMinRnrTimer},
    Transition{kIniBit, QpState::kSqd, QpState::kSqd, 0,
               kMovable | kQpPort | kQpTimeout | kQpRetryCnt | kQpRnrRetry | kQpMaxQpRdAtomic},
    Transition{kTgtBit, QpState::kSqd, QpState::kSqd, 0,
               kMovable | kQpPort | kQpTimeout | kQpMaxDestRdAtomic | kQpMinRnrTimer},
    Transition{kUcBit, QpState::kSqd, QpState::kSqd, 0, kMovable},
    Transition{kUdBit, QpState::kSqd, QpState::kSqd, 0, kQpPkeyIndex | kQpQkey},

    // A reliable queue pair never is in SQE: its errors lead to ERR.
    Transition{kUcBit, QpState::kSqe, QpState::kRts, 0, kQpCurState | kQpAccessFlags},
    Transition{kUdBit, QpState::kSqe, QpState::kRts, 0, kQpCurState | kQpQkey},
};

uint8_t bit_of(QpType type) {
  switch (type) {
    case QpType::kRc:
      return kRcBit;
    case QpType::kUc:
      return kUcBit;
    case QpType::kGsi:
    case QpType::kUd:
      return kUdBit;
    case QpType::kRawPacket:
      return kRawBit;
    case QpType::kXrcInitiator:
      return kIniBit;
    case QpType::kXrcTarget:
      return kTgtBit;
  }
  return 0;
}

}  // namespace

bool modify_is_legal(QpType type, QpState from, QpState to, uint32_t mask) {
  mask &= ~static_cast<uint32_t>(kQpState);
  if (to == QpState::kReset || to == QpState::kErr) return mask == 0;
  for (const auto& row : kTransitions) {
    if ((row.types & bit_of(type)) == 0 || row.from != from || row.to != to) continue;
    return (mask & row.required) == row.required && (mask & ~(row.required | row.optional)) == 0;
  }
  return false;
}

}  // namespace vrdma::rdma
