#include "cli/kubernetes/plugin/plugin.h"

#include <chrono>

#include "core/base/log.h"

namespace vrdma::cli::kubernetes {

namespace {
constexpr auto kTick = std::chrono::seconds(1);
}  // namespace

Plugin::Plugin(base::EventLoop& loop, const Places& places)
    : loop_(loop), domain_(places.domain), cdi_(places.cdi) {}

base::Result<std::unique_ptr<Plugin>> Plugin::start(base::EventLoop& loop, const Places& places) {
  std::unique_ptr<Plugin> made(new Plugin(loop, places));
  auto* const raw = made.get();
  auto directory = KubeletDirectory::open(loop, places.kubelet_dir, [raw] { raw->look(); });
  if (!directory) return base::pass(std::move(directory).error());
  made->directory_ = std::move(*directory);
  made->watch_ = std::make_unique<ClassWatch>(
      loop, places.run_dir, [raw](const auto& classes) { raw->on_classes(classes); },
      [raw](const std::string& why) { raw->on_lost(why); });
  made->tick();
  return made;
}

void Plugin::on_classes(const v1::ListClassesResponse& classes) {
  classes_.received(classes);
  update();
}

void Plugin::on_lost(const std::string& why) {
  classes_.lost(why);
  update();
}

void Plugin::tick() {
  update();
  look();
  for (auto& [name, resource] : resources_) resource->tell();
  timer_ = loop_.after(kTick, [this] { tick(); });
}

void Plugin::look() {
  directory_->look();
  for (auto& [name, resource] : resources_) resource->look();
}

void Plugin::update() {
  cdi_.look();
  for (const auto& [name, news] : classes_.all()) {
    auto& resource = resources_[name];
    const bool is_new = !resource;
    if (is_new) {
      auto made = Resource::create(loop_, *directory_, domain_, name);
      if (!made) {
        base::log_warning(made.error().message());
        resources_.erase(name);
        continue;
      }
      resource = std::move(*made);
    }
    resource->update(news, cdi_.problem(name));
    if (is_new) resource->look();  // the next look at all may be a second away
  }
}

PluginStatus Plugin::status() const {
  PluginStatus status;
  status.not_ready = classes_.unreachable();
  status.kubelet_restarts = directory_->restarts();
  for (const auto& [name, resource] : resources_) {
    status.resources.push_back(resource->status());
    const auto& latest = status.resources.back();
    if (status.not_ready.empty() && !latest.not_ready.empty())
      status.not_ready = latest.resource + ": " + latest.not_ready;
  }
  return status;
}

}  // namespace vrdma::cli::kubernetes
