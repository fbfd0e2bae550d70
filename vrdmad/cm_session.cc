#include "vrdmad/cm_session.h"

#include <spdlog/spdlog.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>

#include "core/ipc/socket.h"
#include "vrdmad/cm.h"
#include "vrdmad/strange_fds.h"

namespace vrdma::vrdmad {

using base::Fd;
using ipc::CmCall;
using qp1mux::CmEventType;
using qp1mux::CmService;

namespace {

int code(const base::Result<void>& result) { return result ? 0 : result.error().code(); }

std::optional<CmService> service_of(uint32_t qp_type) {
  if (qp_type > UINT8_MAX) return std::nullopt;  // what the cast would cut off
  switch (static_cast<verbs::QpType>(qp_type)) {
    case verbs::QpType::kRc:
      return CmService::kRc;
    case verbs::QpType::kUc:
      return CmService::kUc;
    case verbs::QpType::kUd:
      return CmService::kUd;
    case verbs::QpType::kXrcInitiator:
    case verbs::QpType::kXrcTarget:
      return CmService::kXrc;
    case verbs::QpType::kGsi:
    case verbs::QpType::kRawPacket:
      break;  // has no peer
  }
  return std::nullopt;
}

std::optional<wire::PortSpace> space_of(uint32_t value) {
  for (const auto space : {wire::PortSpace::kTcp, wire::PortSpace::kUdp, wire::PortSpace::kIb})
    if (value == static_cast<uint32_t>(space)) return space;
  return std::nullopt;
}

qp1mux::ConnParam param_of(const ipc::CmParam& from) {
  qp1mux::ConnParam param;
  param.responder_resources = from.responder_resources;
  param.initiator_depth = from.initiator_depth;
  param.retry_count = from.retry_count;
  param.rnr_retry_count = from.rnr_retry_count;
  param.flow_control = from.flow_control != 0;
  param.srq = from.srq != 0;
  param.qpn = from.qpn;
  param.qkey = from.qkey;
  param.private_data = {from.data, from.length};
  return param;
}

// What rdma_cm's events carry private data.
bool has_private_data(CmEventType type) {
  return type == CmEventType::kConnectRequest || type == CmEventType::kConnectResponse ||
         type == CmEventType::kRejected || type == CmEventType::kEstablished;
}

ipc::CmParam param_of(CmEventType type, const qp1mux::ConnParam& from) {
  ipc::CmParam param{};
  param.responder_resources = from.responder_resources;
  param.initiator_depth = from.initiator_depth;
  param.retry_count = from.retry_count;
  param.rnr_retry_count = from.rnr_retry_count;
  param.flow_control = from.flow_control ? 1 : 0;
  param.srq = from.srq ? 1 : 0;
  param.qpn = from.qpn;
  param.qkey = from.qkey;
  if (!has_private_data(type)) return param;
  const size_t length = std::min<size_t>(from.private_data.size(), ipc::kCmPrivateData);
  std::copy_n(from.private_data.begin(), length, param.data);
  param.length = static_cast<uint8_t>(length);
  return param;
}

ipc::CmAddress address_of(const qp1mux::Address& from) {
  ipc::CmAddress to{};
  std::copy(from.gid.bytes.begin(), from.gid.bytes.end(), to.gid);
  to.port = from.port;
  return to;
}

}  // namespace

CmSession::CmSession(Cm& cm, std::shared_ptr<CmNamespace> space, Fd socket,
                     std::function<void(CmSession*)> ended)
    : cm_(cm), space_(std::move(space)), socket_(std::move(socket)), ended_(std::move(ended)) {
  ++space_->sessions;
  for (uint64_t& part : secret_) part = cm_.secret();
}

bool CmSession::has_secret(const uint8_t* secret) const {
  return !over_ && std::memcmp(secret, secret_.data(), sizeof secret_) == 0;
}

CmSession::~CmSession() {
  while (!channels_.empty()) remove_channel(channels_.begin()->first);
  while (!ids_.empty()) remove_id(ids_.begin()->first);
  --space_->sessions;
  watch_.reset();  // before another thread closes what it watches
  close_connection(std::move(socket_));
}

base::Result<std::unique_ptr<CmSession>> CmSession::start(Cm& cm,
                                                          std::shared_ptr<CmNamespace> space,
                                                          Fd socket,
                                                          std::function<void(CmSession*)> ended) {
  std::unique_ptr<CmSession> session(
      new CmSession(cm, std::move(space), std::move(socket), std::move(ended)));
  ucred who{};
  socklen_t size = sizeof who;
  session->privileged_ =
      ::getsockopt(session->socket_.get(), SOL_SOCKET, SO_PEERCRED, &who, &size) == 0 &&
      who.uid == 0;
  auto watch = cm.loop().watch(session->socket_.get(), EPOLLIN | EPOLLRDHUP,
                               [raw = session.get()](uint32_t) { raw->on_socket(); });
  if (!watch) return base::pass(std::move(watch.error()));
  session->watch_ = std::move(*watch);
  return session;
}

uint64_t CmSession::netns() const { return space_->inode; }

void CmSession::end() {
  if (std::exchange(over_, true)) return;
  watch_.reset();
  ended_(this);
}

void CmSession::end_badly() {
  ++cm_.counters().malformed;
  end();
}

void CmSession::on_socket() {
  ipc::CmRequest request;
  StrangeFds fds;
  const auto received = ipc::receive_message(socket_.get(), &request, sizeof request, &fds);
  if (!received && received.error().code() == EAGAIN) return;
  if (!received && received.error().code() == ECONNRESET) return end();
  if (!received || !fds.empty() || request.magic != ipc::kCmMagic) return end_badly();
  ipc::CmReply reply;
  reply.sequence = request.sequence;
  Fd beside;
  reply.error =
      request.version == ipc::kCmVersion ? dispatch(request, &reply, &beside) : EPROTONOSUPPORT;
  if (request.quiet != 0) return;
  std::vector<int> sent;
  if (beside.valid()) sent.push_back(beside.get());
  // Who does not read the answers does not get to ask more.
  if (auto ok = ipc::send_message(socket_.get(), &reply, sizeof reply, sent); !ok)
    ok.error().code() == EAGAIN ? end_badly() : end();
}

uint32_t CmSession::new_handle() {
  do {
    next_handle_ = (next_handle_ + 1) & ~ipc::kCmOwnHandle;
  } while (next_handle_ == 0 || ids_.contains(next_handle_) || channels_.contains(next_handle_));
  return next_handle_;
}

CmSession::Id* CmSession::add_id(uint32_t channel, uint32_t handle) {
  if (space_->ids >= CmNamespace::kMaxIds) {
    ++cm_.counters().crowded;
    return nullptr;
  }
  ++space_->ids;
  if (handle == 0) handle = new_handle();
  return ids_.emplace(handle, std::make_unique<Id>(*this, handle, channel)).first->second.get();
}

void CmSession::remove_id(uint32_t handle) {
  space_->ids -= static_cast<uint32_t>(ids_.erase(handle));
}

int CmSession::dispatch(const ipc::CmRequest& request, ipc::CmReply* reply, Fd* beside) {
  switch (request.call) {
    case CmCall::kCreateChannel:
      return create_channel(reply, beside);
    case CmCall::kNudge:
      return nudge(request.channel);
    case CmCall::kTakeId:
      return take(request, reply);
    case CmCall::kDevices: {
      const auto guids = cm_.guids(netns());
      reply->count = static_cast<uint32_t>(std::min<size_t>(guids.size(), ipc::kCmDevices));
      std::copy_n(guids.begin(), reply->count, reply->guids);
      return 0;
    }
    default:
      break;
  }
  auto it = ids_.find(request.handle);
  if (it == ids_.end() && (request.handle & ipc::kCmOwnHandle) != 0 && request.space != 0) {
    if (const int error = create_id(request, reply); error != 0) return error;
    it = ids_.find(request.handle);
  }
  if (it == ids_.end()) return EINVAL;
  return command(request, *it->second, reply);
}

int CmSession::command(const ipc::CmRequest& request, Id& id, ipc::CmReply* reply) {
  qp1mux::CmId& cm = *id.cm;
  const auto done = [&](const base::Result<void>& result) {
    if (result) reply->where = where(cm);
    return code(result);
  };
  if (request.param.length > ipc::kCmPrivateData) return EINVAL;
  switch (request.call) {
    case CmCall::kCreateId:
      return 0;
    case CmCall::kDestroyId:
      destroy_id(request.handle);
      return 0;
    case CmCall::kMigrateId:
      return migrate(id, request.channel);
    case CmCall::kBind:
      return done(cm.bind(address(request.local)));
    case CmCall::kResolveAddr: {
      std::optional<qp1mux::Address> local;
      if (request.has_local != 0) local = address(request.local);
      return done(cm.resolve_addr(local, address(request.remote)));
    }
    case CmCall::kResolveRoute:
      return done(cm.resolve_route());
    case CmCall::kListen: {
      const bool fits = request.value >= 1 && request.value <= kMaxBacklog;
      id.backlog = fits ? request.value : kMaxBacklog;
      const int status = done(cm.listen(id.backlog));
      if (status == 0) spdlog::debug("netns {}: port {} listens", netns(), cm.local().port);
      return status;
    }
    case CmCall::kConnect:
      return code(cm.connect(param_of(request.param)));
    case CmCall::kAccept:
      return code(cm.accept(param_of(request.param)));
    case CmCall::kConfirm:
      return code(cm.confirm());
    case CmCall::kReject:
      return code(cm.reject(param_of(request.param).private_data,
                            static_cast<wire::RejectReason>(request.value)));
    case CmCall::kDisconnect:
      return code(cm.disconnect());
    case CmCall::kEstablish:
      return code(cm.establish());
    case CmCall::kQpAttributes: {
      auto mask = cm.qp_attributes(static_cast<verbs::QpState>(request.value), &reply->attributes);
      if (!mask) return mask.error().code();
      reply->mask = *mask;
      reply->where = where(cm);
      reply->attributes.av.sgid_index = reply->where.sgid_index;
      return 0;
    }
    case CmCall::kJoin:
      return code(cm.join(address(request.remote).gid, request.value));
    case CmCall::kSetOption:
      return set_option(request, cm);
    default:
      return EINVAL;
  }
}

int CmSession::create_channel(ipc::CmReply* reply, Fd* beside) {
  if (space_->channels >= CmNamespace::kMaxChannels) {
    ++cm_.counters().crowded;
    return EMFILE;
  }
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0) return ENFILE;
  // Nobody sends to it: so there are never a stranger's descriptors in it.
  ::shutdown(ends[0], SHUT_RD);
  ++space_->channels;
  Channel channel;
  channel.socket = Fd(ends[0]);
  *beside = Fd(ends[1]);
  const uint32_t handle = new_handle();
  watch_channel(handle, channels_.emplace(handle, std::move(channel)).first->second, 0);
  reply->handle = handle;
  std::copy(secret_.begin(), secret_.end(), reply->guids);
  return 0;
}

