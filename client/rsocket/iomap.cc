// Sockets over RDMA: buffers of the program that its peer writes to directly (riomap(),
// riowrite()).
#include <sys/mman.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "client/rsocket/stream.h"

namespace vrdma::client {

off_t RStream::map(void* buffer, size_t length, int protection, off_t offset) {
  const Lock lock(mutex_);
  if (buffer == nullptr || length == 0 || (protection & ~PROT_WRITE) != 0) return -EINVAL;
  if (!connected()) return -ENOTCONN;
  Mapping mapping;
  mapping.remote = (protection & PROT_WRITE) != 0;
  mapping.offset =
      offset == -1 ? reinterpret_cast<uintptr_t>(buffer) : static_cast<uint64_t>(offset);
  if (mapping.remote) {
    // The first free entry of the peer's list.
    const auto used = [&](uint32_t index) {
      return std::any_of(mappings_.begin(), mappings_.end(), [&](const Mapping& other) {
        return other.remote && other.index == index;
      });
    };
    while (mapping.index < peer_iomaps_ && used(mapping.index)) ++mapping.index;
    if (mapping.index == peer_iomaps_) return -ENOMEM;
  }
  const int access =
      mapping.remote ? IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE : IBV_ACCESS_LOCAL_WRITE;
  mapping.region = ibv_reg_mr(id_->pd, buffer, length, access);
  if (mapping.region == nullptr) return -errno;
  mappings_.push_back(mapping);
  return static_cast<off_t>(mapping.offset);
}

// The peer's list keeps the entry, but writes to the memory fail.
int RStream::unmap(void* buffer, size_t length) {
  const Lock lock(mutex_);
  const auto it = std::find_if(mappings_.begin(), mappings_.end(), [&](const Mapping& mapping) {
    return mapping.region->addr == buffer && mapping.region->length == length;
  });
  if (it == mappings_.end()) return -EINVAL;
  (void)ibv_dereg_mr(it->region);
  mappings_.erase(it);
  return 0;
}

// Must precede the next data, so that a peer that has the data knows the mappings.
int RStream::tell_mappings(Lock& lock, bool nonblocking, const timeval& limit) {
  const auto untold = [&] {
    return std::find_if(mappings_.begin(), mappings_.end(),
                        [](const Mapping& mapping) { return mapping.remote && !mapping.told; });
  };
  for (auto next = untold(); next != mappings_.end(); next = untold()) {
    if (!can_send()) {
      const int error = wait(lock, nonblocking, limit,
                             [&] { return can_send() || !writes_ || end_ != 0 || gone_; });
      if (error != 0) return error;
      if (!can_send()) return send_refused();
      continue;  // another thread may have removed it meanwhile
    }
    Mapping& mapping = *next;
    const RsIomap entry{mapping.offset,
                        {reinterpret_cast<uintptr_t>(mapping.region->addr), mapping.region->rkey,
                         static_cast<uint32_t>(mapping.region->length)}};
    const uint32_t message = rs_message(RsMessage::kIomap, mapping.index);
    --slots_;
    credits_.use();
    (void)post_write(
        &entry, 0, sizeof entry,
        peer_list_.address + peer_list_.length * sizeof(RsArea) + mapping.index * sizeof(RsIomap),
        peer_list_.key, &message, 0);
    mapping.told = true;
  }
  return 0;
}

ssize_t RStream::write_mapped(const void* from, size_t count, off_t offset, int flags) {
  Lock lock(mutex_);
  const bool nonblocking = nonblocking_ || (flags & MSG_DONTWAIT) != 0;
  if (!connected()) return -ENOTCONN;
  if (const int error = tell_mappings(lock, nonblocking, send_limit_); error != 0) return error;
  const auto* next = static_cast<const uint8_t*>(from);
  auto at = static_cast<uint64_t>(offset);
  size_t done = 0;
  while (done < count) {
    // Writes to a mapping need neither credits nor the stream's buffer.
    const auto may = [&] { return usable() && writes_ && slots_ > 0 && out_.space() > 0; };
    if (!may()) {
      const int error = wait(lock, nonblocking, send_limit_,
                             [&] { return may() || !writes_ || end_ != 0 || gone_; });
      if (error != 0) return done > 0 ? static_cast<ssize_t>(done) : error;
      if (!may()) return done > 0 ? static_cast<ssize_t>(done) : send_refused();
    }
    RsIomap entry;
    bool found = false;
    for (uint32_t i = 0; i < own_iomaps_ && !found; ++i) {
      std::memcpy(&entry, told_.data() + kRsAreas * sizeof(RsArea) + i * sizeof entry,
                  sizeof entry);
      found = entry.area.length != 0 && at >= entry.offset && at - entry.offset < entry.area.length;
    }
    if (!found) return done > 0 ? static_cast<ssize_t>(done) : -EINVAL;
    const uint64_t within = at - entry.offset;
    const auto size = static_cast<uint32_t>(
        std::min({static_cast<uint64_t>(count - done), entry.area.length - within,
                  uint64_t{out_.space()}, uint64_t{1U << 16}}));
    uint8_t* const copy = sent_.data() + out_.put(size);
    std::memcpy(copy, next, size);
    --slots_;
    (void)post_write(copy, sent_region_->lkey, size, entry.area.address + within, entry.area.key,
                     nullptr, size);
    next += size;
    at += size;
    done += size;
  }
  return static_cast<ssize_t>(done);
}

}  // namespace vrdma::client
