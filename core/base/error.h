// Errors that propagate: an errno for programs and a sentence for people.
//
// A function that can fail returns Result<T>. The sentence names the object and the reason; each
// caller may prepend context ("create vdevice red0: ..."). The caller that does not pass the error
// on prints it, once. Success allocates nothing.
#pragma once

#include <cerrno>
#include <cstring>
#include <string>
#include <tl/expected.hpp>
#include <utility>

namespace vrdma::base {

class Error {
 public:
  // `code` is a positive errno value. `message` is a sentence without a final full stop.
  Error(int code, std::string message) : code_(code), message_(std::move(message)) {}

  [[nodiscard]] int code() const { return code_; }
  [[nodiscard]] const std::string& message() const { return message_; }

  // The same error with "<what>: " prepended to its sentence.
  [[nodiscard]] Error in(const std::string& what) && {
    return {code_, what + ": " + std::move(message_)};
  }

 private:
  int code_;
  std::string message_;
};

template <class T>
using Result = tl::expected<T, Error>;

// A failure with the given sentence.
[[nodiscard]] inline tl::unexpected<Error> fail(int code, std::string message) {
  return tl::unexpected<Error>(Error(code, std::move(message)));
}

// A failed system call: `what` names the call and its object; the reason of errno is appended.
[[nodiscard]] inline tl::unexpected<Error> fail_errno(const std::string& what, int code = errno) {
  return fail(code, what + ": " + ::strerror(code));
}

// Passes an error on, with context prepended.
[[nodiscard]] inline tl::unexpected<Error> pass(Error error, const std::string& what) {
  return tl::unexpected<Error>(std::move(error).in(what));
}
[[nodiscard]] inline tl::unexpected<Error> pass(Error error) {
  return tl::unexpected<Error>(std::move(error));
}

}  // namespace vrdma::base
