// The calls of the C API, based on api::Client.
#include <infiniband/verbs.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <memory>
#include <string>

#include "api/client.h"
#include "api/libvrdma.h"

namespace vrdma::api {

namespace {

// Runs `work` with a connected client. The connection, and gRPC with it, ends with the call.
template <class T, class Work>
T call(T failed, Work work) noexcept {
  return guarded(failed, [&]() -> base::Result<T> {
    if (auto ok = check_not_forked(); !ok) return base::pass(std::move(ok).error());
    const NoSignals no_signals;
    const InUse in_use;
    auto client = Client::connect(default_run_dir());
    if (!client) return base::pass(std::move(client).error());
    return work(*client);
  });
}

// Reduces an answer to success or failure.
template <class T>
base::Result<int> done(const base::Result<T>& result) {
  if (!result) return base::pass(result.error());
  return 0;
}

bool is_same_file(const struct stat& a, const std::string& path) {
  struct stat b {};
  return ::stat(path.c_str(), &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

// This thread's network namespace as vrdmad names it: the name from ip-netns(8), which stays valid
// across a restart, or else a process that is in it.
base::Result<std::string> own_netns() {
  struct stat own {};
  if (::stat("/proc/thread-self/ns/net", &own) != 0)
    return base::fail_errno("examine this thread's network namespace");
  std::error_code ignored;
  for (auto it = std::filesystem::directory_iterator("/run/netns", ignored);
       it != std::filesystem::directory_iterator(); it.increment(ignored))
    if (is_same_file(own, it->path())) return it->path().filename().string();
  if (is_same_file(own, "/proc/1/ns/net")) return std::string("pid:1");
  return "pid:" + std::to_string(::gettid());
}

const char* or_empty(const char* text) { return text != nullptr ? text : ""; }

template <class Request>
base::Result<void> add_limits(const vrdma_limit* limits, size_t count, Request& request) {
  if (limits == nullptr && count > 0) return base::fail(EINVAL, "the limits are a null pointer");
  for (size_t i = 0; i < count; ++i) {
    if (limits[i].kind == nullptr) return base::fail(EINVAL, "a limit has no kind");
    auto& setting = *request.add_quota();
    setting.set_kind(limits[i].kind);
    setting.set_limit(limits[i].limit);
  }
  return {};
}

// The part of `given` that the program fills in; the rest has defaults.
base::Result<vrdma_vdevice_spec> known_part(const vrdma_vdevice_spec* given) {
  vrdma_vdevice_spec spec{};
  if (given == nullptr) return base::fail(EINVAL, "the specification is a null pointer");
  if (given->size < offsetof(vrdma_vdevice_spec, netns) || given->size > sizeof spec)
    return base::fail(EINVAL, "the specification's size is " + std::to_string(given->size) +
                                  " bytes, and must be " +
                                  std::to_string(offsetof(vrdma_vdevice_spec, netns)) + " to " +
                                  std::to_string(sizeof spec));
  std::memcpy(&spec, given, given->size);
  if (spec.name == nullptr || spec.netdev == nullptr)
    return base::fail(EINVAL, "a vdevice needs a name and a netdev");
  return spec;
}

base::Result<v1::CreateVdevRequest> to_request(const vrdma_vdevice_spec& spec) {
  v1::CreateVdevRequest request;
  request.set_name(spec.name);
  request.set_netdev(spec.netdev);
  base::Result<std::string> netns = or_empty(spec.netns);
  if (spec.netns == nullptr) netns = own_netns();
  if (!netns) return base::pass(std::move(netns).error());
  request.set_netns(*netns);
  request.set_parent(or_empty(spec.parent));
  request.set_tenant(or_empty(spec.tenant));
  request.set_fabric(or_empty(spec.fabric));
  if (auto ok = add_limits(spec.quota, spec.quota_count, request); !ok)
    return base::pass(std::move(ok).error());
  if (spec.allow == nullptr && spec.allow_count > 0)
    return base::fail(EINVAL, "the permissions are a null pointer");
  for (size_t i = 0; i < spec.allow_count; ++i) request.add_allow(or_empty(spec.allow[i]));
  if (spec.labels == nullptr && spec.label_count > 0)
    return base::fail(EINVAL, "the labels are a null pointer");
  for (size_t i = 0; i < spec.label_count; ++i)
    (*request.mutable_labels())[or_empty(spec.labels[i].key)] = or_empty(spec.labels[i].value);
  if (spec.owner_pid != 0) {
    request.mutable_owner()->set_pid(spec.owner_pid);
    request.mutable_owner()->set_start_time(spec.owner_start_time);
  }
  request.set_end_with_owner(spec.end_with_owner != 0);
  request.set_if_absent(spec.if_absent != 0);
  return request;
}

// A reference to the vdevice that the caller means: that of its own namespace, if there is one.
std::string meant(Client& client, const char* given) {
  const std::string name = or_empty(given);
  if (name.empty() || name.find_first_of("/:") != std::string::npos) return name;
  const auto netns = own_netns();
  if (!netns) return name;
  const auto own = client.get_vdev(*netns + "/" + name);
  return own ? "id:" + std::to_string(own->id()) : name;
}

}  // namespace

}  // namespace vrdma::api

using vrdma::api::call;
using vrdma::api::Client;
using vrdma::base::Result;

int vrdma_create_vdevice(const vrdma_vdevice_spec* given) {
  return call(-1, [&](Client& client) -> Result<int> {
    auto spec = vrdma::api::known_part(given);
    if (!spec) return vrdma::base::pass(std::move(spec).error());
    auto request = vrdma::api::to_request(*spec);
    if (!request) return vrdma::base::pass(std::move(request).error());
    return vrdma::api::done(client.create_vdev(*request));
  });
}

int ibv_create_virtual_ibdev(const char* parent, const char* netdev, const char* name) {
  vrdma_vdevice_spec spec = VRDMA_VDEVICE_SPEC_INIT;
  spec.name = name;
  spec.netdev = netdev;
  spec.parent = parent;
  return vrdma_create_vdevice(&spec);
}

int ibv_destroy_virtual_ibdev(const char* name) {
  return call(-1, [&](Client& client) {
    return vrdma::api::done(client.delete_vdev(vrdma::api::meant(client, name)));
  });
}

int ibv_provision_resources(const char* name, const vrdma_limit* limits, size_t count) {
  return call(-1, [&](Client& client) -> Result<int> {
    vrdma::v1::SetQuotaRequest request;
    request.set_name(vrdma::api::meant(client, name));
    if (count == 0) return vrdma::base::fail(EINVAL, "no limit is given");
    if (auto ok = vrdma::api::add_limits(limits, count, request); !ok)
      return vrdma::base::pass(std::move(ok).error());
    return vrdma::api::done(client.set_quota(request));
  });
}

// The kernel's devices have a directory in sysfs. A vdevice's entry has none, so that no library
// takes it for a kernel device.
int ibv_get_device_type(const ibv_device* device) {
  if (device == nullptr) {
    vrdma::api::set_last_error(EINVAL, "the device is a null pointer");
    return -1;
  }
  return device->ibdev_path[0] == '\0' ? VRDMA_DEVICE_VIRTUAL : VRDMA_DEVICE_PHYSICAL;
}

vrdma_vdevice** vrdma_get_vdevice_list(size_t* count) {
  return call(static_cast<vrdma_vdevice**>(nullptr),
              [&](Client& client) -> Result<vrdma_vdevice**> {
                auto vdevs = client.list_vdevs();
                if (!vdevs) return vrdma::base::pass(std::move(vdevs).error());
                std::vector<std::unique_ptr<vrdma::api::OwnedVdevice>> made;
                for (auto& vdev : *vdevs)
                  made.push_back(std::make_unique<vrdma::api::OwnedVdevice>(std::move(vdev)));
                auto** list = new vrdma_vdevice*[made.size() + 1]();
                for (size_t i = 0; i < made.size(); ++i) list[i] = made[i].release();
                if (count != nullptr) *count = made.size();
                return list;
              });
}

void vrdma_free_vdevice_list(vrdma_vdevice** list) {
  if (list == nullptr) return;
  for (vrdma_vdevice** each = list; *each != nullptr; ++each)
    delete static_cast<vrdma::api::OwnedVdevice*>(*each);
  delete[] list;
}
