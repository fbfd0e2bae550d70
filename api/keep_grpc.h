// A process that serves by gRPC again and again keeps gRPC's library in between.
//
// The library ends with its last server or channel, and its end waits for its threads. After a
// write that had to wait for the socket (an answer of some 200 KiB), one of them waits in
// epoll_wait(2) for up to 10 s, and nothing ends it sooner (gRPC 1.51: the "backup poller" of
// tcp_posix.cc). A caller that starts a server meanwhile waits too: grpc_init() and the end of the
// library hold the same lock.
//
// Any thread.
#pragma once

#include <chrono>

namespace vrdma::api {

// Starts the threads of gRPC. Until release_grpc(), or until the process ends, whose exit does not
// wait for them.
void keep_grpc();

// The end of the library does not wait if the last server ended this long ago.
inline constexpr auto kGrpcEndsAfter = std::chrono::seconds(12);
// Ends the library, unless there is a server or a channel. Without it, one of the threads wakes up
// twice a second.
void release_grpc();

}  // namespace vrdma::api