int CmSession::nudge(uint32_t handle) {
  const auto it = channels_.find(handle);
  if (it == channels_.end()) return EINVAL;
  ipc::CmEventMessage message;
  message.type = ipc::kCmNudge;
  push(it->second, message);
  flush(handle);
  return 0;
}

int CmSession::migrate(Id& id, uint32_t handle) {
  const auto to = channels_.find(handle), from = channels_.find(id.channel);
  if (to == channels_.end()) return EINVAL;
  if (from != channels_.end() && from != to)
    std::erase_if(from->second.queue, [&](const ipc::CmEventMessage& message) {
      if (message.handle != id.handle) return false;
      to->second.queue.push_back(message);
      return true;
    });
  id.channel = handle;
  flush(handle);
  return 0;
}

int CmSession::take(const ipc::CmRequest& request, ipc::CmReply* reply) {
  CmSession* other = cm_.session(netns(), request.param.data);
  if (other == nullptr || other == this || !other->ids_.contains(request.handle) ||
      !channels_.contains(request.channel))
    return EINVAL;
  reply->handle = take_from(*other, request.handle, request.channel);
  reply->where = where(*ids_.at(reply->handle)->cm);
  flush(request.channel);
  return 0;
}

// The id is ours from now on, with what it had to tell and nobody has heard, and with the requests
// in that.
uint32_t CmSession::take_from(CmSession& other, uint32_t handle, uint32_t channel) {
  Id& old = *other.ids_.at(handle);
  const uint32_t own = new_handle();
  Id& id = *ids_.emplace(own, std::make_unique<Id>(*this, own, channel)).first->second;
  id.cm = std::move(old.cm);
  id.cm->set_handler(&id);
  id.backlog = old.backlog;
  id.unheard = old.unheard;
  std::deque<ipc::CmEventMessage> untold;
  if (const auto from = other.channels_.find(old.channel); from != other.channels_.end())
    std::erase_if(from->second.queue, [&](const ipc::CmEventMessage& message) {
      if (message.handle == handle) untold.push_back(message);
      return message.handle == handle;
    });
  other.ids_.erase(handle);
  for (auto& message : untold) {
    --other.unread_;
    ++unread_;
    message.handle = own;
    if (message.request != 0) message.request = take_from(other, message.request, channel);
    channels_.at(channel).queue.push_back(message);
  }
  return own;
}

