// Private extension of rsocket() for librspreload.so.
#pragma once

namespace vrdma::client {

// Flag in the type of a socket: only over a vdevice. ENODEV if the process's rdma_cm is the
// system's library (which itself answers ENOTSUP). That library makes its kernel calls like any
// program, so a preloaded library that served its sockets would recurse.
constexpr int kVdevicesOnly = 1 << 30;

}  // namespace vrdma::client
