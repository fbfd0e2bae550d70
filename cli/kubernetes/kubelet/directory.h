// The kubelet's directory of plugins: when to look at it, and which kubelet.sock it has.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "cli/kubernetes/node/directory_watch.h"
#include "core/serve/unix_path.h"

namespace vrdma::cli::kubernetes {

class KubeletDirectory {
 public:
  // As DirectoryWatch::open().
  [[nodiscard]] static base::Result<std::unique_ptr<KubeletDirectory>> open(
      base::EventLoop& loop, std::string path, std::function<void()> on_change);

  // Follows the directory that the path leads to now.
  void look();

  [[nodiscard]] const std::string& path() const { return watch_->path(); }
  [[nodiscard]] std::string kubelet_socket() const { return path() + "/kubelet.sock"; }
  // As look() found it. Empty: there is no kubelet.
  [[nodiscard]] const std::optional<serve::FileId>& kubelet() const { return kubelet_; }
  // How often the kubelet was replaced by another.
  [[nodiscard]] uint64_t restarts() const { return restarts_; }

 private:
  explicit KubeletDirectory(std::unique_ptr<DirectoryWatch> watch) : watch_(std::move(watch)) {}

  std::unique_ptr<DirectoryWatch> watch_;
  bool told_absent_ = false;
  std::optional<serve::FileId> kubelet_, known_;
  uint64_t restarts_ = 0;
};

}  // namespace vrdma::cli::kubernetes
