// Device memory (ibv_alloc_dm(3)). The device is software in this process, so its memory is a
// mapping of the library. As with an adapter, the program accesses it only by copying, and offsets
// and lengths are multiples of four.
#include <sys/mman.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>

#include "client/device/objects.h"
#include "client/verbs/virtual.h"

namespace vrdma::client {

namespace {

constexpr uint64_t kGrain = 4;

// The device memories of this process by handle, so that another context can import one.
struct Memories {
  std::mutex mutex;
  std::map<uint32_t, Dm*> by_handle;
  uint32_t next = 0;
  static Memories& instance() {
    static auto* all = new Memories;
    return *all;
  }
};

bool inside(const Dm& dm, uint64_t offset, size_t length) {
  return length <= dm.length && offset <= dm.length - length;
}

int copy_to(ibv_dm* ibv, uint64_t offset, const void* from, size_t length) {
  const Dm& dm = *Dm::of(ibv)->memory;
  if (offset % kGrain != 0 || length % kGrain != 0 || !inside(dm, offset, length)) return EINVAL;
  std::memcpy(dm.data + offset, from, length);
  return 0;
}

int copy_from(void* to, ibv_dm* ibv, uint64_t offset, size_t length) {
  const Dm& dm = *Dm::of(ibv)->memory;
  if (offset % kGrain != 0 || length % kGrain != 0 || !inside(dm, offset, length)) return EINVAL;
  std::memcpy(to, dm.data + offset, length);
  return 0;
}

void init(Dm* dm, ibv_context* context, uint32_t handle) {
  dm->ibv.context = context;
  dm->context = Within(context);
  dm->ibv.memcpy_to_dm = copy_to;
  dm->ibv.memcpy_from_dm = copy_from;
  dm->ibv.comp_mask = IBV_DM_MASK_HANDLE;
  dm->ibv.handle = handle;
}

}  // namespace

ibv_dm* alloc_dm(ibv_context* ibv, ibv_alloc_dm_attr* attr) {
  constexpr uint32_t kLogPage = 12;
  Context& context = *Context::of(ibv);
  if (attr->comp_mask != 0 || attr->length == 0 || attr->log_align_req > kLogPage) {
    errno = EINVAL;
    return nullptr;
  }
  Memories& all = Memories::instance();
  const std::lock_guard lock(all.mutex);
  if (attr->length > context.capabilities.max_device_memory - context.dm_used) {
    errno = ENOMEM;
    return nullptr;
  }
  void* data =
      ::mmap(nullptr, attr->length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) return nullptr;
  auto* dm = new Dm{};
  init(dm, ibv, ++all.next);
  dm->memory = dm;
  dm->data = static_cast<uint8_t*>(data);
  dm->length = attr->length;
  context.dm_used += attr->length;
  all.by_handle.emplace(dm->ibv.handle, dm);
  return &dm->ibv;
}

int free_dm(ibv_dm* ibv) {
  Dm* dm = Dm::of(ibv);
  Memories& all = Memories::instance();
  const std::lock_guard lock(all.mutex);
  if (dm->users.load() != 0) return EBUSY;
  all.by_handle.erase(ibv->handle);
  Context::of(ibv->context)->dm_used -= dm->length;
  ::munmap(dm->data, dm->length);
  delete dm;
  return 0;
}

ibv_mr* reg_dm_mr(ibv_pd* pd, ibv_dm* ibv, uint64_t offset, size_t length, unsigned int access) {
  Dm& dm = *Dm::of(ibv)->memory;
  if (!inside(dm, offset, length) || (access & IBV_ACCESS_ZERO_BASED) == 0) {
    errno = EINVAL;
    return nullptr;
  }
  ibv_mr* mr = reg_mr(pd, dm.data + offset, length, 0,
                      access & ~static_cast<unsigned int>(IBV_ACCESS_ZERO_BASED));
  if (mr == nullptr) return nullptr;
  Mr::of(mr)->memory = &dm;
  dm.users.fetch_add(1);
  return mr;
}

ibv_dm* import_dm(ibv_context* context, uint32_t handle) {
  Memories& all = Memories::instance();
  const std::lock_guard lock(all.mutex);
  const auto it = all.by_handle.find(handle);
  if (it == all.by_handle.end() ||
      virtual_device(it->second->ibv.context) != virtual_device(context)) {
    errno = EINVAL;
    return nullptr;
  }
  auto* dm = new Dm{};
  init(dm, context, handle);
  dm->memory = it->second;
  dm->memory->users.fetch_add(1);
  return &dm->ibv;
}

void unimport_dm(ibv_dm* ibv) {
  Dm::of(ibv)->memory->users.fetch_sub(1);
  delete Dm::of(ibv);
}

}  // namespace vrdma::client
