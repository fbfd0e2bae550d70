#include "cli/kubernetes/node/directory_watch.h"

#include <sys/epoll.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <array>
#include <utility>

namespace vrdma::cli::kubernetes {

namespace {
constexpr uint32_t kEvents =
    IN_CREATE | IN_DELETE | IN_MOVE | IN_DELETE_SELF | IN_MOVE_SELF | IN_ONLYDIR;
}  // namespace

base::Result<std::unique_ptr<DirectoryWatch>> DirectoryWatch::open(
    base::EventLoop& loop, std::string path, std::function<void()> on_change) {
  base::Fd inotify(::inotify_init1(IN_NONBLOCK | IN_CLOEXEC));
  if (!inotify.valid()) return base::fail_errno("watch " + path);
  std::unique_ptr<DirectoryWatch> made(new DirectoryWatch(std::move(path), std::move(inotify)));
  auto watch = loop.watch(made->inotify_.get(), EPOLLIN,
                          [fd = made->inotify_.get(), then = std::move(on_change)](uint32_t) {
                            std::array<char, 4096> events{};  // of any content: then() looks
                            while (::read(fd, events.data(), events.size()) > 0) {
                            }
                            then();
                          });
  if (!watch) return base::pass(std::move(watch).error());
  made->watch_ = std::move(*watch);
  return made;
}

// inotify_add_watch(2) returns the number of the existing watch if the directory is the same, so
// that calling it each time finds a new one.
bool DirectoryWatch::look() {
  const int now = ::inotify_add_watch(inotify_.get(), path_.c_str(), kEvents);
  error_ = now < 0 ? errno : 0;
  const int before = std::exchange(watched_, now);
  if (now != before && before >= 0) ::inotify_rm_watch(inotify_.get(), before);
  return now != before;
}

}  // namespace vrdma::cli::kubernetes
