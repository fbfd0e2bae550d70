// What librspreload.so asks of rsocket() beside rsocket(7).
#pragma once

namespace vrdma::client {

// In the type of a socket: only over a vdevice. ENODEV where this process's rdma_cm is the
// system's; that library itself answers ENOTSUP. Its sockets make the kernel's calls as any program
// does, so that a preloaded library which serves them would be asked for what it is asking.
constexpr int kVdevicesOnly = 1 << 30;

}  // namespace vrdma::client
