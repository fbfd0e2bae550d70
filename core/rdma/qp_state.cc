#include "core/rdma/qp_state.h"

#include <array>

namespace vrdma::rdma {

using namespace verbs;  // NOLINT: the table below is nothing but its names

namespace {

constexpr uint8_t kRcBit = 1, kUcBit = 2, kUdBit = 4;
constexpr uint8_t kConnected = kRcBit | kUcBit;
constexpr uint8_t kAllTypes = kConnected | kUdBit;

struct Transition {
  uint8_t types;
  QpState from, to;
  uint32_t required, optional;
};

constexpr uint32_t kPath = kQpAltPath | kQpPathMigState;

constexpr std::array kTransitions{
    Transition{kConnected, QpState::kReset, QpState::kInit, kQpPkeyIndex | kQpPort | kQpAccessFlags,
               0},
    Transition{kUdBit, QpState::kReset, QpState::kInit, kQpPkeyIndex | kQpPort | kQpQkey, 0},

    Transition{kConnected, QpState::kInit, QpState::kInit, 0,
               kQpPkeyIndex | kQpPort | kQpAccessFlags},
    Transition{kUdBit, QpState::kInit, QpState::kInit, 0, kQpPkeyIndex | kQpPort | kQpQkey},

    Transition{kRcBit, QpState::kInit, QpState::kRtr,
               kQpAv | kQpPathMtu | kQpDestQpn | kQpRqPsn | kQpMaxDestRdAtomic | kQpMinRnrTimer,
               kQpAltPath | kQpAccessFlags | kQpPkeyIndex},
    Transition{kUcBit, QpState::kInit, QpState::kRtr, kQpAv | kQpPathMtu | kQpDestQpn | kQpRqPsn,
               kQpAltPath | kQpAccessFlags | kQpPkeyIndex},
    Transition{kUdBit, QpState::kInit, QpState::kRtr, 0, kQpPkeyIndex | kQpQkey},

    Transition{kRcBit, QpState::kRtr, QpState::kRts,
               kQpTimeout | kQpRetryCnt | kQpRnrRetry | kQpSqPsn | kQpMaxQpRdAtomic,
               kQpCurState | kQpAccessFlags | kQpMinRnrTimer | kPath},
    Transition{kUcBit, QpState::kRtr, QpState::kRts, kQpSqPsn,
               kQpCurState | kQpAccessFlags | kPath},
    Transition{kUdBit, QpState::kRtr, QpState::kRts, kQpSqPsn, kQpCurState | kQpQkey},

    Transition{kRcBit, QpState::kRts, QpState::kRts, 0,
               kQpCurState | kQpAccessFlags | kQpMinRnrTimer | kPath | kQpRateLimit},
    Transition{kUcBit, QpState::kRts, QpState::kRts, 0,
               kQpCurState | kQpAccessFlags | kPath | kQpRateLimit},
    Transition{kUdBit, QpState::kRts, QpState::kRts, 0, kQpCurState | kQpQkey | kQpRateLimit},

    Transition{kAllTypes, QpState::kRts, QpState::kSqd, 0, kQpEnSqdAsyncNotify},

    Transition{kRcBit, QpState::kSqd, QpState::kRts, 0,
               kQpCurState | kQpAccessFlags | kQpMinRnrTimer | kPath},
    Transition{kUcBit, QpState::kSqd, QpState::kRts, 0, kQpCurState | kQpAccessFlags | kPath},
    Transition{kUdBit, QpState::kSqd, QpState::kRts, 0, kQpCurState | kQpQkey},

    Transition{kRcBit, QpState::kSqd, QpState::kSqd, 0,
               kQpPort | kQpAv | kQpTimeout | kQpRetryCnt | kQpRnrRetry | kQpMaxQpRdAtomic |
                   kQpMaxDestRdAtomic | kPath | kQpAccessFlags | kQpPkeyIndex | kQpMinRnrTimer},
    Transition{kUcBit, QpState::kSqd, QpState::kSqd, 0,
               kQpAv | kPath | kQpAccessFlags | kQpPkeyIndex},
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
    case QpType::kUd:
      return kUdBit;
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
