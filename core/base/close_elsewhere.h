// Closing descriptors on a thread of its own, for the last close of some takes as long as others
// like: a socket that lingers, a file of a FUSE server that does not answer, a packet socket, for
// whose users the kernel waits. Where there is no thread to be had it is done at once.
#pragma once

#include <vector>

#include "core/base/fd.h"

namespace vrdma::base {

void close_elsewhere(std::vector<Fd> fds);

}  // namespace vrdma::base
