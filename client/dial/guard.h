// Calls the functions of virtual.h from C: catches their exceptions and sets errno. None of them is
// a cancellation point.
//
// rdma-core's providers set errno for verbs that return it, and programs print it with perror(3).
// The functions of the data path (poll_cq, post_*, req_notify_cq) are called directly: they
// allocate nothing, and set errno themselves.
#pragma once

#include <cerrno>
#include <exception>
#include <type_traits>

#include "client/dial/uncancelled.h"

namespace vrdma::client {

template <auto Function>
struct Guard;

template <class Result, class... Args, Result (*Function)(Args...)>
struct Guard<Function> {
  static Result call(Args... args) {
    const Uncancelled whole;
    try {
      if constexpr (std::is_same_v<Result, int>) {
        const int error = Function(args...);
        if (error > 0) errno = error;
        return error;
      } else {
        return Function(args...);
      }
    } catch (const std::exception&) {
      errno = ENOMEM;
      if constexpr (std::is_pointer_v<Result>)
        return nullptr;
      else if constexpr (!std::is_void_v<Result>)
        return std::is_same_v<Result, int> ? ENOMEM : -ENOMEM;
    }
  }
};

template <auto Function>
inline constexpr auto guarded = &Guard<Function>::call;

}  // namespace vrdma::client

// Ends the function try block of an exported function: `int f() try { ... } VRDMA_OR_ENOMEM(-1)`.
#define VRDMA_OR_ENOMEM(result)   \
  catch (const std::exception&) { \
    errno = ENOMEM;               \
    return result;                \
  }
