// The kubelet's directory of plugins: when to look at it, and which kubelet.sock it has.
//
// inotify(7) reports changes at once. The directory may be absent, and may be replaced by another
// of the same name, which inotify does not follow: look() finds that, once a second.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "core/base/event_loop.h"
#include "core/base/fd.h"
#include "core/serve/unix_path.h"

namespace vrdma::cli::kubernetes {

class KubeletDirectory {
 public:
  // Calls `on_change` on `loop`, which must outlive the object, when files of the directory change.
  [[nodiscard]] static base::Result<std::unique_ptr<KubeletDirectory>> open(
      base::EventLoop& loop, std::string path, std::function<void()> on_change);

  // Follows the directory that the path leads to now.
  void look();

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] std::string kubelet_socket() const { return path_ + "/kubelet.sock"; }
  // As look() found it. Empty: there is no kubelet.
  [[nodiscard]] const std::optional<serve::FileId>& kubelet() const { return kubelet_; }
  // How often the kubelet was replaced by another.
  [[nodiscard]] uint64_t restarts() const { return restarts_; }

 private:
  KubeletDirectory(std::string path, base::Fd inotify)
      : path_(std::move(path)), inotify_(std::move(inotify)) {}

  const std::string path_;
  base::Fd inotify_;
  base::EventLoop::Watch watch_;
  int watched_ = -1;  // inotify's number of the directory; -1: there is none
  bool told_absent_ = false;
  std::optional<serve::FileId> kubelet_, known_;
  uint64_t restarts_ = 0;
};

}  // namespace vrdma::cli::kubernetes
