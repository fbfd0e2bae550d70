// The one line that the library prints: why a vdevice that is there cannot be used.
#pragma once

namespace vrdma::client {

// `error` is the errno of listing or opening a vdevice. A line on stderr at the first call in this
// process that has an error; nothing if that says that there is no vdevice (0, ENODEV, ENOENT), or
// if VRDMA_QUIET is 1. Any thread. errno stays.
void complain(int error);

}  // namespace vrdma::client
