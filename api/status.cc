#include "api/status.h"

#include <grpc/status.h>

#include <array>
#include <cerrno>

namespace vrdma::api {

namespace {

struct Pair {
  int error;
  int status_code;
};

// For each errno and each code, the first line that contains it applies.
constexpr std::array kPairs = {
    Pair{ENOENT, GRPC_STATUS_NOT_FOUND},
    Pair{ENODEV, GRPC_STATUS_NOT_FOUND},
    Pair{ESRCH, GRPC_STATUS_NOT_FOUND},
    Pair{EEXIST, GRPC_STATUS_ALREADY_EXISTS},
    Pair{EADDRINUSE, GRPC_STATUS_ALREADY_EXISTS},
    Pair{EINVAL, GRPC_STATUS_INVALID_ARGUMENT},
    Pair{ENOTUNIQ, GRPC_STATUS_INVALID_ARGUMENT},
    Pair{ENAMETOOLONG, GRPC_STATUS_INVALID_ARGUMENT},
    Pair{ERANGE, GRPC_STATUS_OUT_OF_RANGE},
    Pair{EBUSY, GRPC_STATUS_FAILED_PRECONDITION},
    Pair{EPERM, GRPC_STATUS_PERMISSION_DENIED},
    Pair{EACCES, GRPC_STATUS_PERMISSION_DENIED},
    Pair{ENOMEM, GRPC_STATUS_RESOURCE_EXHAUSTED},
    Pair{ENOSPC, GRPC_STATUS_RESOURCE_EXHAUSTED},
    Pair{EMFILE, GRPC_STATUS_RESOURCE_EXHAUSTED},
    Pair{ENFILE, GRPC_STATUS_RESOURCE_EXHAUSTED},
    Pair{EOPNOTSUPP, GRPC_STATUS_UNIMPLEMENTED},
    Pair{ENOSYS, GRPC_STATUS_UNIMPLEMENTED},
    Pair{ETIMEDOUT, GRPC_STATUS_DEADLINE_EXCEEDED},
    Pair{ECANCELED, GRPC_STATUS_CANCELLED},
    Pair{ECONNRESET, GRPC_STATUS_UNAVAILABLE},
    Pair{ESHUTDOWN, GRPC_STATUS_UNAVAILABLE},
    Pair{EAGAIN, GRPC_STATUS_UNAVAILABLE},
    Pair{EIO, GRPC_STATUS_INTERNAL},
};

}  // namespace

int status_code_of(int error) {
  for (const auto& pair : kPairs)
    if (pair.error == error) return pair.status_code;
  return GRPC_STATUS_INTERNAL;
}

int errno_of(int status_code) {
  for (const auto& pair : kPairs)
    if (pair.status_code == status_code) return pair.error;
  return EIO;
}

}  // namespace vrdma::api
