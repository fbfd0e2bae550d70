// Workers that an earlier broker has started, and that have not ended.
//
// A broker that is killed takes its workers with it (PR_SET_PDEATHSIG), but a thread of one that is
// in the kernel then, copying to a program's memory, ends when it gets a processor. The next worker
// may have done the same by then, and the program have gone on: the late copy would overwrite what
// it has now. So no worker is started before the earlier ones have ended.
#pragma once

#include <chrono>

#include "core/base/fd.h"

namespace vrdma::vrdmad {

// Kills the processes whose root directory is `root`, which is that of workers alone, and waits for
// the end of each and of all its threads; not longer than `patience`, because a thread may hang in
// a program's memory. It copies at most the page that it has in hand.
void end_earlier_workers(const base::Fd& root, std::chrono::milliseconds patience);

}  // namespace vrdma::vrdmad
