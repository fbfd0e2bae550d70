// The only line that the library prints: why an existing vdevice cannot be used.
#pragma once

namespace vrdma::client {

// Prints the errno of listing or opening a vdevice on stderr, once in a process. Prints nothing for
// 0, ENODEV or ENOENT (there is no vdevice), or if VRDMA_QUIET is 1. Any thread. Preserves errno.
void complain(int error);

}  // namespace vrdma::client
