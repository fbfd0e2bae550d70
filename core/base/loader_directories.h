// The directories that the loader of this architecture searches without configuration (ld.so(8)),
// as Debian and other distributions build it; the most frequent ones are first.
#pragma once

#if defined(__x86_64__)
#define VRDMA_MULTIARCH "x86_64-linux-gnu"
#elif defined(__aarch64__)
#define VRDMA_MULTIARCH "aarch64-linux-gnu"
#endif

namespace vrdma::base {

inline constexpr const char* kLoaderDirectories[] = {
    "/usr/lib/" VRDMA_MULTIARCH,
    "/lib/" VRDMA_MULTIARCH,
    "/usr/lib64",
    "/lib64",
    "/usr/lib",
    "/lib",
};

}  // namespace vrdma::base
