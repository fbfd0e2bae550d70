// What a vdevice of a test shares with control.
#pragma once

#include "vrdmad/worker/parcel.h"

namespace vrdma::vrdmad {

inline VdeviceParts new_parts() {
  return {base::SharedPage<VdevicePage>::make("test").value(),
          base::SharedPage<rdma::FabricCounters>::make("test").value(),
          base::SharedPage<rdma::QpNumberTable>::make("test").value(),
          WorkerBudgets::Page::make("test").value(),
          WorkerBudgets::Page::make("test").value(),
          {}};
}

}  // namespace vrdma::vrdmad
