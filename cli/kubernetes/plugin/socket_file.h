// The sockets of a resource in the kubelet's directory.
//
// Each instance of the plugin has a socket under a name of its own, because a rolling update may
// run two instances at a time, and a new socket has a new name:
//
//   vrdma-small@1f2e3d4c.sock
//
// Of two instances the one with the younger socket serves. A file without a listener is stale.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "cli/kubernetes/plugin/registration.h"
#include "core/base/error.h"
#include "core/base/fd.h"
#include "core/serve/unix_path.h"

namespace vrdma::cli::kubernetes {

// The part of the name before the '@', of at most 46 characters.
[[nodiscard]] std::string socket_stem(const std::string& domain, const std::string& class_name);
[[nodiscard]] std::string socket_file_name(const std::string& stem, uint32_t random);
// Whether it is a socket_file_name() of the stem.
[[nodiscard]] bool is_socket_of(const std::string& stem, const std::string& file_name);

struct Instance {
  std::string file_name;
  int64_t made = 0;  // nanoseconds of the host's clock; a file of the same time is younger by name
};
[[nodiscard]] bool is_younger(const Instance& a, const Instance& b);

// A listening socket and its file, which the destructor removes unless it was replaced.
class SocketFile {
 public:
  // In `directory`, under the name of `random`. Errors: as serve::listen_at().
  [[nodiscard]] static base::Result<SocketFile> listen(const std::string& directory,
                                                       const std::string& stem, uint32_t random);
  SocketFile(SocketFile&& other) noexcept;
  SocketFile& operator=(SocketFile&&) = delete;
  ~SocketFile();

  // Its listener, once.
  [[nodiscard]] base::Fd take_listener() { return std::move(listener_); }
  [[nodiscard]] const std::string& name() const { return self_.file_name; }
  // Whether the file is still at its place.
  [[nodiscard]] bool in_place() const;
  [[nodiscard]] Younger younger() const;

 private:
  SocketFile(std::string directory, std::string stem, base::Fd listener, Instance self)
      : directory_(std::move(directory)),
        stem_(std::move(stem)),
        listener_(std::move(listener)),
        self_(std::move(self)) {}

  std::string directory_, stem_;
  base::Fd listener_;
  Instance self_;
  std::optional<serve::FileId> id_;
};

// Removes what killed instances left.
void remove_stale(const std::string& directory, const std::string& stem);

}  // namespace vrdma::cli::kubernetes
