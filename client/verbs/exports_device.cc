// Exported verbs on devices and contexts. Each first checks whether the object is virtual.
#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>

#include "client/dial/export.h"
#include "client/dial/guard.h"
#include "client/verbs/device_list.h"
#include "client/verbs/events.h"
#include "client/verbs/real.h"
#include "client/verbs/virtual.h"

using namespace vrdma::client;  // NOLINT: this file is nothing but the way from C to this namespace

namespace {

// Result of verbs that return 0, or -1 with errno.
int minus_one(int error) {
  if (error == 0) return 0;
  errno = error;
  return -1;
}

// The size that programs compiled against libibverbs before 1.1.8 pass to ibv_query_port: the
// structure up to and including `flags`.
constexpr size_t kOldPortAttrSize = offsetof(ibv_port_attr, port_cap_flags2);
static_assert(kOldPortAttrSize == 48);

}  // namespace

__attribute__((destructor)) static void say_goodbye() { at_exit_goodbye(); }

// ---- Devices ----------------------------------------------------------------------------------

VRDMA_EXPORT ibv_device** ibv_get_device_list(int* num_devices) {
  return make_device_list(num_devices);
}

VRDMA_EXPORT void ibv_free_device_list(ibv_device** list) { free_device_list(list); }

VRDMA_EXPORT const char* ibv_get_device_name(ibv_device* device) { return device->name; }

VRDMA_EXPORT __be64 ibv_get_device_guid(ibv_device* device) {
  if (is_virtual(device)) return virtual_device(device)->node_guid;
  return real_ibv_get_device_guid(device);
}

VRDMA_EXPORT int ibv_get_device_index(ibv_device* device) {
  if (is_virtual(device)) return virtual_device(device)->index;
  return real_ibv_get_device_index(device);
}

VRDMA_EXPORT ibv_context* ibv_open_device(ibv_device* device) {
  if (!is_virtual(device)) return real_ibv_open_device(device);
  VirtualDevice* ours = virtual_device(device);
  hold_device(ours);
  ibv_context* context = guarded<open_device>(ours);
  if (context == nullptr) drop_device(ours);
  return context;
}

VRDMA_EXPORT ibv_context* ibv_import_device(int cmd_fd) try {
  const std::string name = exported_device(cmd_fd);
  if (name.empty()) return real_ibv_import_device(cmd_fd);
  ibv_device** list = make_device_list(nullptr);
  ibv_context* context = nullptr;
  int error = ENODEV;
  for (ibv_device** at = list; at != nullptr && *at != nullptr; ++at) {
    if (!is_virtual(*at) || name != (*at)->name) continue;
    VirtualDevice* ours = virtual_device(*at);
    hold_device(ours);
    context = guarded<import_device>(ours, cmd_fd);
    error = errno;
    if (context == nullptr) drop_device(ours);
    break;
  }
  free_device_list(list);
  if (context == nullptr) errno = error;
  return context;
}
VRDMA_OR_ENOMEM(nullptr)

// `private_data` is a provider's (mlx5dv_open_device); no provider supports vdevices.
VRDMA_EXPORT ibv_context* verbs_open_device(ibv_device* device, void* private_data) {
  if (!is_virtual(device)) return real_verbs_open_device(device, private_data);
  if (private_data == nullptr) return ibv_open_device(device);
  errno = EOPNOTSUPP;
  return nullptr;
}

VRDMA_EXPORT int ibv_close_device(ibv_context* context) {
  if (!is_virtual(context)) return real_ibv_close_device(context);
  VirtualDevice* device = virtual_device(context);
  const int error = guarded<close_device>(context);
  if (error == 0) drop_device(device);
  return error;
}

// ---- Queries ----------------------------------------------------------------------------------

VRDMA_EXPORT int ibv_query_device(ibv_context* context, ibv_device_attr* attr) {
  if (!is_virtual(context)) return real_ibv_query_device(context, attr);
  ibv_device_attr_ex all{};
  const int error = guarded<query_device_ex>(context, &all);
  if (error == 0) *attr = all.orig_attr;
  return error;
}

VRDMA_EXPORT int ibv_query_port(ibv_context* context, uint8_t port_num,
                                _compat_ibv_port_attr* attr) {
  if (!is_virtual(context)) return real_ibv_query_port(context, port_num, attr);
  ibv_port_attr all{};
  const int error = guarded<query_port>(context, port_num, &all);
  if (error == 0) std::memcpy(static_cast<void*>(attr), &all, kOldPortAttrSize);
  return error;
}

VRDMA_EXPORT int ibv_query_gid(ibv_context* context, uint8_t port_num, int index, ibv_gid* gid) {
  if (!is_virtual(context)) return real_ibv_query_gid(context, port_num, index, gid);
  if (index < 0) return minus_one(EINVAL);
  ibv_gid_entry entry{};
  const int error = guarded<query_gid_ex>(context, port_num, static_cast<uint32_t>(index), &entry);
  // An empty slot reads as the zero GID, as it does in sysfs.
  if (error != 0 && error != ENODATA) return minus_one(error);
  *gid = error == 0 ? entry.gid : ibv_gid{};
  return 0;
}

