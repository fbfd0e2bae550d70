#include "cli/kubernetes/node/cdi_file.h"

#include <nlohmann/json.hpp>

#include "cli/kubernetes/node/json.h"
#include "cli/kubernetes/node/text_file.h"
#include "core/base/file_change.h"

namespace vrdma::cli::kubernetes {

namespace {

using Json = nlohmann::json;

constexpr size_t kLargest = 1 << 20;
constexpr char kAdvice[] = ": run vrdmactl cdi generate";

bool can_run(const std::string& program) {
  struct stat status {};
  return ::stat(program.c_str(), &status) == 0 && S_ISREG(status.st_mode) &&
         (status.st_mode & 0111) != 0;
}

}  // namespace

base::Result<CdiDevices> parse_cdi(const std::string& text) {
  const Json all = Json::parse(text, nullptr, false);
  if (all.is_discarded()) return base::fail(EINVAL, "it is not JSON");
  if (!member(all, "devices").is_array()) return base::fail(EINVAL, "it has no list of devices");
  CdiDevices devices;
  for (const auto& device : member(all, "devices")) {
    if (!member(device, "name").is_string()) continue;
    auto& programs = devices[member(device, "name").get<std::string>()];
    const Json& hooks = member(member(device, "containerEdits"), "hooks");
    if (!hooks.is_array()) continue;
    for (const auto& hook : hooks)
      if (member(hook, "path").is_string()) programs.insert(member(hook, "path"));
  }
  return devices;
}

void CdiFile::look() {
  struct stat now {};
  if (::stat(path_.c_str(), &now) != 0) {
    devices_ = base::fail(errno, errno == ENOENT ? "it does not exist" : ::strerror(errno));
    seen_.reset();
    return;
  }
  if (seen_ && base::is_unchanged(*seen_, now)) return;
  seen_ = now;
  if (!S_ISREG(now.st_mode)) {
    devices_ = base::fail(EINVAL, "it is not a regular file");
    return;
  }
  const auto text = read_text_file(path_, kLargest);
  devices_ = text ? parse_cdi(*text) : base::pass(text.error());
}

std::string CdiFile::problem(const std::string& name) const {
  if (!devices_) return "CDI file " + path_ + ": " + devices_.error().message() + kAdvice;
  const auto device = devices_->find(name);
  if (device == devices_->end())
    return "CDI file " + path_ + " has no device '" + name + "'" + kAdvice;
  if (device->second.empty())
    return "CDI file " + path_ + ": device '" + name + "' has no hook" + kAdvice;
  for (const auto& program : device->second)
    if (!can_run(program))
      return "the hook " + program + " of CDI file " + path_ + " is not an executable file";
  return {};
}

std::string CdiFile::hook() const {
  if (devices_)
    for (const auto& [name, programs] : *devices_)
      if (!programs.empty()) return *programs.begin();
  return {};
}

}  // namespace vrdma::cli::kubernetes
