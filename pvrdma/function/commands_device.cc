// Commands about the port, programs, GIDs, protection domains and memory.
#include <algorithm>
#include <cerrno>
#include <cstdint>

#include "core/verbs/gid.h"
#include "pvrdma/function/attachment.h"
#include "pvrdma/function/refusals.h"

namespace vrdma::pvrdma {

namespace {

constexpr uint32_t kRights = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                             IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;

}  // namespace

Attachment::Done Attachment::query_port(PortAttributes* answer) {
  const auto port = adapter_.port();
  if (!port) return base::fail(EIO, "the vdevice does not answer");
  answer->state = port->state;
  answer->max_mtu = port->max_mtu;
  answer->active_mtu = port->active_mtu;
  answer->gid_tbl_len = kGidTable;
  answer->port_cap_flags = 1u << 26;  // addresses are GIDs
  answer->max_msg_sz = port->max_msg_sz;
  answer->pkey_tbl_len = 1;
  answer->lid = port->lid;
  answer->sm_lid = port->sm_lid;
  answer->max_vl_num = port->max_vl_num;
  answer->active_width = port->active_width;
  answer->active_speed = port->active_speed;
  answer->phys_state = port->phys_state;
  return {};
}

// --- programs and their pages of doorbells ---

Attachment::Done Attachment::create_context(const CreateUc& wish, uint64_t doorbells,
                                            Handle* answer) {
  const uint64_t page = wish.frame - doorbells / kPageSize;  // wraps: then it is too large
  if (page == 0 || page >= kDoorbellPages)
    return base::fail(EINVAL, "a program's doorbells are not in BAR 2");
  if (contexts_.is_full()) return too_many("open devices");
  auto made = std::make_unique<Context>();
  made->page = static_cast<uint32_t>(page);
  answer->handle = contexts_.add(std::move(made))->handle;
  image_.make(image_.contexts, answer->handle).page = static_cast<uint32_t>(page);
  return {};
}

Attachment::Done Attachment::destroy_context(uint32_t handle) {
  if (contexts_.find(handle) == nullptr) return unknown("open device", handle);
  contexts_.remove(handle);
  image_.end(image_.contexts, handle);
  return {};
}

// --- GIDs ---

// Which GIDs there are the vdevice's operator says, not the guest.
Attachment::Done Attachment::create_bind(const CreateBind& wish) {
  if (wish.index >= kGidTable) return base::fail(EINVAL, "the table of GIDs is shorter");
  ibv_gid gid;
  std::ranges::copy(wish.gid, gid.raw);
  if (!adapter_.index_of(gid))
    return base::fail(EADDRNOTAVAIL,
                      "the vdevice does not have GID " + verbs::Gid::of(wish.gid).text() +
                          "; give its netdev the guest's addresses, or the guest its netdev's");
  gids_[wish.index] = gid;
  has_gid_[wish.index] = true;
  image_.make(image_.gids, wish.index).gid = gid;
  return {};
}

Attachment::Done Attachment::destroy_bind(const DestroyBind& wish) {
  if (wish.index >= kGidTable) return base::fail(EINVAL, "the table of GIDs is shorter");
  has_gid_[wish.index] = false;
  image_.end(image_.gids, wish.index);
  return {};
}

std::optional<uint8_t> Attachment::to_adapter(uint8_t index) const {
  if (index >= kGidTable || !has_gid_[index]) return std::nullopt;
  return adapter_.index_of(gids_[index]);
}

uint8_t Attachment::to_guest(uint8_t index) const {
  const auto gid = adapter_.gid(index);
  for (uint8_t i = 0; gid && i < kGidTable; ++i)
    if (has_gid_[i] && std::ranges::equal(gids_[i].raw, gid->raw)) return i;
  return 0;
}

// --- protection domains ---

Attachment::Done Attachment::create_pd(const CreatePd& wish, Handle* answer) {
  if (!has_context(wish.context)) return unknown("open device", wish.context);
  if (pds_.is_full()) return too_many("protection domains");
  Owned<ibv_pd> made(::ibv_alloc_pd(adapter_.context()));
  if (made == nullptr) return base::fail_errno("allocate a protection domain");
  answer->handle = pds_.add(std::make_unique<Pd>(wish.context, std::move(made)))->handle;
  image_.make(image_.pds, answer->handle).context = wish.context;
  return {};
}

Attachment::Done Attachment::destroy_pd(uint32_t handle) {
  Pd* const pd = pds_.find(handle);
  const Qp* const by = qps_.find_if([pd](const Qp& one) { return one.pd == pd; });
  if (Done done = unless_used("protection domain", handle, by); !done) return done;
  if (pd != nullptr) pd->addresses = AddressHandles(pd->verbs.get());
  Done done = destroy(&pds_, handle, "protection domain");
  if (done) image_.end(image_.pds, handle);
  return done;
}

// --- memory ---

Attachment::Done Attachment::create_mr(const CreateMr& wish, MrAnswer* answer) {
  const Pd* const pd = pds_.find(wish.pd);
  if (pd == nullptr) return unknown("protection domain", wish.pd);
  if (mrs_.is_full()) return too_many("memory regions");
  auto mr = std::make_unique<Mr>();
  if (wish.flags == kMrOfAllMemory) {
    // Only the guest's kernel gets one, and no peer. Addresses are guest-physical. On demand, as
    // there are holes in it; memory that comes later is not in it.
    if (pd->context != 0 || (wish.access & ~uint32_t{IBV_ACCESS_LOCAL_WRITE}) != 0)
      return base::fail(EINVAL, "a region of all memory is for the guest's kernel alone");
    if (Done done = make_region_of_all(*pd, mr.get()); !done) return done;
  } else if (wish.flags == 0) {
    if (Done done = register_pages(wish, *pd, mr.get()); !done) return done;
  } else {
    return base::fail(EOPNOTSUPP, "regions for fast registration are not offered");
  }
  if (keys_.contains(mr->verbs->lkey))
    return base::fail(EAGAIN, "the new key is one that the guest has for another region");
  *answer = {0, mr->verbs->lkey, mr->verbs->rkey};
  answer->handle = mrs_.add(std::move(mr))->handle;
  ImagedMr& made = image_.make(image_.mrs, answer->handle);
  made.pd = wish.pd;
  made.lkey = answer->lkey;
  made.is_of_all_memory = wish.flags == kMrOfAllMemory;
  return {};
}

Attachment::Done Attachment::make_region_of_all(const Pd& pd, Mr* mr) {
  mr->verbs.reset(::ibv_reg_mr_iova(pd.verbs.get(), ram_.base(), ram_.top(), 0,
                                    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ON_DEMAND));
  if (mr->verbs == nullptr)
    return base::fail_errno(
        "register the guest's memory, for which mr_bytes of the quota must be " +
        std::to_string(ram_.top()) + " at least");
  return {};
}

Attachment::Done Attachment::register_pages(const CreateMr& wish, const Pd& pd, Mr* mr) {
  const uint64_t before = wish.start % kPageSize;  // in the first page
  if (wish.length == 0 || wish.length > kMostMrBytes || wish.start + wish.length < wish.start ||
      (before + wish.length + kPageSize - 1) / kPageSize != wish.pages)
    return base::fail(EINVAL, "a region of " + std::to_string(wish.length) + " bytes has " +
                                  std::to_string(wish.pages) + " pages");
  const auto list = ram_.directory(wish.directory, wish.pages);
  if (!list) return base::pass(list.error());
  auto pages = ram_.show(*list, Pages::After::kNothing);
  if (!pages) return base::pass(std::move(pages.error()));
  mr->pages = std::move(*pages);
  const bool shown = ram_.show_to_workers(&mr->pages);
  mr->verbs.reset(adapter_.reg_mr(pd.verbs.get(), mr->pages.bytes() + before, wish.length,
                                  wish.start, wish.access & kRights, shown));
  if (mr->verbs == nullptr) return base::fail_errno("register memory of the guest");
  return {};
}

Attachment::Done Attachment::destroy_mr(uint32_t handle) {
  const Mr* const mr = mrs_.find(handle);
  const std::optional<uint32_t> key = mr != nullptr ? mr->lost_key : std::nullopt;
  Done done = destroy(&mrs_, handle, "memory region");
  if (!done) return done;
  if (key) keys_.erase(*key);
  image_.end(image_.mrs, handle);
  return done;
}

}  // namespace vrdma::pvrdma