VRDMA_EXPORT int ibv_query_gid_type(ibv_context* context, uint8_t port_num, unsigned int index,
                                    ibv_gid_type_sysfs* type) {
  if (!is_virtual(context)) return real_ibv_query_gid_type(context, port_num, index, type);
  ibv_gid_entry entry{};
  const int error = guarded<query_gid_ex>(context, port_num, index, &entry);
  if (error != 0 && error != ENODATA) return minus_one(error);
  *type = error == 0 && entry.gid_type == IBV_GID_TYPE_ROCE_V2 ? IBV_GID_TYPE_SYSFS_ROCE_V2
                                                               : IBV_GID_TYPE_SYSFS_IB_ROCE_V1;
  return 0;
}

// `entry_size` is the caller's sizeof(ibv_gid_entry), which may be smaller or larger than ours.
VRDMA_EXPORT int _ibv_query_gid_ex(ibv_context* context, uint32_t port_num, uint32_t gid_index,
                                   ibv_gid_entry* entry, uint32_t flags, size_t entry_size) {
  if (!is_virtual(context))
    return real__ibv_query_gid_ex(context, port_num, gid_index, entry, flags, entry_size);
  if (flags != 0) return errno = EINVAL;
  ibv_gid_entry all{};
  const int error = guarded<query_gid_ex>(context, port_num, gid_index, &all);
  if (error != 0) return error;
  std::memset(static_cast<void*>(entry), 0, entry_size);
  std::memcpy(static_cast<void*>(entry), &all, std::min(entry_size, sizeof all));
  return 0;
}

VRDMA_EXPORT ssize_t _ibv_query_gid_table(ibv_context* context, ibv_gid_entry* entries,
                                          size_t max_entries, uint32_t flags,
                                          size_t entry_size) try {
  if (!is_virtual(context))
    return real__ibv_query_gid_table(context, entries, max_entries, flags, entry_size);
  if (flags != 0 || entry_size == 0) return -EINVAL;
  if (entry_size == sizeof *entries) return query_gid_table(context, entries, max_entries);
  std::vector<ibv_gid_entry> all(max_entries);
  const ssize_t count = query_gid_table(context, all.data(), max_entries);
  auto* to = reinterpret_cast<uint8_t*>(entries);
  for (ssize_t i = 0; i < count; ++i, to += entry_size) {
    std::memset(to, 0, entry_size);
    std::memcpy(to, &all[static_cast<size_t>(i)], std::min(entry_size, sizeof *entries));
  }
  return count;
}
VRDMA_OR_ENOMEM(-ENOMEM)

VRDMA_EXPORT int ibv_query_pkey(ibv_context* context, uint8_t port_num, int index, __be16* pkey) {
  if (!is_virtual(context)) return real_ibv_query_pkey(context, port_num, index, pkey);
  return minus_one(guarded<query_pkey>(context, port_num, index, pkey));
}

VRDMA_EXPORT int ibv_get_pkey_index(ibv_context* context, uint8_t port_num, __be16 pkey) {
  if (!is_virtual(context)) return real_ibv_get_pkey_index(context, port_num, pkey);
  for (int index = 0;; ++index) {
    uint16_t found = 0;
    if (const int error = guarded<query_pkey>(context, port_num, index, &found); error != 0)
      return minus_one(error);
    if (found == pkey) return index;
  }
}

VRDMA_EXPORT int ibv_resolve_eth_l2_from_gid(ibv_context* context, ibv_ah_attr* attr,
                                             uint8_t eth_mac[ETHERNET_LL_SIZE], uint16_t* vid) {
  if (!is_virtual(context)) return real_ibv_resolve_eth_l2_from_gid(context, attr, eth_mac, vid);
  return guarded<resolve_eth_l2_from_gid>(context, attr, eth_mac, vid);
}

// ---- Asynchronous events ----------------------------------------------------------------------

VRDMA_EXPORT int ibv_get_async_event(ibv_context* context, ibv_async_event* event) try {
  if (!is_virtual(context)) return real_ibv_get_async_event(context, event);
  return get_async_event(context, event);
}
VRDMA_OR_ENOMEM(-1)

VRDMA_EXPORT void ibv_ack_async_event(ibv_async_event* event) {
  const ibv_context* context = event_context(*event);
  if (context == nullptr) return;  // an event of a port or a device needs no acknowledgement
  if (is_virtual(context))
    ack_async_event(event);
  else
    real_ibv_ack_async_event(event);
}

// ---- fork -------------------------------------------------------------------------------------

VRDMA_EXPORT int ibv_fork_init() {
  if (const int error = fork_init(); error != 0) return error;
  return real_library_available() ? real_ibv_fork_init() : 0;
}

VRDMA_EXPORT ibv_fork_status ibv_is_fork_initialized() {
  return real_library_available() ? real_ibv_is_fork_initialized() : is_fork_initialized();
}
