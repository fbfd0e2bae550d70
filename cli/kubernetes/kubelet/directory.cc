#include "cli/kubernetes/kubelet/directory.h"

#include "core/base/log.h"

namespace vrdma::cli::kubernetes {

base::Result<std::unique_ptr<KubeletDirectory>> KubeletDirectory::open(
    base::EventLoop& loop, std::string path, std::function<void()> on_change) {
  auto watch = DirectoryWatch::open(loop, std::move(path), std::move(on_change));
  if (!watch) return base::pass(std::move(watch).error());
  return std::unique_ptr<KubeletDirectory>(new KubeletDirectory(std::move(*watch)));
}

void KubeletDirectory::look() {
  watch_->look();
  if (watch_->error() != 0 && !told_absent_)
    base::log_warning("waiting for the kubelet's directory " + path() + ": " +
                      ::strerror(watch_->error()));
  told_absent_ = watch_->error() != 0;
  kubelet_ = serve::file_at(kubelet_socket());
  if (!kubelet_ || kubelet_ == known_) return;
  if (known_) ++restarts_;
  known_ = kubelet_;
}

}  // namespace vrdma::cli::kubernetes
