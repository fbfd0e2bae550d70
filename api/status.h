// How the admin API carries an errno: errno <-> gRPC status code.
//
// The status message is the sentence, unchanged. The status code is for clients that know only
// gRPC. The errno itself travels as decimal text in the trailing metadata kErrnoKey, because there
// are fewer codes than errnos.
#pragma once

namespace vrdma::api {

inline constexpr char kErrnoKey[] = "vrdma-errno";

// The gRPC status code for a positive errno (grpc::StatusCode as int, so that this header does not
// include gRPC's). Never OK.
[[nodiscard]] int status_code_of(int error);

// The errno for a gRPC status code without kErrnoKey, which comes from gRPC itself or from a
// foreign daemon.
[[nodiscard]] int errno_of(int status_code);

}  // namespace vrdma::api
