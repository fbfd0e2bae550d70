// How an error crosses the admin API: errno <-> gRPC status code.
//
// The status message is the sentence, unchanged. The status code is for clients that know gRPC
// only; the errno itself travels as decimal text in the trailing metadata kErrnoKey, so that
// nothing is lost by the smaller set of codes.
#pragma once

namespace vrdma::api {

inline constexpr char kErrnoKey[] = "vrdma-errno";

// The gRPC status code (grpc::StatusCode as int, so that no gRPC header is needed here) that
// stands for a positive errno. Never OK.
[[nodiscard]] int status_code_of(int error);

// The errno that stands for a gRPC status code that came without kErrnoKey, that is from gRPC
// itself or from a daemon that is not ours.
[[nodiscard]] int errno_of(int status_code);

}  // namespace vrdma::api
