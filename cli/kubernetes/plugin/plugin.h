// The device plugin of a node: a resource for each class of vrdmad.
//
// Nothing is remembered across a restart. A second is the longest time in which a change is
// noticed: vrdmad and inotify(7) report most at once, and a timer looks at files.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "cli/kubernetes/kubelet/directory.h"
#include "cli/kubernetes/node/cdi_file.h"
#include "cli/kubernetes/node/class_table.h"
#include "cli/kubernetes/node/class_watch.h"
#include "cli/kubernetes/plugin/resource.h"
#include "core/base/event_loop.h"

namespace vrdma::cli::kubernetes {

struct PluginStatus {
  std::string not_ready;  // why the node's resources are not all there; empty: they are
  uint64_t kubelet_restarts = 0;
  std::vector<ResourceStatus> resources;  // by class
};

class Plugin {
 public:
  struct Places {
    std::string run_dir, kubelet_dir, cdi, domain;
  };
  // `loop` must outlive the plugin.
  [[nodiscard]] static base::Result<std::unique_ptr<Plugin>> start(base::EventLoop& loop,
                                                                   const Places& places);
  Plugin(const Plugin&) = delete;
  Plugin& operator=(const Plugin&) = delete;

  [[nodiscard]] PluginStatus status() const;

 private:
  Plugin(base::EventLoop& loop, const Places& places);
  void on_classes(const v1::ListClassesResponse& classes);
  void on_lost(const std::string& why);
  void tick();
  void look();
  void update();

  base::EventLoop& loop_;
  const std::string domain_;
  CdiFile cdi_;
  ClassTable classes_;
  std::unique_ptr<KubeletDirectory> directory_;
  std::map<std::string, std::unique_ptr<Resource>> resources_;
  base::EventLoop::Timer timer_;
  std::unique_ptr<ClassWatch> watch_;  // last: calls the plugin
};

}  // namespace vrdma::cli::kubernetes
