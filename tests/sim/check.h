// What must hold. Each function throws Failure with a sentence.
#pragma once

#include "tests/sim/life.h"
#include "tests/sim/model.h"

namespace vrdma::sim {

// At any time between two calls: what was acknowledged is there, what has ended is not, no GID is
// twice in a fabric.
void check_promises(Life& life, Model& model);

// While nothing is on its way (Life::at_rest()): workers, watchers, budgets, sockets and
// directories have what the vdevices have, and each vdevice what its link has. `long_enough`: all
// has been well for longer than the daemon's longest pause, so nothing is lost that could be
// restored.
void check_agreement(Life& life, Model& model, Host& host, bool long_enough);

}  // namespace vrdma::sim
