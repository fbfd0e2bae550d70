#include "cli/kubernetes/kubelet/directory.h"

#include <sys/epoll.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <array>

#include "core/base/log.h"

namespace vrdma::cli::kubernetes {

namespace {
constexpr uint32_t kEvents =
    IN_CREATE | IN_DELETE | IN_MOVE | IN_DELETE_SELF | IN_MOVE_SELF | IN_ONLYDIR;
}  // namespace

base::Result<std::unique_ptr<KubeletDirectory>> KubeletDirectory::open(
    base::EventLoop& loop, std::string path, std::function<void()> on_change) {
  base::Fd inotify(::inotify_init1(IN_NONBLOCK | IN_CLOEXEC));
  if (!inotify.valid()) return base::fail_errno("watch " + path);
  std::unique_ptr<KubeletDirectory> made(new KubeletDirectory(std::move(path), std::move(inotify)));
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
void KubeletDirectory::look() {
  const int now = ::inotify_add_watch(inotify_.get(), path_.c_str(), kEvents);
  if (now < 0 && !told_absent_)
    base::log_warning("waiting for the kubelet's directory " + path_ + ": " + ::strerror(errno));
  told_absent_ = now < 0;
  if (now != watched_ && watched_ >= 0) ::inotify_rm_watch(inotify_.get(), watched_);
  watched_ = now;
  kubelet_ = serve::file_at(kubelet_socket());
  if (!kubelet_ || kubelet_ == known_) return;
  if (known_) ++restarts_;
  known_ = kubelet_;
}

}  // namespace vrdma::cli::kubernetes
