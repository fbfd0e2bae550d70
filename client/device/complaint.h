// The only lines that the library prints: why an existing vdevice cannot be used, and which of its
// environment variables has a value without a meaning.
#pragma once

namespace vrdma::client {

// Prints the errno of listing or opening a vdevice on stderr, once in a process. Prints nothing for
// 0, ENODEV or ENOENT (there is no vdevice), or if VRDMA_QUIET is 1. Any thread. Preserves errno.
void complain(int error);

// Prints "vrdma: NAME is 'VALUE': WHAT" on stderr, or nothing if VRDMA_QUIET is 1. The caller says
// it once in a process. Any thread. Preserves errno.
void complain_of_variable(const char* name, const char* value, const char* what);

}  // namespace vrdma::client
