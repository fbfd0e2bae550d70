// Stream sockets over RDMA: lifetime, addresses, connecting and closing.
#include <netinet/in.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "client/rsocket/address.h"
#include "client/rsocket/stream.h"

namespace vrdma::client {

namespace {

constexpr int kResolveTimeout = 2000;  // ms
constexpr timeval kCloseLimit{5, 0};   // for a peer that does not respond

int error_of(const rdma_cm_event& event) {
  switch (event.event) {
    case RDMA_CM_EVENT_REJECTED:
      return ECONNREFUSED;
    case RDMA_CM_EVENT_UNREACHABLE:
      return ETIMEDOUT;
    case RDMA_CM_EVENT_ADDR_ERROR:
    case RDMA_CM_EVENT_ROUTE_ERROR:
      return event.status == -ETIMEDOUT ? EHOSTUNREACH
             : event.status < 0         ? -event.status
                                        : ENETUNREACH;
    case RDMA_CM_EVENT_DEVICE_REMOVAL:
      return ENETDOWN;
    default:
      return event.status < 0 ? -event.status : ECONNRESET;
  }
}

}  // namespace

int RStream::prepare_id() {
  if (id_ != nullptr) return 0;
  if (const int error = open_channel(); error != 0) return error;
  if (rdma_create_id(channel_, &id_, nullptr, RDMA_PS_TCP) != 0) return -errno;
  return apply_options();
}

RStream::~RStream() { release(); }

void RStream::release() {
  for (const Mapping& mapping : mappings_) (void)ibv_dereg_mr(mapping.region);
  mappings_.clear();
  if (id_ != nullptr && id_->qp != nullptr) rdma_destroy_qp(id_);
  for (ibv_mr** region : {&told_region_, &received_region_, &sent_region_})
    if (*region != nullptr) (void)ibv_dereg_mr(std::exchange(*region, nullptr));
  if (completions_.fd() >= 0) unwatch(completions_.fd());
  completions_.destroy();
  if (id_ != nullptr) rdma_destroy_id(std::exchange(id_, nullptr));
  if (channel_ != nullptr) {
    unwatch(channel_->fd);
    rdma_destroy_event_channel(std::exchange(channel_, nullptr));
  }
  bound_ = established_ = false;
}

int RStream::bind(const sockaddr* address) {
  const Lock lock(mutex_);
  if (bound_ || phase_ != Phase::kIdle) return -EINVAL;
  if (const int error = prepare_id(); error != 0) return error;
  if (rdma_bind_addr(id_, const_cast<sockaddr*>(address)) != 0)
    return errno == ENODEV ? -EADDRNOTAVAIL : -errno;
  bound_ = true;
  return 0;
}

int RStream::listen(int backlog) {
  bool bound = false;
  {
    const Lock lock(mutex_);
    if (phase_ == Phase::kListening) return 0;
    if (phase_ != Phase::kIdle) return -EINVAL;
    bound = bound_;
  }
  if (!bound) {
    sockaddr_storage any{};
    any.ss_family = static_cast<sa_family_t>(domain_);
    if (const int error = bind(reinterpret_cast<sockaddr*>(&any)); error != 0) return error;
  }
  const Lock lock(mutex_);
  if (rdma_listen(id_, backlog) != 0) return -errno;
  phase_ = Phase::kListening;
  return 0;
}

// ---- the active side ----------------------------------------------------------------------------

int RStream::connect(const sockaddr* address) {
  Lock lock(mutex_);
  switch (phase_) {
    case Phase::kListening:
    case Phase::kConnected:
      return -EISCONN;
    case Phase::kConnecting:
      if (nonblocking_) return -EALREADY;
      break;
    case Phase::kFailed:
      release();
      phase_ = Phase::kIdle;
      [[fallthrough]];
    case Phase::kIdle:
      if (const int error = prepare_id(); error != 0) return error;
      error_ = 0;
      if (rdma_resolve_addr(id_, nullptr, const_cast<sockaddr*>(address), kResolveTimeout) != 0)
        return errno == ENODEV ? -ENETUNREACH : -errno;
      phase_ = Phase::kConnecting;
  }
  const int waited =
      wait(lock, nonblocking_, send_limit_, [&] { return phase_ != Phase::kConnecting; });
  if (waited == -EAGAIN) return -EINPROGRESS;
  if (waited != 0) return waited;
  return connected() ? 0 : -std::exchange(error_, 0);
}

void RStream::fail_connect(int error) {
  phase_ = Phase::kFailed;
  error_ = error;
}

int RStream::create_endpoint() {
  ibv_device_attr limits{};
  if (ibv_query_device(id_->verbs, &limits) != 0) return -ENODEV;
  constexpr uint32_t kLeast = 16, kMost = 0x7fff;  // the credit counters differ by at most 15 bits
  const uint32_t most = std::min(static_cast<uint32_t>(limits.max_qp_wr), kMost);
  if (most <= kRsControls) return -ENOBUFS;  // the quota
  send_depth_ = std::clamp(send_depth_, std::min(kLeast, most), most);
  receive_depth_ = std::clamp(receive_depth_, std::min(kLeast, most), most);

  if (const int error = completions_.create(id_->verbs, send_depth_ + receive_depth_); error != 0)
    return error;
  if (const int error = watch(completions_.fd()); error != 0) return error;

  uint32_t inline_bytes = std::max<uint32_t>(inline_, sizeof(RsIomap));  // control writes
  if (const int error = completions_.create_queue_pair(id_, IBV_QPT_RC, send_depth_, receive_depth_,
                                                       &inline_bytes);
      error != 0)
    return error;
  inline_ = inline_bytes;

  told_.assign(kRsAreas * sizeof(RsArea) + own_iomaps_ * sizeof(RsIomap), 0);
  received_.assign(receive_size_, 0);
  sent_.assign(send_size_, 0);
  told_region_ = ibv_reg_mr(id_->pd, told_.data(), told_.size(),
                            IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
  received_region_ = ibv_reg_mr(id_->pd, received_.data(), received_.size(),
                                IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
  sent_region_ = ibv_reg_mr(id_->pd, sent_.data(), sent_.size(), IBV_ACCESS_LOCAL_WRITE);
  if (told_region_ == nullptr || received_region_ == nullptr || sent_region_ == nullptr)
    return -errno;
  in_ = ReceiveRing(receive_size_, static_cast<uint16_t>(receive_depth_));
  out_ = SendRing(send_size_);
  controls_ = kRsControls;
  slots_ = send_depth_ - kRsControls;
  return post_receives(receive_depth_);
}

RsHello RStream::hello() const {
  RsHello hello;
  hello.credits = static_cast<uint16_t>(receive_depth_);
  hello.iomaps = rs_to_scale(own_iomaps_);
  hello.list = {reinterpret_cast<uintptr_t>(told_.data()), told_region_->rkey, kRsAreas};
  hello.buffer = {reinterpret_cast<uintptr_t>(received_.data()), received_region_->rkey,
                  receive_size_ / 2};
  return hello;
}

// False: the peer is not a socket over RDMA.
bool RStream::meet(const rdma_conn_param& told) {
  if (told.private_data == nullptr) return false;
  const auto hello =
      RsHello::decode({static_cast<const uint8_t*>(told.private_data), told.private_data_len});
  if (!hello) return false;
  credits_ = SendCredits(hello->credits);
  peer_list_ = hello->list;
  peer_entry_ = 1 % peer_list_.length;
  peer_iomaps_ = rs_from_scale(hello->iomaps);
  areas_[0] = hello->buffer;
  areas_[1] = {};
  target_ = 0;
  taken_ = 1;
  return true;
}

void RStream::on_event(const rdma_cm_event& event) {
  int error = 0;
  switch (event.event) {
    case RDMA_CM_EVENT_ADDR_RESOLVED:
      if (rdma_resolve_route(id_, kResolveTimeout) != 0) error = errno;
      break;
    case RDMA_CM_EVENT_ROUTE_RESOLVED: {
      error = -create_endpoint();
      if (error != 0) break;
      const auto data = hello().encode();
      rdma_conn_param param{};
      param.private_data = data.data();
      param.private_data_len = static_cast<uint8_t>(data.size());
      param.flow_control = 1;
      param.retry_count = param.rnr_retry_count = 7;
      if (rdma_connect(id_, &param) != 0) error = errno;
      break;
    }
    case RDMA_CM_EVENT_ESTABLISHED:
      if (phase_ == Phase::kConnecting) {
        if (!meet(event.param.conn)) {
          (void)rdma_disconnect(id_);
          error = EPROTO;
          break;
        }
        phase_ = Phase::kConnected;
        reads_ = writes_ = true;
      }
      established_ = true;
      break;
    case RDMA_CM_EVENT_DISCONNECTED:
      if (connected()) process();  // what arrived before
      if (!gone_) error = ECONNRESET;
      break;
    case RDMA_CM_EVENT_ADDR_CHANGE:
    case RDMA_CM_EVENT_TIMEWAIT_EXIT:
      break;
    default:
      error = error_of(event);
  }
  if (error == 0) return;
  if (phase_ == Phase::kConnecting)
    fail_connect(error);
  else if (connected())
    end(error);
}

void RStream::take_events() {
  if (channel_ == nullptr || phase_ == Phase::kListening || phase_ == Phase::kIdle) return;
  rdma_cm_event* event = nullptr;
  while (rdma_get_cm_event(channel_, &event) == 0) {
    on_event(*event);
    rdma_ack_cm_event(event);
  }
  if (errno == EAGAIN || errno == EINTR) return;
  unwatch(channel_->fd);  // the daemon ended
  if (phase_ == Phase::kConnecting) fail_connect(ENETDOWN);
  if (connected() && !gone_) end(ENETDOWN);
}

// ---- the passive side ---------------------------------------------------------------------------

namespace {

// The next request, or a negative errno.
int next_request(rdma_event_channel* channel, rdma_cm_event** event) {
  while (rdma_get_cm_event(channel, event) == 0) {
    if ((*event)->event == RDMA_CM_EVENT_CONNECT_REQUEST && (*event)->status == 0) return 0;
    rdma_cm_id* id = (*event)->listen_id != nullptr ? (*event)->id : nullptr;
    rdma_ack_cm_event(*event);
    if (id != nullptr) rdma_destroy_id(id);
  }
  return -errno;
}

}  // namespace

// The connection may be incomplete when this returns: sends wait for it.
int RStream::accept(std::shared_ptr<RSocket>* made) {
  Lock lock(mutex_);
  if (phase_ != Phase::kListening) return -EINVAL;
  for (;;) {
    rdma_cm_event* event = nullptr;
    int error = next_request(channel_, &event);
    if (error == -EAGAIN) {
      error = wait(lock, nonblocking_, receive_limit_, [&] {
        pollfd ready{channel_->fd, POLLIN, 0};
        return closed_ || ::poll(&ready, 1, 0) > 0;
      });
      if (closed_) return -EINVAL;  // as after shutdown(2)
      if (error == 0) continue;
    }
    if (error != 0) return error;
    auto socket = std::make_shared<RStream>(domain_);
    error = socket->take_request(*this, *event);
    rdma_ack_cm_event(event);
    if (error == 0) {
      *made = std::move(socket);
      return 0;
    }
    if (error == -EMFILE || error == -ENFILE || error == -ENOMEM) return error;
    // The client has gone, or is not a socket over RDMA. Try the next request.
  }
}

int RStream::take_request(const RStream& listener, const rdma_cm_event& event) {
  const Lock lock(mutex_);
  id_ = event.id;
  send_size_ = listener.send_size_;
  receive_size_ = listener.receive_size_;
  send_depth_ = listener.send_depth_;
  receive_depth_ = listener.receive_depth_;
  inline_ = listener.inline_;
  own_iomaps_ = listener.own_iomaps_;
  kept_ = listener.kept_;
  int error = open();
  if (error == 0) error = open_channel();
  if (error == 0 && rdma_migrate_id(id_, channel_) != 0) error = -errno;
  if (error == 0) error = create_endpoint();
  if (error == 0 && !meet(event.param.conn)) error = -EPROTO;
  if (error != 0) {
    (void)rdma_reject(id_, nullptr, 0);
    return error;
  }
  const auto data = hello().encode();
  rdma_conn_param param = event.param.conn;
  param.private_data = data.data();
  param.private_data_len = static_cast<uint8_t>(data.size());
  param.responder_resources = param.initiator_depth = 0;
  param.rnr_retry_count = 7;
  phase_ = Phase::kConnected;
  bound_ = reads_ = writes_ = true;
  return rdma_accept(id_, &param) == 0 ? 0 : -errno;
}

// ---- the end ------------------------------------------------------------------------------------

int RStream::shutdown(int how) {
  Lock lock(mutex_);
  if (how != SHUT_RD && how != SHUT_WR && how != SHUT_RDWR) return -EINVAL;
  if (phase_ == Phase::kListening && how != SHUT_WR) {
    // Wakes threads in accept().
    closed_ = true;
    nudge();
    return 0;
  }
  if (!connected()) return -ENOTCONN;
  const bool wrote = writes_;
  if (how != SHUT_WR) reads_ = false;
  if (how != SHUT_RD) {
    writes_ = false;
    shut_ = true;
  }
  nudge();
  if (writes_ || (!wrote && reads_)) return 0;
  const RsControl control = reads_ ? RsControl::kShutdown : RsControl::kDisconnect;
  (void)wait(
      lock, false, kCloseLimit,
      [&] { return (established_ && controls_ > 0) || end_ != 0 || gone_; }, Signals::kPass);
  if (usable() && controls_ > 0) (void)send_control(control);
  return 0;
}

void RStream::close() {
  bool talk = false;
  {
    const Lock lock(mutex_);
    talk = connected() && end_ == 0 && !gone_ && (reads_ || writes_);
  }
  if (talk) (void)shutdown(SHUT_RDWR);
  Lock lock(mutex_);
  closed_ = true;
  reads_ = writes_ = false;
  nudge();
  if (!connected()) return;
  // Whatever is queued when the connection ends is lost.
  (void)wait(
      lock, false, kCloseLimit, [&] { return all_sent() || end_ != 0; }, Signals::kPass);
  (void)rdma_disconnect(id_);
}

int RStream::name(bool of_peer, sockaddr* address, socklen_t* length) {
  sockaddr_storage found{};
  {
    const Lock lock(mutex_);
    if (of_peer && !connected()) return -ENOTCONN;
    // An address that was chosen for a connection ends with the attempt.
    if (id_ != nullptr && (bound_ || phase_ != Phase::kFailed))
      std::memcpy(&found,
                  of_peer ? static_cast<const void*>(&id_->route.addr.dst_storage)
                          : &id_->route.addr.src_storage,
                  sizeof found);
  }
  if (domain_ == AF_INET6 && found.ss_family == AF_INET)  // as for the kernel's sockets
    found = RsAddress::from(reinterpret_cast<const sockaddr*>(&found))->to(domain_);
  if (found.ss_family == 0) found.ss_family = static_cast<sa_family_t>(domain_);
  const socklen_t size = RsAddress::size(found.ss_family);
  if (address != nullptr) std::memcpy(address, &found, std::min(*length, size));
  *length = size;
  return 0;
}

}  // namespace vrdma::client
