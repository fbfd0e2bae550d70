#include "vrdmad/vdevice.h"

#include "vrdmad/session.h"

namespace vrdma::vrdmad {

Vdevice::Vdevice(provisioning::Ledger limits) : ledger(std::move(limits)) {}
Vdevice::~Vdevice() = default;

}  // namespace vrdma::vrdmad