void CmSession::remove_channel(uint32_t handle) {
  Channel& channel = channels_.at(handle);
  for (const auto& message : channel.queue) heard(message);
  channels_.erase(handle);
  --space_->channels;
}

int CmSession::create_id(const ipc::CmRequest& request, ipc::CmReply* reply) {
  const auto space = space_of(request.space);
  const auto service = service_of(request.qp_type);
  if (!space || !service) return EOPNOTSUPP;
  if (!channels_.contains(request.channel)) return EINVAL;
  Id* id = add_id(request.channel, request.handle);
  if (id == nullptr) return ENOMEM;
  id->cm = std::make_unique<qp1mux::CmId>(cm_.host(), netns(), *space, *service, cm_.random(), id);
  id->cm->privileged = privileged_;
  reply->handle = id->handle;
  return 0;
}

int CmSession::set_option(const ipc::CmRequest& request, qp1mux::CmId& cm) {
  switch (static_cast<ipc::CmOption>(request.value)) {
    case ipc::CmOption::kTos:
      cm.tos = static_cast<uint8_t>(request.setting);
      return 0;
    case ipc::CmOption::kReuseAddress:
      cm.reuse = request.setting != 0;
      return 0;
    case ipc::CmOption::kFamilyOnly:
      cm.family_only = request.setting != 0;
      return 0;
    case ipc::CmOption::kAckTimeout:
      if (request.setting > 31) return EINVAL;
      cm.ack_timeout = static_cast<uint8_t>(request.setting);
      return 0;
    case ipc::CmOption::kMinRnrTimer:
      if (request.setting > 31) return EINVAL;
      cm.min_rnr_timer = static_cast<uint8_t>(request.setting);
      return 0;
  }
  return ENOSYS;
}

