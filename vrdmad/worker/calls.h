// What there is to know of each call of the session protocol, in one row: when it is served, what
// may come beside it, and what of it another daemon needs. A call without a row does not compile.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>

#include "core/ipc/messages.h"
#include "vrdmad/records/session_image.h"

namespace vrdma::vrdmad {

struct CallTraits {
  enum Needs : uint8_t {
    kConnection,  // the session need not be open
    kSession,     // it must be, but the vdevice may have gone
    kVdevice,     // it must be, and the vdevice must be there
  };
  enum Beside : uint8_t { kNoFds, kFds, kFdsIfRaw };  // raw: kCreateQp for raw packets
  enum Effect : uint8_t {
    kNone,
    kMakes,    // an object: request and reply are kept, to be served again
    kChanges,  // an object
    kUndoes,   // a change: repeated, it fails with EINVAL, for it was done
    kRemoves,  // an object; the same
  };

  ipc::Call call;
  Needs needs;
  Beside beside;
  Effect effect;
  std::optional<Stored> stored;  // the record that it makes, changes or removes
  size_t request;                // size of its struct in Request; 0: it has none
  size_t reply;                  // and in Reply
  bool paced = false;            // by quota mr_rate
};

namespace calls {

using namespace ipc;  // NOLINT(google-build-using-namespace): names a table of ipc's structs
using enum ipc::Call;
using enum CallTraits::Needs;
using enum CallTraits::Beside;
using enum CallTraits::Effect;
using Kind = Stored;
template <class T>
constexpr size_t kSize = sizeof(T);
constexpr size_t kHandle = sizeof(ipc::HandleRequest);
static_assert(kHandle == sizeof(ipc::HandleReply));

// By number.
inline constexpr CallTraits kTable[] = {
    {kProbe, kConnection, kNoFds, kNone, {}, 0, kSize<ProbeReply>},
    {kHello, kConnection, kFds, kNone, {}, kSize<HelloRequest>, kSize<ChallengeReply>},
    {kGoodbye, kSession, kNoFds, kNone, {}, 0, 0},
    {kQueryDevice, kVdevice, kNoFds, kNone, {}, 0, kSize<DeviceReply>},
    {kQueryPort, kVdevice, kNoFds, kNone, {}, 0, kSize<PortReply>},
    {kQueryGids, kVdevice, kNoFds, kNone, {}, kSize<GidsRequest>, kSize<GidsReply>},
    {kAllocPd, kVdevice, kNoFds, kMakes, Kind::kPd, 0, kHandle},
    {kDeallocPd, kSession, kNoFds, kRemoves, Kind::kPd, kHandle, 0},
    {kRegMr, kVdevice, kNoFds, kMakes, Kind::kMr, kSize<RegMrRequest>, kSize<RegMrReply>, true},
    {kDeregMr, kSession, kNoFds, kRemoves, Kind::kMr, kHandle, 0},
    {kReregMr, kVdevice, kNoFds, kChanges, Kind::kMr, kSize<ReregMrRequest>, 0, true},
    {kAllocMw, kVdevice, kNoFds, kMakes, Kind::kMw, kSize<AllocMwRequest>, kSize<AllocMwReply>},
    {kImportDevice, kVdevice, kFds, kChanges, Kind::kExporter, 0, 0},
    {kImportPd, kVdevice, kNoFds, kMakes, Kind::kImportedPd, kHandle, kHandle},
    {kImportMr, kVdevice, kNoFds, kMakes, Kind::kImportedMr, kSize<ImportMrRequest>,
     kSize<RegMrReply>, true},
    {kDeallocMw, kSession, kNoFds, kRemoves, Kind::kMw, kHandle, 0},
    {kCreateChannel, kVdevice, kNoFds, kMakes, Kind::kChannel, 0, kSize<CreateChannelReply>},
    {kDestroyChannel, kSession, kNoFds, kRemoves, Kind::kChannel, kHandle, 0},
    {kCreateCq, kVdevice, kNoFds, kMakes, Kind::kCq, kSize<CreateCqRequest>, kSize<CreateCqReply>},
    {kResizeCq, kVdevice, kNoFds, kChanges, Kind::kCqSize, kSize<ResizeCqRequest>,
     kSize<CreateCqReply>},
    {kDestroyCq, kSession, kNoFds, kRemoves, Kind::kCq, kHandle, 0},
    {kCreateSrq, kVdevice, kNoFds, kMakes, Kind::kSrq, kSize<CreateSrqRequest>,
     kSize<CreateSrqReply>},
    {kModifySrq, kVdevice, kNoFds, kChanges, Kind::kSrqSize, kSize<ModifySrqRequest>, 0},
    {kQuerySrq, kVdevice, kNoFds, kNone, {}, kHandle, kSize<QuerySrqReply>},
    {kDestroySrq, kSession, kNoFds, kRemoves, Kind::kSrq, kHandle, 0},
    {kCreateQp, kVdevice, kFdsIfRaw, kMakes, Kind::kQp, kSize<CreateQpRequest>,
     kSize<CreateQpReply>},
    {kModifyQp, kVdevice, kNoFds, kChanges, Kind::kQpState, kSize<ModifyQpRequest>,
     kSize<ModifyQpReply>},
    {kQueryQp, kSession, kNoFds, kNone, {}, kHandle, kSize<QueryQpReply>},
    {kDestroyQp, kSession, kNoFds, kRemoves, Kind::kQp, kHandle, 0},
    {kCreateAh, kVdevice, kNoFds, kMakes, Kind::kAh, kSize<verbs::AddressVector>, kHandle},
    {kDestroyAh, kSession, kNoFds, kRemoves, Kind::kAh, kHandle, 0},
    {kAttachMcast, kVdevice, kNoFds, kChanges, Kind::kQpState, kSize<McastRequest>, 0},
    {kDetachMcast, kSession, kNoFds, kUndoes, Kind::kQpState, kSize<McastRequest>, 0},
    {kOpenXrcd, kVdevice, kFds, kMakes, Kind::kXrcd, kSize<OpenXrcdRequest>, kHandle},
    {kCloseXrcd, kSession, kNoFds, kRemoves, Kind::kXrcd, kHandle, 0},
    {kOpenQp, kVdevice, kNoFds, kMakes, Kind::kTarget, kSize<OpenQpRequest>, kSize<CreateQpReply>},
    {kCreateFlow, kVdevice, kNoFds, kMakes, Kind::kFlow, kSize<CreateFlowRequest>, kHandle},
    {kDestroyFlow, kSession, kNoFds, kRemoves, Kind::kFlow, kHandle, 0},
    {kResume, kVdevice, kNoFds, kNone, {}, kSize<ResumeRequest>, kSize<ResumeReply>},
    {kProve, kConnection, kNoFds, kNone, {}, 0, kSize<HelloReply>},
    {kHold, kSession, kNoFds, kNone, {}, kSize<HoldRequest>, kSize<HoldReply>},
    {kReach, kSession, kNoFds, kChanges, Kind::kMr, kSize<ReachRequest>, kSize<ReachReply>},
    {kShowMemory, kSession, kFds, kChanges, {}, kSize<ShowMemoryRequest>, 0},
};
constexpr bool is_whole() {
  for (size_t i = 0; i < std::size(kTable); ++i) {
    const CallTraits& row = kTable[i];
    if (static_cast<size_t>(row.call) != i + 1) return false;
    if (row.effect == kMakes && !row.stored) return false;
  }
  return std::size(kTable) == static_cast<size_t>(ipc::kLastCall);
}
static_assert(is_whole(), "each ipc::Call has a row, in the order of their numbers");

// Of a number that is no call.
inline constexpr CallTraits kUnknown{{}, kVdevice, kNoFds, kNone, {}, 0, 0};

}  // namespace calls

[[nodiscard]] constexpr const CallTraits& traits_of(ipc::Call call) {
  const size_t number = static_cast<uint32_t>(call);
  return number >= 1 && number <= std::size(calls::kTable) ? calls::kTable[number - 1]
                                                           : calls::kUnknown;
}

// The kind whose handles objects of `kind` share: what was imported is removed like what was made.
[[nodiscard]] constexpr Stored handles_of(Stored kind) {
  switch (kind) {
    case Stored::kImportedPd:
      return Stored::kPd;
    case Stored::kImportedMr:
      return Stored::kMr;
    case Stored::kTarget:
      return Stored::kQp;
    default:
      return kind;
  }
}

// What made the objects of a record; and what removes them.
[[nodiscard]] constexpr const CallTraits& maker_of(Stored kind) {
  return *std::find_if(std::begin(calls::kTable), std::end(calls::kTable),
                       [kind](const CallTraits& row) { return row.stored == kind; });
}
[[nodiscard]] constexpr const CallTraits& remover_of(Stored kind) {
  const Stored removed = handles_of(kind);
  return *std::find_if(std::begin(calls::kTable), std::end(calls::kTable),
                       [removed](const CallTraits& row) {
                         return row.stored == removed && row.effect == CallTraits::kRemoves;
                       });
}

}  // namespace vrdma::vrdmad
