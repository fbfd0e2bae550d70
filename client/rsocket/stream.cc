// Sockets over RDMA: the stream, by the rings and credits of protocol.h.
#include "client/rsocket/stream.h"

#include <poll.h>
#include <sys/socket.h>

#include <atomic>
#include <cerrno>
#include <cstring>

namespace vrdma::client {

namespace {

// Kind of a work request, in its wr_id. For a data send, the other bits are the bytes it keeps in
// out_.
constexpr uint64_t kReceive = uint64_t{1} << 63;
constexpr uint64_t kControl = uint64_t{1} << 62;

constexpr uint32_t kLongestWrite = 1U << 15;

}  // namespace

// ---- the queue pair -----------------------------------------------------------------------------

int RStream::post_receives(uint32_t count) {
  ibv_recv_wr chain[16]{};
  while (count > 0) {
    const uint32_t some = std::min<uint32_t>(count, std::size(chain));
    for (uint32_t i = 0; i < some; ++i) {
      chain[i].wr_id = kReceive;
      chain[i].next = i + 1 < some ? &chain[i + 1] : nullptr;
    }
    ibv_recv_wr* bad = nullptr;
    if (const int error = ibv_post_recv(id_->qp, chain, &bad); error != 0) return -error;
    count -= some;
  }
  return 0;
}

int RStream::post_write(const void* local, uint32_t lkey, uint32_t length, uint64_t remote,
                        uint32_t rkey, const uint32_t* message, uint64_t wr_id) {
  ibv_sge sge{reinterpret_cast<uintptr_t>(local), length, lkey};
  ibv_send_wr wr{};
  wr.wr_id = wr_id;
  wr.sg_list = &sge;
  wr.num_sge = length != 0 ? 1 : 0;
  wr.opcode = message != nullptr ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_RDMA_WRITE;
  if (message != nullptr) wr.imm_data = __builtin_bswap32(*message);
  if (length <= inline_) wr.send_flags = IBV_SEND_INLINE;
  wr.wr.rdma.remote_addr = remote;
  wr.wr.rdma.rkey = rkey;
  ibv_send_wr* bad = nullptr;
  const int error = ibv_post_send(id_->qp, &wr, &bad);
  if (error != 0) end(ECONNRESET);
  return -error;
}

int RStream::send_control(RsControl control) {
  const uint32_t message = rs_message(RsMessage::kControl, static_cast<uint32_t>(control));
  --controls_;
  return post_write(nullptr, 0, 0, 0, 0, &message, kControl);
}

bool RStream::all_sent() const {
  return controls_ == kRsControls && slots_ == send_depth_ - kRsControls;
}

void RStream::on_control(RsControl control) {
  if (control == RsControl::kShutdown) {
    reads_ = false;
    if (!writes_) gone_ = true;
  } else if (control == RsControl::kDisconnect) {
    reads_ = writes_ = false;
    gone_ = true;
  }
}

void RStream::on_received(uint32_t message) {
  // The peer sends only after it knows that the connection is established.
  established_ = true;
  switch (rs_type(message)) {
    case RsMessage::kData:
      if (!in_.put(rs_data(message))) end(EPROTO);
      break;
    case RsMessage::kCredit:
      credits_.extend(rs_data(message));
      take_areas();
      break;
    case RsMessage::kIomap:
      in_.skip();
      break;
    case RsMessage::kControl:
      on_control(static_cast<RsControl>(rs_data(message)));
      break;
  }
}

void RStream::give_credits() {
  while (usable() && controls_ > 0 && in_.owes()) {
    const auto grant = in_.grant();
    const uint32_t message = rs_message(RsMessage::kCredit, grant.credits);
    --controls_;
    if (grant.length == 0) {
      (void)post_write(nullptr, 0, 0, 0, 0, &message, kControl);
      continue;
    }
    const RsArea area{reinterpret_cast<uintptr_t>(received_.data()) + grant.offset,
                      received_region_->rkey, grant.length};
    (void)post_write(&area, 0, sizeof area, peer_list_.address + peer_entry_ * sizeof area,
                     peer_list_.key, &message, kControl);
    peer_entry_ = (peer_entry_ + 1) % peer_list_.length;
  }
}

void RStream::process() {
  if (completions_.queue() == nullptr) return;
  bool moved = false;
  for (;;) {
    ibv_wc batch[16];
    const int got = ibv_poll_cq(completions_.queue(), static_cast<int>(std::size(batch)), batch);
    if (got <= 0) break;
    moved = true;
    uint32_t received = 0;
    for (int i = 0; i < got; ++i) {
      const ibv_wc& done = batch[i];
      const bool failed = done.status != IBV_WC_SUCCESS;
      if ((done.wr_id & kReceive) != 0) {
        if (failed) continue;  // flushed
        ++received;
        on_received(__builtin_bswap32(done.imm_data));
        continue;
      }
      if ((done.wr_id & kControl) != 0) {
        ++controls_;
      } else {
        ++slots_;
        out_.release(static_cast<uint32_t>(done.wr_id));
      }
      if (failed && !gone_ && !closed_) end(ECONNRESET);
    }
    if (received > 0 && end_ == 0 && !gone_ && post_receives(received) != 0) end(ECONNRESET);
  }
  give_credits();
  if (moved) nudge();
}

// ---- sleeping -----------------------------------------------------------------------------------

void RStream::arm() {
  if (completions_.queue() == nullptr) return;
  completions_.arm();
  process();
}

void RStream::disarm() { completions_.disarm(); }

short RStream::events_now(short events) {
  int now = 0;
  switch (phase_) {
    case Phase::kIdle:
      now = POLLOUT | POLLHUP;
      break;
    case Phase::kListening: {
      pollfd ready{channel_->fd, POLLIN, 0};
      now = ::poll(&ready, 1, 0) > 0 || closed_ ? POLLIN | POLLRDNORM : 0;
      break;
    }
    case Phase::kConnecting:
      break;
    case Phase::kFailed:
      now = POLLIN | POLLOUT | POLLRDNORM | POLLWRNORM | POLLERR | POLLHUP;
      break;
    case Phase::kConnected:
      if (in_.filled() > 0 || !reads_ || end_ != 0) now |= POLLIN | POLLRDNORM;
      if (can_send() || !writes_ || end_ != 0) now |= POLLOUT | POLLWRNORM;
      if (!reads_ || end_ != 0) now |= POLLRDHUP;
      if ((!reads_ && shut_) || end_ != 0) now |= POLLHUP;
      if (end_ != 0) now |= POLLERR;
  }
  return static_cast<short>(now & (events | POLLERR | POLLHUP));
}

// ---- data ---------------------------------------------------------------------------------------

ssize_t RStream::receive(const iovec* to, size_t count, int flags, RsOrigin* /*origin*/) {
  Lock lock(mutex_);
  if (phase_ == Phase::kConnecting) {
    take_events();
    if (phase_ == Phase::kConnecting) return -EAGAIN;
  }
  if (!connected()) return -ENOTCONN;
  const bool peek = (flags & MSG_PEEK) != 0;
  size_t total = 0;
  for (size_t i = 0; i < count; ++i) total += to[i].iov_len;
  size_t done = 0, piece = 0, within = 0;
  do {
    if (in_.filled() == 0 && total > 0) {
      const int error = wait(lock, nonblocking_ || (flags & MSG_DONTWAIT) != 0, receive_limit_,
                             [&] { return in_.filled() > 0 || !reads_ || end_ != 0; });
      if (error != 0) return done > 0 ? static_cast<ssize_t>(done) : error;
    }
    if (in_.filled() == 0) {
      if (done == 0 && reads_ && end_ != 0) {
        error_ = 0;
        return -end_;
      }
      break;
    }
    uint32_t at = in_.offset(), left = in_.filled();
    while (left > 0 && done < total) {
      const size_t step = std::min({static_cast<size_t>(left), to[piece].iov_len - within,
                                    static_cast<size_t>(receive_size_ - at)});
      if (step > 0)
        std::memcpy(static_cast<uint8_t*>(to[piece].iov_base) + within, received_.data() + at,
                    step);
      done += step;
      within += step;
      left -= static_cast<uint32_t>(step);
      at = (at + static_cast<uint32_t>(step)) % receive_size_;
      if (!peek) in_.take(static_cast<uint32_t>(step));
      if (within == to[piece].iov_len) {
        ++piece;
        within = 0;
      }
    }
    give_credits();
  } while (!peek && done < total && (flags & MSG_WAITALL) != 0);
  return static_cast<ssize_t>(done);
}

// Each area comes with a message, but a message may come without an area. The peer may be writing
// the next area now. An entry is complete when its first and last word are nonzero, because it is
// cleared when it is taken.
void RStream::take_areas() {
  auto* const told = reinterpret_cast<RsArea*>(told_.data());
  while (areas_[taken_].length == 0) {
    RsArea& entry = told[taken_];
    RsArea area;
    area.length = __atomic_load_n(&entry.length, __ATOMIC_ACQUIRE);
    area.address = __atomic_load_n(&entry.address, __ATOMIC_ACQUIRE);
    area.key = entry.key;
    if (area.length == 0 || area.address == 0) return;
    entry = {};
    areas_[taken_] = area;
    taken_ = (taken_ + 1) % kRsAreas;
  }
}

bool RStream::can_send() {
  return usable() && writes_ && slots_ > 0 && credits_.any() && out_.space() > 0 &&
         areas_[target_].length > 0;
}

int RStream::send_refused() const {
  if (end_ != 0) return -end_;
  return -EPIPE;
}

size_t RStream::send_piece(const uint8_t* from, size_t length) {
  RsArea& to = areas_[target_];
  auto size = static_cast<uint32_t>(
      std::min({length, static_cast<size_t>(to.length), static_cast<size_t>(kLongestWrite)}));
  const void* source = from;
  uint32_t kept = 0;
  // The end of the ring is used even for a short piece, or it would stay occupied.
  if (size > inline_) {
    size = std::min(size, out_.space());
    uint8_t* const copy = sent_.data() + out_.put(size);
    std::memcpy(copy, from, size);
    source = copy;
    kept = size;
  }
  const uint32_t message = rs_message(RsMessage::kData, size);
  --slots_;
  credits_.use();
  (void)post_write(source, sent_region_->lkey, size, to.address, to.key, &message, kept);
  to.address += size;
  to.length -= size;
  if (to.length == 0) target_ = (target_ + 1) % kRsAreas;
  return size;
}

ssize_t RStream::send(const iovec* from, size_t count, int flags, const sockaddr* to) {
  if (to != nullptr) return -EISCONN;
  Lock lock(mutex_);
  const bool nonblocking = nonblocking_ || (flags & MSG_DONTWAIT) != 0;
  if (phase_ == Phase::kConnecting) {
    take_events();
    if (phase_ == Phase::kConnecting) return -EAGAIN;
  }
  if (!connected()) return -EPIPE;
  if (const int error = tell_mappings(lock, nonblocking, send_limit_); error != 0) return error;
  size_t done = 0;
  for (size_t i = 0; i < count; ++i) {
    const auto* next = static_cast<const uint8_t*>(from[i].iov_base);
    size_t left = from[i].iov_len;
    while (left > 0) {
      if (!can_send()) {
        const int error = wait(lock, nonblocking, send_limit_,
                               [&] { return can_send() || !writes_ || end_ != 0 || gone_; });
        if (error != 0) return done > 0 ? static_cast<ssize_t>(done) : error;
        if (!can_send()) return done > 0 ? static_cast<ssize_t>(done) : send_refused();
      }
      const size_t step = send_piece(next, left);
      next += step;
      left -= step;
      done += step;
    }
  }
  if (count == 0 && !writes_) return send_refused();
  return static_cast<ssize_t>(done);
}

}  // namespace vrdma::client
