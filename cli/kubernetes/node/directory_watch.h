// Tells when files of a directory change.
//
// inotify(7) reports changes at once. The directory may be absent, and may be replaced by another
// of the same name, which inotify does not follow: look() finds that, once a second.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "core/base/event_loop.h"
#include "core/base/fd.h"

namespace vrdma::cli::kubernetes {

class DirectoryWatch {
 public:
  // Calls `on_change` on `loop`, which must outlive the object, when files of the directory come,
  // go or are renamed.
  [[nodiscard]] static base::Result<std::unique_ptr<DirectoryWatch>> open(
      base::EventLoop& loop, std::string path, std::function<void()> on_change);

  // Follows the directory that the path leads to now. True: it is another than before.
  bool look();
  // Why it is not watched, an errno; 0: it is. As look() found it.
  [[nodiscard]] int error() const { return error_; }
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  DirectoryWatch(std::string path, base::Fd inotify)
      : path_(std::move(path)), inotify_(std::move(inotify)) {}

  const std::string path_;
  base::Fd inotify_;
  base::EventLoop::Watch watch_;
  int watched_ = -1;  // inotify's number of the directory; -1: there is none
  int error_ = 0;
};

}  // namespace vrdma::cli::kubernetes
