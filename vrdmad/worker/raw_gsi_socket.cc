#include "vrdmad/worker/raw_gsi_socket.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <cerrno>
#include <utility>

namespace vrdma::vrdmad {

using transport::AddressedMad;

namespace {

constexpr int kPerPass = 64;  // messages, as EventLoop::kPostedPerPass

}  // namespace

RawGsiMessage RawGsiMessage::of(uint64_t opening, const AddressedMad& all) {
  RawGsiMessage message;
  message.kind = Kind::kMad;
  message.opening = opening;
  message.source = all.header.source.bytes;
  message.destination = all.header.destination.bytes;
  message.traffic_class = all.header.traffic_class;
  message.hop_limit = all.header.hop_limit;
  message.flow_label = all.header.flow_label;
  message.mad = all.mad;
  return message;
}

AddressedMad RawGsiMessage::addressed_mad() const {
  AddressedMad all;
  all.header.source.bytes = source;
  all.header.destination.bytes = destination;
  all.header.traffic_class = traffic_class;
  all.header.hop_limit = hop_limit;
  all.header.flow_label = flow_label;
  all.mad = mad;
  return all;
}

base::Result<void> RawGsiSocket::begin(base::Fd socket) {
  watch_.reset();
  socket_ = std::move(socket);
  auto watched = watch(EPOLLIN);
  if (!watched) socket_.reset();
  return watched;
}

base::Result<void> RawGsiSocket::watch(uint32_t events) {
  watch_.reset();
  auto watch = loop_.watch(socket_.get(), events, [this](uint32_t ready) { on_ready(ready); });
  if (!watch) return base::pass(std::move(watch.error()));
  watch_ = std::move(*watch);
  return {};
}

bool RawGsiSocket::send(const RawGsiMessage& message) const {
  return socket_.valid() && ::send(socket_.get(), &message, sizeof message,
                                   MSG_DONTWAIT | MSG_NOSIGNAL) == sizeof message;
}

void RawGsiSocket::await_room() {
  if (socket_.valid() && !watch(EPOLLIN | EPOLLOUT)) end(false);
}

void RawGsiSocket::on_ready(uint32_t events) {
  if ((events & EPOLLOUT) != 0) {
    if (!watch(EPOLLIN)) return end(false);
    owner_.on_room();
  }
  for (int left = kPerPass; left > 0 && socket_.valid(); --left) {
    RawGsiMessage message;
    iovec data{&message, sizeof message};
    msghdr header{};
    header.msg_iov = &data;
    header.msg_iovlen = 1;
    const ssize_t length = ::recvmsg(socket_.get(), &header, MSG_DONTWAIT | MSG_TRUNC);
    if (length < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (length <= 0) return end(false);
    // The kernel drops descriptors for which there is no room, and says so.
    const bool whole = length == sizeof message && (header.msg_flags & MSG_CTRUNC) == 0;
    if (!whole || !owner_.on_message(message)) return end(true);
  }
}

void RawGsiSocket::end(bool broken) {
  watch_.reset();
  socket_.reset();
  owner_.on_end(broken);
}

}  // namespace vrdma::vrdmad