// What it had to tell and nobody has heard goes with it, and so do the requests in that.
void CmSession::destroy_id(uint32_t handle) {
  std::vector<uint32_t> lost;
  for (auto& [number, channel] : channels_)
    std::erase_if(channel.queue, [&](const ipc::CmEventMessage& message) {
      if (message.handle != handle) return false;
      if (message.request != 0) lost.push_back(message.request);
      heard(message);
      return true;
    });
  remove_id(handle);
  for (const uint32_t request : lost) remove_id(request);
}

void CmSession::Id::on_event(qp1mux::CmId&, qp1mux::CmEvent& event) { session.tell(*this, event); }

void CmSession::tell(Id& id, qp1mux::CmEvent& event) {
  const auto it = channels_.find(id.channel);
  if (over_ || it == channels_.end()) return;
  ipc::CmEventMessage message;
  message.type = static_cast<uint32_t>(event.type);
  message.status = event.status;
  message.handle = id.handle;
  message.param = param_of(event.type, event.param);
  const qp1mux::CmId* about = id.cm.get();
  if (event.request) {
    if (id.unheard >= id.backlog) return;  // dropped, it is refused
    Id* request = add_id(id.channel);
    if (request == nullptr) return;
    request->cm = std::move(event.request);
    request->cm->set_handler(request);
    about = request->cm.get();
    message.request = request->handle;
    ++id.unheard;
  }
  message.where = where(*about);
  if (event.type == CmEventType::kConnectRequest || event.type == CmEventType::kConnectResponse)
    message.attributes = attributes(*about, message.where);
  if (event.type == CmEventType::kMulticastJoin) {
    message.token = event.token;
    message.where.remote = address_of({event.group, 0});
  }
  push(it->second, message);
  flush(id.channel);
}

