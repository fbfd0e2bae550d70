// The streams of the admin API that last until the client goes: reactors of gRPC's callback API
// instead of blocked threads, so that a client's hang-up is noticed without polling. Each deletes
// itself when gRPC is done with it.
//
// Expensive to compile: only service.cc includes it.
#pragma once

#include <grpcpp/server_context.h>
#include <grpcpp/support/server_callback.h>
#include <vrdma/v1/admin.pb.h>

#include <string>

#include "api/status.h"
#include "core/base/error.h"
#include "vrdmad/admin/backend.h"

namespace vrdma::vrdmad {

template <class Context>
grpc::Status status_of(Context& context, const base::Error& error) {
  context.AddTrailingMetadata(api::kErrnoKey, std::to_string(error.code()));
  return {static_cast<grpc::StatusCode>(api::status_code_of(error.code())), error.message()};
}

// `backend` must outlive the stream.
[[nodiscard]] grpc::ServerWriteReactor<v1::WatchEvent>* watch_vdevs(
    AdminBackend& backend, grpc::CallbackServerContext& context);
[[nodiscard]] grpc::ServerWriteReactor<v1::Event>* watch_events(
    AdminBackend& backend, grpc::CallbackServerContext& context, EventRow::Time since);
[[nodiscard]] grpc::ServerWriteReactor<v1::ListClassesResponse>* watch_classes(
    AdminBackend& backend, grpc::CallbackServerContext& context);

}  // namespace vrdma::vrdmad
