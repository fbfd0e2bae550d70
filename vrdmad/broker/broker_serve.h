// The broker process: serves the requests of control and of workers by a LocalBroker.
#pragma once

#include "core/base/fd.h"
#include "vrdmad/broker/broker_place.h"
#include "vrdmad/broker/child_process.h"

namespace vrdma::vrdmad::broker {

// Serves at most `channels` channels, which BrokerProcess::attach() sends over `life`, until the
// daemon has ended. Calls `confine` first, with all capabilities of the process, when it has opened
// the program of workers and their network namespace.
[[noreturn]] void serve(base::Fd life, const BrokerPlace& place, unsigned channels,
                        const Confine& confine);

}  // namespace vrdma::vrdmad::broker
