// The conversation of a hook with vrdmad (api/hook_wire.h).
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "api/hook_wire.h"
#include "core/base/error.h"
#include "core/base/fd.h"

namespace vrdma::cli::hook {

// Copies a text into an array of a message. ENAMETOOLONG: the sentence begins with `what`.
template <size_t kSize>
[[nodiscard]] base::Result<void> put_text(const std::string& text, char (&array)[kSize],
                                          const std::string& what) {
  if (text.size() >= kSize)
    return base::fail(ENAMETOOLONG,
                      what + " is longer than " + std::to_string(kSize - 1) + " characters");
  text.copy(array, text.size());
  return {};
}

class Daemon {
 public:
  // While there is no vrdmad, tries for `patience`: it may be restarting. ask() waits for at most
  // `wait`, which must be less than kTimeout (cli/hook/call.h).
  [[nodiscard]] static base::Result<Daemon> connect(const std::string& run_dir,
                                                    std::chrono::milliseconds patience,
                                                    std::chrono::seconds wait);

  // An answer without an error, whose texts are terminated, whose names are file names, and whose
  // path of sockets is absolute or, except after kSetUp, empty. ECONNRESET: vrdmad has ended.
  [[nodiscard]] base::Result<vrdma::hook::Answer> ask(const vrdma::hook::Request& request,
                                                      const std::vector<int>& fds = {}) const;

  // Has vrdmad log why the hook of `container` failed, because some runtimes hide what a hook
  // prints. Ends the conversation. Without effect where vrdmad has refused the container.
  void report(const std::string& container, const std::string& reason) const;

  // Closes this process's descriptor of the connection, and no other's.
  void leave() { socket_.reset(); }

 private:
  explicit Daemon(base::Fd socket) : socket_(std::move(socket)) {}
  base::Fd socket_;
};

}  // namespace vrdma::cli::hook
