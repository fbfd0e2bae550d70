#include "vrdmad/cm/session.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>

#include "core/base/random.h"
#include "vrdmad/cm/cm.h"

namespace vrdma::vrdmad {

using base::Fd;
using ipc::CmCall;
using qp1mux::CmEventType;
using qp1mux::CmService;

namespace {

int code(const base::Result<void>& result) { return result ? 0 : result.error().code(); }

std::optional<CmService> service_of(uint32_t qp_type) {
  if (qp_type > UINT8_MAX) return std::nullopt;  // the cast would truncate it
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

// How long a program wants to wait for a network.
base::Duration patience(uint32_t milliseconds) {
  constexpr uint32_t kMost = 60'000;
  if (milliseconds == 0) return qp1mux::CmId::kPatience;
  return std::chrono::milliseconds(std::min(milliseconds, kMost));
}

constexpr auto kBetweenArrivals = std::chrono::seconds(1);  // each may ask the broker

bool changes_nothing(CmCall call) {
  return call == CmCall::kQpAttributes || call == CmCall::kDevices || call == CmCall::kDevice;
}

}  // namespace

CmSession::CmSession(Cm& cm, std::shared_ptr<CmNamespace> space, const CmSessionFile::Who& who,
                     Fd socket, std::shared_ptr<Caller> caller,
                     std::function<void(CmSession*)> ended)
    : cm_(cm),
      space_(std::move(space)),
      user_(cm.user(*space_, who.process.uid())),
      ended_(std::move(ended)),
      talk_(cm.loop(), space_->intake, std::move(socket), std::move(caller), 0,
            [this] { on_socket(); }),
      who_(who) {}

void CmSession::set_counted(bool counted) {
  if (std::exchange(counted_, counted) == counted) return;
  if (counted) {
    space_->sessions.add();
    ++user_->sessions;
  } else {
    space_->sessions.remove();
    --user_->sessions;
  }
}

bool CmSession::has_secret(const uint8_t* secret) const {
  return !over_ && std::memcmp(secret, who_.secret.data(), sizeof who_.secret) == 0;
}

CmSession::~CmSession() {
  file_ = {};
  while (!channels_.empty()) remove_channel(channels_.begin()->first);
  while (!ids_.empty()) remove_id(ids_.begin()->first);
  set_counted(false);
  user_->requests.leave(*this);
  death_watch_.reset();
  parked_watch_.reset();
  talk_.close();
}

base::Result<std::unique_ptr<CmSession>> CmSession::start(Cm& cm,
                                                          std::shared_ptr<CmNamespace> space,
                                                          Arrival arrival,
                                                          std::function<void(CmSession*)> ended) {
  CmSessionFile::Who who{};
  who.netns = space->cookie;
  who.process = arrival.caller->peer();
  who.privileged = arrival.caller->peer().uid() == 0;
  for (uint64_t& part : who.secret) part = cm.secret();
  std::unique_ptr<CmSession> session(new CmSession(cm, std::move(space), who,
                                                   std::move(arrival.socket),
                                                   std::move(arrival.caller), std::move(ended)));
  session->set_counted(true);
  if (!session->talk_.listen()) return base::fail(ENFILE, "watch an rdma_cm session");
  return session;
}

uint64_t CmSession::netns() const { return space_->cookie; }

void CmSession::end() {
  if (std::exchange(over_, true)) return;
  talk_.stop();
  parked_watch_.reset();
  file_ = {};  // no daemon will take it over
  ended_(this);
}

bool CmSession::end_some() {
  constexpr int kAtOnce = 64;
  for (int i = 0; i < kAtOnce; ++i) {
    if (!channels_.empty())
      remove_channel(channels_.begin()->first);
    else if (!ids_.empty())
      remove_id(ids_.begin()->first);
    else
      return true;
  }
  return false;
}

void CmSession::end_badly() {
  ++cm_.counters().malformed;
  end();
}

// Watches again: the level-triggered socket reports what is unread.
void CmSession::admitted() {
  if (!over_ && parked_ == Parked::kNot && !talk_.listen()) end();
}

void CmSession::on_socket() {
  if (!user_->requests.admits(*this)) {
    ++cm_.counters().delayed;
    return talk_.stop();
  }
  ipc::CmRequest request;
  switch (talk_.hear(&request)) {
    case Talk::Heard::kNothing:
      return;
    case Talk::Heard::kEnd:
      return end();
    case Talk::Heard::kDescriptors:  // no request carries descriptors; the intake closes them
    case Talk::Heard::kNonsense:
      return end_badly();
    case Talk::Heard::kRequest:
      break;
  }
  provisioning::RequestRate::has_read(*this);
  if (!Talk::is_served(request)) {
    if (talk_.refuse_version(request, name()) != 0) end_badly();
    return;
  }
  ipc::CmReply reply;
  reply.sequence = request.sequence;
  Fd beside;
  if (talk_.caller() != nullptr) reply.error = identify();
  if (reply.error == 0 && request.call == CmCall::kResume) {
    reply.error = resume(request);
    if (reply.error == 0) return;
  } else if (reply.error == 0) {
    serve(request, &reply, &beside);
  }
  answer(&reply, beside);
  if (talk_.has_failed()) return end_badly();
  settle();
}

// Only the process that connected may start a session, and it must not have changed its program or
// user since. Later requests only give its addresses another chance to be on the network.
int CmSession::identify() {
  const base::TimePoint now = cm_.loop().now();
  if (now < arrives_again_) return 0;
  const bool first = arrives_again_ == base::TimePoint{};
  if (first)
    if (const auto who = talk_.check(); !who)
      return talk_.refuse(who.error(), name(), cm_.counters().unproven);
  arrives_again_ = now + kBetweenArrivals;
  CmNetwork* const network = cm_.network();
  if (network == nullptr || !network->arrived(netns(), *talk_.caller(), first))
    talk_.forget_caller();
  return 0;
}

void CmSession::serve(const ipc::CmRequest& request, ipc::CmReply* reply, Fd* beside) {
  const ipc::CmReply last = std::exchange(last_, {});
  if (last.sequence != 0 && last.sequence == request.sequence) {  // a repetition
    *reply = last;
    if (request.call == CmCall::kCreateChannel && last.error == 0)
      reply->error = open_channel(last.handle, reply, beside);
    return;
  }
  serving_ = true;
  reply->error = dispatch(request, reply, beside);
  serving_ = false;
  const bool made_an_id = reply->handle != 0;
  if (changes_nothing(request.call) && !made_an_id) return;
  if (const auto id = ids_.find(request.handle); id != ids_.end()) keep(*id->second);
  file_.put_answer(*reply);
  file_.commit();
  // Commit this file first: after a crash the id may be in both files, but not in none.
  if (CmSession* other = std::exchange(taken_from_, nullptr)) other->file_.commit();
}

void CmSession::answer(ipc::CmReply* reply, const Fd& beside) {
  std::vector<int> sent;
  if (beside.valid()) sent.push_back(beside.get());
  // A client that does not read replies is disconnected.
  if (const int error = talk_.answer(reply, sent); error != 0)
    error == EAGAIN ? end_badly() : end();
}

uint32_t CmSession::new_handle() {
  uint32_t& last = file_.numbers().handle;
  do {
    last = (last + 1) & ~ipc::kCmOwnHandle;
  } while (last == 0 || ids_.contains(last) || channels_.contains(last));
  return last;
}

CmSession::Id* CmSession::add_id(uint32_t channel, uint32_t handle) {
  if (!space_->ids.has_room()) {
    ++cm_.counters().crowded;
    return nullptr;
  }
  space_->ids.add();
  if (handle == 0) handle = new_handle();
  return ids_.emplace(handle, std::make_unique<Id>(*this, handle, channel)).first->second.get();
}

void CmSession::remove_id(uint32_t handle) {
  if (parked_ == Parked::kDetached)
    if (const auto id = ids_.find(handle); id != ids_.end() && id->second->cm)
      id->second->cm->leave(true);
  space_->ids.remove(static_cast<uint32_t>(ids_.erase(handle)));
  file_.erase_id(handle);
}

int CmSession::dispatch(const ipc::CmRequest& request, ipc::CmReply* reply, Fd* beside) {
  switch (request.call) {
    case CmCall::kCreateChannel:
      return create_channel(request, reply, beside);
    case CmCall::kDestroyChannel:
      if (!channels_.contains(request.handle)) return EINVAL;
      remove_channel(request.handle);
      return 0;
    case CmCall::kNudge:
      return nudge(request.channel);
    case CmCall::kTakeId:
      return take(request, reply);
    case CmCall::kDevices: {
      const auto guids = cm_.guids(netns());
      reply->count = static_cast<uint32_t>(std::min<size_t>(guids.size(), ipc::kCmDevices));
      for (uint32_t i = 0; i < reply->count; ++i) reply->guids[i] = known_as(guids[i]);
      file_.commit();
      return 0;
    }
    case CmCall::kDevice: {
      const CmDevice* const device = cm_.numbered(netns(), request.value);
      if (device == nullptr) return ENODEV;
      reply->device.node_guid = device->node_guid();
      device->name().copy(reply->device.name, sizeof reply->device.name - 1);
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
      return done(cm.resolve_addr(local, address(request.remote), patience(request.value)));
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

int CmSession::take(const ipc::CmRequest& request, ipc::CmReply* reply) {
  CmSession* other = cm_.session(netns(), request.param.data);
  if (other == nullptr || other == this || !other->ids_.contains(request.handle) ||
      !channels_.contains(request.channel))
    return EINVAL;
  reply->handle = take_from(*other, request.handle, request.channel);
  reply->where = where(*ids_.at(reply->handle)->cm);
  taken_from_ = other;
  return 0;
}

// Moves the id here with its unread events and the connection requests that they announce.
uint32_t CmSession::take_from(CmSession& other, uint32_t handle, uint32_t channel) {
  Id& old = *other.ids_.at(handle);
  const uint32_t own = new_handle();
  Id& id = *ids_.emplace(own, std::make_unique<Id>(*this, own, channel)).first->second;
  id.cm = std::move(old.cm);
  id.cm->set_handler(&id);
  id.backlog = old.backlog;
  id.unheard = old.unheard;
  std::vector<CmEvents::Unread> untold = other.events_.take_about(handle);
  other.ids_.erase(handle);
  other.file_.erase_id(handle);
  other.forget_request(handle);
  for (auto& event : untold) {
    other.heard(event);
    event.charge.reset();
    ipc::CmEventMessage& message = event.message;
    message.handle = own;
    if (message.request != 0) message.request = take_from(other, message.request, channel);
    push(channel, message);
  }
  keep(id);
  return own;
}

int CmSession::create_id(const ipc::CmRequest& request, ipc::CmReply* reply) {
  const auto space = space_of(request.space);
  const auto service = service_of(request.qp_type);
  if (!space || !service) return EOPNOTSUPP;
  if (!channels_.contains(request.channel)) return EINVAL;
  Id* id = add_id(request.channel, request.handle);
  if (id == nullptr) return ENOMEM;
  id->cm =
      std::make_unique<qp1mux::CmId>(cm_.host(), netns(), *space, *service, base::random32(), id);
  id->cm->options().privileged = who_.privileged;
  reply->handle = id->handle;
  return 0;
}

int CmSession::set_option(const ipc::CmRequest& request, qp1mux::CmId& cm) {
  switch (static_cast<ipc::CmOption>(request.value)) {
    case ipc::CmOption::kTos:
      cm.options().tos = static_cast<uint8_t>(request.setting);
      return 0;
    case ipc::CmOption::kReuseAddress:
      cm.options().reuse = request.setting != 0;
      return 0;
    case ipc::CmOption::kFamilyOnly:
      cm.options().family_only = request.setting != 0;
      return 0;
    case ipc::CmOption::kAckTimeout:
      if (request.setting > 31) return EINVAL;
      cm.options().ack_timeout = static_cast<uint8_t>(request.setting);
      return 0;
    case ipc::CmOption::kMinRnrTimer:
      if (request.setting > 31) return EINVAL;
      cm.options().min_rnr_timer = static_cast<uint8_t>(request.setting);
      return 0;
  }
  return ENOSYS;
}

// Drops the event that announces the request.
void CmSession::forget_request(uint32_t handle) {
  if (const auto announcement = events_.take_announcement(handle)) heard(*announcement);
}

// Destroys its unread events and the connection requests that they announce as well.
void CmSession::destroy_id(uint32_t handle) {
  forget_request(handle);
  std::vector<uint32_t> lost;
  for (const auto& event : events_.take_about(handle)) {
    if (event.message.request != 0) lost.push_back(event.message.request);
    heard(event);
  }
  remove_id(handle);
  for (const uint32_t request : lost) remove_id(request);
}

ipc::CmAttributes CmSession::attributes(const qp1mux::CmId& cm, const ipc::CmWhere& where) {
  ipc::CmAttributes all{};
  using verbs::QpState;
  for (size_t i = 0; const QpState state : {QpState::kInit, QpState::kRtr, QpState::kRts})
    all.masks[i++] = cm.qp_attributes(state, &all.attributes).value_or(0);
  all.attributes.av.sgid_index = where.sgid_index;
  return all;
}

ipc::CmAddress CmSession::address_of(const qp1mux::Address& from) {
  ipc::CmAddress to{};
  std::copy(from.gid.bytes.begin(), from.gid.bytes.end(), to.gid);
  to.port = from.port;
  return to;
}

ipc::CmWhere CmSession::where(const qp1mux::CmId& cm) {
  ipc::CmWhere where{};
  where.local = address_of(cm.local());
  where.remote = address_of(cm.remote());
  const CmDevice* device = cm_.device(cm.endpoint());
  if (device == nullptr) return where;
  where.node_guid = known_as(device->node_guid());
  where.sgid_index = device->sgid_index(cm.local().gid);
  where.hop_limit = cm.route().hop_limit;
  where.traffic_class = cm.options().tos;
  where.path_mtu = cm.path_mtu() != 0 ? cm.path_mtu() : device->path_mtu();
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
