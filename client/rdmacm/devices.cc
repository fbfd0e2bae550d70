// The vdevices of ids, and conversion of addresses.
#include <arpa/inet.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "client/dial/across_fork.h"
#include "client/dial/export.h"
#include "client/dial/guard.h"
#include "client/rdmacm/objects.h"
#include "client/verbs/shortcuts.h"

namespace vrdma::client {

namespace {

std::vector<CmDevice*>& devices() {
  static auto* const all = new std::vector<CmDevice*>;
  return *all;
}

uint8_t to_byte(int value) { return static_cast<uint8_t>(std::clamp(value, 0, 255)); }

ibv_context* open_device(uint64_t guid) {
  int count = 0;
  ibv_device** list = ibv_get_device_list(&count);
  if (list == nullptr) {
    if (errno == ENOSYS) errno = ENODEV;  // the kernel lists no devices either
    return nullptr;
  }
  ibv_context* context = nullptr;
  errno = ENODEV;
  for (int i = 0; i < count && context == nullptr; ++i)
    if (ibv_get_device_guid(list[i]) == guid) context = ibv_open_device(list[i]);
  const int why = errno;
  ibv_free_device_list(list);
  errno = why;
  return context;
}

void to_sockaddr(const ipc::CmAddress& from, sockaddr_storage* to) {
  static constexpr uint8_t kMapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  static constexpr uint8_t kNone[16] = {};
  if (from.port == 0 && std::memcmp(from.gid, kNone, sizeof kNone) == 0) return;
  if (std::memcmp(from.gid, kMapped, sizeof kMapped) == 0 && to->ss_family != AF_INET6) {
    auto* in = reinterpret_cast<sockaddr_in*>(to);
    in->sin_family = AF_INET;
    in->sin_port = htons(from.port);
    std::memcpy(&in->sin_addr, from.gid + 12, 4);
    return;
  }
  auto* in6 = reinterpret_cast<sockaddr_in6*>(to);
  in6->sin6_family = AF_INET6;
  in6->sin6_port = htons(from.port);
  std::memcpy(&in6->sin6_addr, from.gid, 16);
}

bool is_lost(const CmDevice& device) {
  const Shortcuts* shortcuts = shortcuts_of(device.verbs);
  return shortcuts != nullptr && shortcuts->is_lost(device.verbs);
}

CmDevice* find(uint64_t guid) {
  const std::lock_guard lock(objects_mutex());
  const auto known = std::find_if(devices().begin(), devices().end(), [&](const CmDevice* device) {
    return device->guid == guid && device->owner == ::getpid();
  });
  return known != devices().end() ? *known : nullptr;
}

// use_device() with the present daemon.
CmDevice* find_or_open(uint64_t guid) {
  const std::lock_guard alone(opening());
  if (CmDevice* const known = find(guid); known != nullptr) {
    if (!is_lost(*known)) return known;
    const std::lock_guard lock(objects_mutex());
    std::erase(devices(), known);  // it stays open: programs keep contexts (rdma_get_devices(3))
  }
  ibv_context* verbs = open_device(guid);
  if (verbs == nullptr) return nullptr;
  ibv_device_attr attr{};
  if (ibv_query_device(verbs, &attr) != 0) {
    ibv_close_device(verbs);
    return nullptr;
  }
  auto device = std::make_unique<CmDevice>();
  device->guid = guid;
  device->owner = ::getpid();
  device->verbs = verbs;
  device->max_responder_resources = to_byte(attr.max_qp_rd_atom);
  device->max_initiator_depth = to_byte(attr.max_qp_init_rd_atom);
  const std::lock_guard lock(objects_mutex());
  devices().push_back(device.get());
  return device.release();
}

}  // namespace

std::shared_mutex& opening() {
  struct Nothing {};
  return AcrossFork<Nothing, false>::instance().mutex;
}

CmDevice* use_device(CmLink& link, uint64_t guid) {
  for (uint32_t daemon = link.successions();;) {
    if (CmDevice* device = find_or_open(guid); device != nullptr) return device;
    const int why = errno;
    if (link.await_daemon() != 0 || link.successions() == daemon) {
      errno = why;
      return nullptr;
    }
    daemon = link.successions();
  }
}

int settle(Id* id, const ipc::CmWhere& where) {
  id->where = where;
  to_sockaddr(where.local, &id->base.route.addr.src_storage);
  to_sockaddr(where.remote, &id->base.route.addr.dst_storage);
  std::memcpy(&id->base.route.addr.addr.ibaddr.sgid, where.local.gid, 16);
  std::memcpy(&id->base.route.addr.addr.ibaddr.dgid, where.remote.gid, 16);
  id->base.route.addr.addr.ibaddr.pkey = 0xffff;
  if (where.node_guid == 0 || id->device != nullptr) return 0;
  CmDevice* device = use_device(*id->link, where.node_guid);
  if (device == nullptr) return errno;
  const std::lock_guard lock(opening());
  if (device->pd == nullptr) device->pd = ibv_alloc_pd(device->verbs);
  if (device->pd == nullptr) return errno;
  ++device->ids;
  id->device = device;
  id->base.verbs = device->verbs;
  id->base.pd = device->pd;
  id->base.port_num = 1;
  return 0;
}

void leave_device(Id* id) {
  if (id->device == nullptr) return;
  const std::lock_guard lock(opening());
  if (--id->device->ids > 0) return;
  // If the program's objects still use the domain, it is kept for the next id.
  if (ibv_dealloc_pd(id->device->pd) == 0) id->device->pd = nullptr;
}

bool to_address(const sockaddr* from, ipc::CmAddress* to) {
  *to = {};
  if (from->sa_family == AF_INET) {
    const auto* in = reinterpret_cast<const sockaddr_in*>(from);
    to->gid[10] = to->gid[11] = 0xff;
    std::memcpy(to->gid + 12, &in->sin_addr, 4);
    to->port = ntohs(in->sin_port);
    return true;
  }
  if (from->sa_family != AF_INET6) return false;
  const auto* in6 = reinterpret_cast<const sockaddr_in6*>(from);
  std::memcpy(to->gid, &in6->sin6_addr, 16);
  to->port = ntohs(in6->sin6_port);
  return true;
}

}  // namespace vrdma::client