void CmSession::push(Channel& channel, const ipc::CmEventMessage& message) {
  channel.queue.push_back(message);
  ++unread_;
  if (++space_->events > CmNamespace::kMaxEvents) cm_.end_the_unread(space_);
}

// The message leaves its queue.
void CmSession::heard(const ipc::CmEventMessage& message) {
  --unread_;
  --space_->events;
  const auto it = ids_.find(message.handle);
  if (message.request != 0 && it != ids_.end()) --it->second->unheard;
}

// `events`: besides the end of the program's side, which always wakes.
void CmSession::watch_channel(uint32_t handle, Channel& channel, uint32_t events) {
  channel.watch.reset();
  auto watch = cm_.loop().watch(channel.socket.get(), events, [this, handle](uint32_t happened) {
    if ((happened & (EPOLLHUP | EPOLLERR)) != 0)
      remove_channel(handle);
    else
      flush(handle);
  });
  if (watch) channel.watch = std::move(*watch);
}

void CmSession::flush(uint32_t handle) {
  Channel& channel = channels_.at(handle);
  while (!channel.queue.empty()) {
    const auto sent = ::send(channel.socket.get(), &channel.queue.front(),
                             sizeof(ipc::CmEventMessage), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0 && errno == EAGAIN) {
      if (!std::exchange(channel.full, true)) watch_channel(handle, channel, EPOLLOUT);
      return;
    }
    heard(channel.queue.front());
    channel.queue.pop_front();  // also if the program has closed its end
  }
  if (std::exchange(channel.full, false)) watch_channel(handle, channel, 0);
}

ipc::CmAttributes CmSession::attributes(const qp1mux::CmId& cm, const ipc::CmWhere& where) {
  ipc::CmAttributes all{};
  using verbs::QpState;
  for (size_t i = 0; const QpState state : {QpState::kInit, QpState::kRtr, QpState::kRts})
    all.masks[i++] = cm.qp_attributes(state, &all.attributes).value_or(0);
  all.attributes.av.sgid_index = where.sgid_index;
  return all;
}

ipc::CmWhere CmSession::where(const qp1mux::CmId& cm) const {
  ipc::CmWhere where{};
  where.local = address_of(cm.local());
  where.remote = address_of(cm.remote());
  const CmDevice* device = cm_.device(cm.endpoint());
  if (device == nullptr) return where;
  where.node_guid = device->node_guid();
  where.sgid_index = device->sgid_index(cm.local().gid);
  where.hop_limit = cm.route().hop_limit;
  where.traffic_class = cm.tos;
  where.path_mtu = device->path_mtu();
  where.packet_life = cm.route().packet_life;
  return where;
}

qp1mux::Address CmSession::address(const ipc::CmAddress& from) const {
  qp1mux::Address to;
  std::copy_n(from.gid, to.gid.bytes.size(), to.gid.bytes.begin());
  to.gid = cm_.meant(netns(), to.gid);
  to.port = from.port;
  return to;
}

void CmSession::device_added(qp1mux::Endpoint& endpoint) {
  for (const auto& [handle, id] : ids_) id->cm->device_added(endpoint);
}

void CmSession::device_removed(const qp1mux::Endpoint& endpoint) {
  for (const auto& [handle, id] : ids_) id->cm->device_removed(endpoint);
}

}  // namespace vrdma::vrdmad
