#include "core/serve/unix_path.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

namespace vrdma::serve {

namespace {

constexpr int kWaiting = 16;  // clients that have not been accepted

struct Socket {
  base::Fd fd;
  sockaddr_un address{};

  [[nodiscard]] const sockaddr* generic() const {
    return reinterpret_cast<const sockaddr*>(&address);
  }
};

base::Result<Socket> socket_for(const std::string& path) {
  if (auto valid = check_path(path); !valid) return base::pass(std::move(valid).error());
  Socket made{base::Fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0))};
  if (!made.fd.valid()) return base::fail_errno("make a socket for " + path);
  made.address.sun_family = AF_UNIX;
  path.copy(made.address.sun_path, path.size());
  return made;
}

}  // namespace

base::Result<void> check_path(const std::string& path) {
  constexpr size_t kMost = sizeof sockaddr_un{}.sun_path - 1;
  if (path.empty()) return base::fail(EINVAL, "the path of a socket is empty");
  if (path.size() <= kMost) return {};
  return base::fail(ENAMETOOLONG, path + " is too long for a socket: it has " +
                                      std::to_string(path.size()) + " characters, and " +
                                      std::to_string(kMost) + " are possible");
}

base::Result<base::Fd> listen_at(const std::string& path) {
  auto made = socket_for(path);
  if (!made) return base::pass(std::move(made).error());
  const int fd = made->fd.get();
  if (::fchmod(fd, 0600) != 0) return base::fail_errno("set the mode of " + path);
  if (::bind(fd, made->generic(), sizeof made->address) != 0)
    return base::fail_errno("bind " + path);
  if (::listen(fd, kWaiting) != 0) return base::fail_errno("listen on " + path);
  return std::move(made->fd);
}

base::Result<void> give_socket(const std::string& path, uid_t user, gid_t group) {
  const base::Fd file(::open(path.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
  if (!file.valid()) return base::fail_errno("open " + path);
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) return base::fail_errno("look at " + path);
  if (!S_ISSOCK(status.st_mode) || status.st_nlink != 1)
    return base::fail(EEXIST, path +
                                  " is not the socket that was made there: another user writes to "
                                  "the directory; choose one of root's");
  if (::fchownat(file.get(), "", user, group, AT_EMPTY_PATH) != 0)
    return base::fail_errno("change the owner of " + path);
  return {};
}

base::Result<base::Fd> connect_to(const std::string& path) {
  auto made = socket_for(path);
  if (!made) return base::pass(std::move(made).error());
  if (::connect(made->fd.get(), made->generic(), sizeof made->address) != 0)
    return base::fail_errno("connect to " + path);
  return std::move(made->fd);
}

bool is_stale(const std::string& path) {
  const auto connection = connect_to(path);
  return !connection &&
         (connection.error().code() == ECONNREFUSED || connection.error().code() == ENOENT);
}

std::optional<FileId> file_at(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return {};
  return FileId{status.st_dev, status.st_ino, nanoseconds_of(status.st_ctim)};
}

}  // namespace vrdma::serve