using namespace vrdma;          // NOLINT: this part is nothing but the way from C
using namespace vrdma::client;  // NOLINT

VRDMA_EXPORT ibv_context** rdma_get_devices(int* num_devices) try {
  VRDMA_PASS_ON(nullptr, rdma_get_devices, num_devices)
  if (num_devices != nullptr) *num_devices = 0;
  const auto link = CmLink::current();
  ipc::CmRequest request;
  ipc::CmReply reply;
  request.call = ipc::CmCall::kDevices;
  if (link == nullptr) return nullptr;
  if (link->call(request, &reply) != 0) {
    errno = ENODEV;
    return nullptr;
  }
  auto** list = static_cast<ibv_context**>(std::calloc(ipc::kCmDevices + 1, sizeof(ibv_context*)));
  if (list == nullptr) return nullptr;
  int found = 0;
  for (uint32_t i = 0; i < std::min(reply.count, ipc::kCmDevices); ++i)
    if (CmDevice* device = use_device(*link, reply.guids[i]); device != nullptr)
      list[found++] = device->verbs;
  if (num_devices != nullptr) *num_devices = found;
  return list;
}
VRDMA_OR_ENOMEM(nullptr)

VRDMA_EXPORT void rdma_free_devices(ibv_context** list) try {
  VRDMA_PASS_ON(, rdma_free_devices, list)
  std::free(list);
}
VRDMA_OR_ENOMEM()

VRDMA_EXPORT __be16 rdma_get_src_port(rdma_cm_id* id) try {
  VRDMA_PASS_ON(0, rdma_get_src_port, id)
  return id->route.addr.src_sin.sin_port;  // the same offset in both families
}
VRDMA_OR_ENOMEM(0)

VRDMA_EXPORT __be16 rdma_get_dst_port(rdma_cm_id* id) try {
  VRDMA_PASS_ON(0, rdma_get_dst_port, id)
  return id->route.addr.dst_sin.sin_port;
}
VRDMA_OR_ENOMEM(0)
