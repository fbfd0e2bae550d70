// A message of control with the descriptors beside it.
//
// Control and the worker agree on their order by the functions below. The worker checks their
// number, because a message that does not fit would give a session the wrong files.
#pragma once

#include <memory>
#include <vector>

#include "core/base/fd.h"
#include "core/base/shared_page.h"
#include "core/rdma/qp_numbers.h"
#include "core/rdma/traffic.h"
#include "vrdmad/records/furnisher.h"
#include "vrdmad/worker/messages.h"
#include "vrdmad/worker/vdevice_page.h"
#include "vrdmad/worker/worker_budgets.h"

namespace vrdma::vrdmad {

using Beside = std::vector<base::Fd>;

// What a vdevice shares with control beside the values of AddVdevice.
struct VdeviceParts {
  base::SharedPage<VdevicePage> page;  // where the worker counts
  base::SharedPage<rdma::FabricCounters> fabric;
  base::SharedPage<rdma::QpNumberTable> qp_numbers;
  WorkerBudgets::Page tenant_budget, parent_budget;
  base::Fd gsi;  // for RawGsi; none: not allowed
};

struct Parcel {
  ToWorker message;
  Beside beside;
};

// ENFILE: this process has no descriptors left.
[[nodiscard]] base::Result<Parcel> parcel(AddVdevice message, VdeviceParts parts);
[[nodiscard]] Parcel parcel(uint64_t vdevice, uint64_t connection, Arrival arrival);
// `answer`: without kit and error, which are those of `kit`.
[[nodiscard]] Parcel parcel(Kit answer, base::Result<SessionKit> kit);
[[nodiscard]] std::vector<Parcel> parcels(Furnisher::Adopted session);
// The same for a session that a worker has; its part of `message` is filled in.
[[nodiscard]] std::vector<Parcel> parcels(Furnisher::Adopted session, AttachSession message);

// EBADMSG or EPROTO: other descriptors came than belong to the message.
[[nodiscard]] base::Result<VdeviceParts> parts_of(Beside beside);
[[nodiscard]] base::Result<SessionKit> kit_of(const KitValues& values, Beside beside);
[[nodiscard]] base::Result<Furnisher::Adopted> session_of(const AdoptSession& message,
                                                          Broker& broker, Beside beside);

}  // namespace vrdma::vrdmad
