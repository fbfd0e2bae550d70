#include "client/verbs/device_list.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>

#include "client/dial/uncancelled.h"
#include "client/verbs/real.h"

extern "C" {
// C's `bool`: one byte.
__attribute__((visibility("default"))) bool verbs_allow_disassociate_destroy = false;
}

namespace vrdma::client {
namespace {

struct Listed {
  VirtualDevice device{};  // first: every VirtualDevice* of this library is a Listed*
  unsigned int references = 0;
};

// A list in memory: Header, the program's array (it ends with a nullptr), and the vdevices again,
// because the program may overwrite its array before it frees it.
struct Header {
  ibv_device** real;  // the list of the real library; nullptr: none
  size_t virtual_count;
  size_t total;
  ibv_device** array() { return reinterpret_cast<ibv_device**>(this + 1); }
  Listed** kept() { return reinterpret_cast<Listed**>(array() + total + 1); }
};

// Every device in use, guarded by `list_mutex`. Never destroyed, because programs may hold devices
// until the process ends.
constinit std::mutex list_mutex;
std::vector<Listed*>& known() {
  static auto* const devices = new std::vector<Listed*>;
  return *devices;
}

// Providers find this block behind a vdevice when they test whether a device is theirs.
const void* const kNoProvider[64] = {};

// Its address marks our devices. Never called.
ibv_context* marker(ibv_device*, int) { return nullptr; }

bool same(const Listed& listed, const FoundDevice& found) {
  const VirtualDevice& device = listed.device;
  return device.generation == found.generation && device.node_guid == found.node_guid &&
         found.name == device.ibv.name && found.session == device.session;
}

Listed* make(const FoundDevice& found) {
  auto* listed = new Listed;
  VirtualDevice& device = listed->device;
  device.ibv._ops._dummy1 = marker;
  device.ibv.node_type = found.node_type;
  device.ibv.transport_type = found.transport_type;
  found.name.copy(device.ibv.name, sizeof device.ibv.name - 1);
  // UCX checks whether it may open /dev/infiniband/<dev_name>.
  found.name.copy(device.ibv.dev_name, sizeof device.ibv.dev_name - 1);
  found.session.copy(device.session, sizeof device.session - 1);
  device.provider_ops = kNoProvider;
  device.node_guid = found.node_guid;
  device.index = found.index;
  device.generation = found.generation;
  return listed;
}

// The device for `found`, with one more reference. Under `list_mutex`.
Listed* refer(const FoundDevice& found) {
  for (Listed* listed : known()) {
    if (same(*listed, found)) {
      ++listed->references;
      return listed;
    }
  }
  known().reserve(known().size() + 1);
  Listed* listed = make(found);
  listed->references = 1;
  known().push_back(listed);
  return listed;
}

// Under `list_mutex`.
void unrefer(Listed* listed) {
  if (--listed->references > 0) return;
  std::erase(known(), listed);
  delete listed;
}

bool fits(const FoundDevice& found) {
  return !found.name.empty() && found.name.size() < IBV_SYSFS_NAME_MAX &&
         found.session.size() < sizeof(VirtualDevice::session);
}

// Takes ownership of `real` if it succeeds.
Header* make_list(ibv_device** real, size_t real_count, const std::vector<FoundDevice>& found) {
  const size_t total = found.size() + real_count;
  const size_t pointers = total + 1 + found.size();
  auto* header = static_cast<Header*>(std::malloc(sizeof(Header) + pointers * sizeof(void*)));
  if (header == nullptr) throw std::bad_alloc();
  *header = Header{real, 0, total};
  const std::lock_guard lock(list_mutex);
  try {
    for (const FoundDevice& device : found) {
      Listed* listed = refer(device);
      header->array()[header->virtual_count] = &listed->device.ibv;
      header->kept()[header->virtual_count++] = listed;
    }
  } catch (...) {
    while (header->virtual_count > 0) unrefer(header->kept()[--header->virtual_count]);
    std::free(header);
    throw;
  }
  for (size_t i = 0; i < real_count; ++i) header->array()[found.size() + i] = real[i];
  header->array()[total] = nullptr;
  return header;
}

}  // namespace

bool is_virtual(const ibv_device* device) { return device->_ops._dummy1 == marker; }

ibv_device** make_device_list(int* count) {
  if (count != nullptr) *count = 0;
  const Uncancelled whole;

  int real_count = 0;
  ibv_device** real = real_ibv_get_device_list(&real_count);
  const int why = errno;
  if (const bool* allow = real_allow_disassociate_destroy(); allow != nullptr && *allow)
    verbs_allow_disassociate_destroy = vrdma_allow_disassociate_destroy = true;

  try {
    std::vector<FoundDevice> found;
    const int error = scan_devices(&found);
    std::erase_if(found, [](const FoundDevice& device) { return !fits(device); });
    if (real == nullptr && found.empty()) {
      errno = error != 0 ? error : why;
      return nullptr;
    }
    Header* header = make_list(real, static_cast<size_t>(real_count), found);
    if (count != nullptr) *count = static_cast<int>(header->total);
    return header->array();
  } catch (...) {
    if (real != nullptr) real_ibv_free_device_list(real);
    errno = ENOMEM;
    return nullptr;
  }
}

void free_device_list(ibv_device** list) {
  if (list == nullptr) return;
  Header* header = reinterpret_cast<Header*>(list) - 1;
  if (header->real != nullptr) real_ibv_free_device_list(header->real);
  {
    const std::lock_guard lock(list_mutex);
    for (size_t i = 0; i < header->virtual_count; ++i) unrefer(header->kept()[i]);
  }
  std::free(header);
}

void hold_device(VirtualDevice* device) {
  const std::lock_guard lock(list_mutex);
  ++reinterpret_cast<Listed*>(device)->references;
}

void drop_device(VirtualDevice* device) {
  const std::lock_guard lock(list_mutex);
  unrefer(reinterpret_cast<Listed*>(device));
}

}  // namespace vrdma::client
