#include "api/keep_grpc.h"

#include <grpc/grpc.h>

#include <atomic>

namespace vrdma::api {

namespace {
std::atomic<bool> kept = false;
}  // namespace

void keep_grpc() {
  if (!kept.exchange(true)) grpc_init();
}

void release_grpc() {
  if (kept.exchange(false)) grpc_shutdown();
}

}  // namespace vrdma::api
