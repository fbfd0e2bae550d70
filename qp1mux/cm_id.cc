#include "qp1mux/cm_id.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace vrdma::qp1mux {
namespace {

using verbs::QpState;

// The local ACK timeout: twice the packet life time and the peer's delay, as codes. Codes are
// powers of two, so the sum is the larger one, or one more if they are close.
uint8_t ack_timeout_of(uint8_t delay, uint8_t packet_life) {
  const int life = packet_life + 1;
  const int sum = std::max<int>(delay, life) + (std::abs(delay - life) <= 1 ? 1 : 0);
  return static_cast<uint8_t>(std::min(sum, 31));
}

wire::CmTransport transport_of(CmService service) {
  switch (service) {
    case CmService::kUc:
      return wire::CmTransport::kUc;
    case CmService::kXrc:
      return wire::CmTransport::kExtended;
    default:
      return wire::CmTransport::kRc;
  }
}

}  // namespace

CmId::CmId(CmHost& host, uint64_t netns, wire::PortSpace space, CmService service, uint32_t psn,
           CmIdHandler* handler)
    : host_(host),
      netns_(netns),
      space_(space),
      service_(service),
      psn_(psn & verbs::kPsnMask),
      handler_(handler) {}

CmId::~CmId() = default;

base::Result<void> CmId::in(std::initializer_list<CmIdState> states) const {
  if (state_ == CmIdState::kGone) return base::fail(ENODEV, "the device has gone");
  for (const CmIdState state : states)
    if (state_ == state) return {};
  return base::fail(EINVAL, "not possible in this state of the id");
}

void CmId::tell(CmEventType type, int status, const ConnParam& param) {
  CmEvent event;
  event.type = type;
  event.status = status;
  event.param = param;
  if (handler_ != nullptr) handler_->on_event(*this, event);
}

// From now on it is bound to the endpoint of the route.
base::Result<void> CmId::use(const Route& route) {
  if (route.endpoint != nullptr && route.endpoint != route_.endpoint) {
    auto charge = host_.routes.charge(*route.endpoint);
    if (!charge) return tl::unexpected(charge.error());
    charge_ = std::move(*charge);
  }
  route_ = route;
  return {};
}

base::Result<void> CmId::bind(const Address& local) {
  if (auto ok = in({CmIdState::kIdle}); !ok) return ok;
  Route route;
  route.local = local.gid;
  if (!local.gid.is_unspecified()) {
    auto found = host_.routes.owner(netns_, local.gid);
    if (!found) return tl::unexpected(found.error());
    route.endpoint = *found;
  }
  auto binding =
      host_.ports.bind({netns_, space_, local.gid, local.port, reuse, family_only, privileged});
  if (!binding) return tl::unexpected(binding.error());
  if (auto ok = use(route); !ok) return ok;
  binding_ = std::move(*binding);
  local_ = {local.gid, binding_.port()};
  state_ = CmIdState::kBound;
  return {};
}

base::Result<void> CmId::resolve_addr(const std::optional<Address>& local, const Address& remote) {
  if (auto ok = in({CmIdState::kIdle, CmIdState::kBound}); !ok) return ok;
  if (state_ == CmIdState::kIdle) {
    const Address any{verbs::Gid::unspecified(remote.gid.is_ipv4_mapped()), 0};
    if (auto ok = bind(local.value_or(any)); !ok) return ok;
  }
  auto route = host_.routes.find(netns_, local_.gid, remote.gid);
  auto used = route ? use(*route) : tl::unexpected(route.error());
  if (!used) {
    tell(CmEventType::kAddrError, -used.error().code());
    return {};
  }
  local_.gid = route_.local;
  remote_ = remote;
  path_mtu_ = route_.path_mtu;
  timeout_ = ack_timeout.value_or(ack_timeout_of(route_.ack_delay, route_.packet_life));
  state_ = CmIdState::kAddressResolved;
  tell(CmEventType::kAddrResolved);
  return {};
}

base::Result<void> CmId::resolve_route() {
  if (auto ok = in({CmIdState::kAddressResolved}); !ok) return ok;
  state_ = CmIdState::kRouteResolved;
  tell(CmEventType::kRouteResolved);
  return {};
}

base::Result<void> CmId::listen_on(Endpoint& endpoint) {
  // The wildcard of IPv6 is at all addresses unless told otherwise.
  std::optional<verbs::Gid> at;
  if (local_.gid != verbs::Gid() || family_only) at = local_.gid;
  auto listener = endpoint.listen(service_id(local_.port), at, backlog_, this);
  if (!listener) return tl::unexpected(listener.error());
  listeners_.emplace_back(&endpoint, std::move(*listener));
  return {};
}

base::Result<void> CmId::listen(uint32_t backlog) {
  if (state_ == CmIdState::kIdle)
    if (auto ok = bind({verbs::Gid::unspecified(true), 0}); !ok) return ok;
  if (auto ok = in({CmIdState::kBound}); !ok) return ok;
  if (auto ok = binding_.listen(); !ok) return ok;
  backlog_ = backlog;
  std::vector<Endpoint*> where;
  if (local_.gid.is_unspecified())
    where = host_.routes.all(netns_);
  else
    where = {route_.endpoint};
  for (Endpoint* endpoint : where) {
    if (auto ok = listen_on(*endpoint); !ok) {
      listeners_.clear();
      return ok;
    }
  }
  state_ = CmIdState::kListening;
  return {};
}

void CmId::device_added(Endpoint& endpoint) {
  // One that cannot be listened on is like a vdevice that is not there.
  if (state_ == CmIdState::kListening && local_.gid.is_unspecified()) (void)listen_on(endpoint);
}

void CmId::device_removed(const Endpoint& endpoint) {
  std::erase_if(listeners_, [&](const auto& at) { return at.first == &endpoint; });
  if (route_.endpoint != &endpoint) return;
  route_.endpoint = nullptr;
  charge_.reset();
  connection_.reset();
  state_ = CmIdState::kGone;
  tell(CmEventType::kDeviceRemoval);
}

Path CmId::path() const {
  Path path;
  path.local = local_.gid;
  path.remote = remote_.gid;
  path.roce = route_.roce;
  path.traffic_class = tos;
  path.hop_limit = route_.hop_limit;
  return path;
}

std::vector<uint8_t> CmId::with_header(PrivateData data) const {
  const wire::IpHeader header = wire::encode({local_.gid, remote_.gid, local_.port});
  std::vector<uint8_t> all(sizeof header + data.size());
  std::memcpy(all.data(), &header, sizeof header);
  std::copy(data.begin(), data.end(), all.begin() + sizeof header);
  return all;
}

base::Result<void> CmId::connect(const ConnParam& param) {
  if (auto ok = in({CmIdState::kRouteResolved}); !ok) return ok;
  const std::vector<uint8_t> data = with_header(param.private_data);
  Connection connection = route_.endpoint->connection(this);
  base::Result<void> sent;
  if (service_ == CmService::kUd) {
    SidrReq req;
    req.path = path();
    req.service_id = service_id(remote_.port);
    req.private_data = data;
    sent = connection.send_sidr_req(req);
  } else {
    Req req;
    req.path = path();
    req.service_id = service_id(remote_.port);
    req.transport = transport_of(service_);
    req.qpn = param.qpn;
    req.starting_psn = psn_;
    req.responder_resources = param.responder_resources;
    req.initiator_depth = param.initiator_depth;
    req.path_mtu = path_mtu_;
    req.retry_count = std::min<uint8_t>(param.retry_count, 7);
    req.rnr_retry_count = std::min<uint8_t>(param.rnr_retry_count, 7);
    req.ack_timeout = ack_timeout.value_or(timeout_);
    req.packet_life = route_.packet_life;
    req.srq = param.srq;
    req.flow_control = param.flow_control;
    req.private_data = data;
    sent = connection.send_req(req);
    responder_resources_ = param.responder_resources;
    initiator_depth_ = param.initiator_depth;
    retry_count_ = req.retry_count;
  }
  if (!sent) return sent;
  connection_ = std::move(connection);
  active_ = true;
  state_ = CmIdState::kConnecting;
  return {};
}

base::Result<void> CmId::accept(const ConnParam& param) {
  if (auto ok = in({CmIdState::kConnecting}); !ok) return ok;
  if (service_ == CmService::kUd) {
    SidrRep rep;
    rep.qpn = param.qpn;
    rep.qkey = param.qkey != 0 ? param.qkey : kDatagramQkey;
    rep.private_data = param.private_data;
    return connection_.send_sidr_rep(rep);
  }
  Rep rep;
  rep.qpn = param.qpn;
  rep.starting_psn = psn_;
  rep.responder_resources = param.responder_resources;
  rep.initiator_depth = param.initiator_depth;
  rep.target_ack_delay = route_.ack_delay;
  rep.rnr_retry_count = std::min<uint8_t>(param.rnr_retry_count, 7);
  rep.srq = param.srq;
  rep.flow_control = param.flow_control;
  rep.private_data = param.private_data;
  if (auto ok = connection_.send_rep(rep); !ok) return ok;
  responder_resources_ = param.responder_resources;
  initiator_depth_ = param.initiator_depth;
  return {};
}

base::Result<void> CmId::confirm() {
  if (auto ok = in({CmIdState::kConnecting}); !ok) return ok;
  return connection_.send_rtu();
}

base::Result<void> CmId::reject(PrivateData data, wire::RejectReason reason) {
  if (auto ok = in({CmIdState::kConnecting}); !ok) return ok;
  if (service_ == CmService::kUd) {
    SidrRep rep;
    rep.status = wire::SidrStatus::kReject;
    rep.private_data = data;
    return connection_.send_sidr_rep(rep);
  }
  Rej rej;
  rej.reason = reason;
  rej.private_data = data;
  return connection_.send_rej(rej);
}

base::Result<void> CmId::disconnect() {
  if (auto ok = in({CmIdState::kConnecting, CmIdState::kDisconnected}); !ok) return ok;
  if (connection_.state() == State::kDreqReceived) return connection_.send_drep();
  // Over, or under way: there is nothing left to do.
  if (connection_.state() == State::kDreqSent || connection_.state() == State::kTimewait ||
      connection_.state() == State::kClosed)
    return {};
  return connection_.send_dreq();
}

base::Result<void> CmId::establish() {
  if (auto ok = in({CmIdState::kConnecting}); !ok) return ok;
  if (connection_.state() == State::kEstablished) return base::fail(EISCONN, "it is established");
  if (auto ok = connection_.establish(); !ok) return ok;
  tell(CmEventType::kEstablished);
  return {};
}

// For want of something here.
void CmId::refuse(Connection& connection) const {
  if (service_ == CmService::kUd) {
    SidrRep rep;
    rep.status = wire::SidrStatus::kReject;
    (void)connection.send_sidr_rep(rep);
  } else {
    Rej rej;
    rej.reason = wire::RejectReason::kNoResources;
    (void)connection.send_rej(rej);
  }
}

base::Result<void> CmId::join(const verbs::Gid& group, uint32_t token) {
  if (auto ok = in({CmIdState::kBound, CmIdState::kAddressResolved, CmIdState::kRouteResolved});
      !ok)
    return ok;
  if (service_ != CmService::kUd || route_.endpoint == nullptr || !group.is_multicast())
    return base::fail(EINVAL, "only datagrams of a vdevice join, and only a group");
  CmEvent event;
  event.type = CmEventType::kMulticastJoin;
  event.param.qpn = verbs::kMulticastQpn;
  event.param.qkey = kDatagramQkey;
  event.group = group;
  event.token = token;
  if (handler_ != nullptr) handler_->on_event(*this, event);
  return {};
}

std::unique_ptr<CmId> CmId::child(Connection connection, const Path& path, PrivateData header) {
  const auto ends = wire::ip_ends(header.data());
  if (!ends) return nullptr;
  // The id of the peer's transaction is as good a start as any.
  auto id = std::make_unique<CmId>(host_, netns_, space_, service_, connection.local_id(), nullptr);
  Route route;
  for (const auto& [endpoint, listener] : listeners_)
    if (endpoint->owns(path.local)) route.endpoint = endpoint;
  route.local = path.local;
  route.roce = path.roce;
  route.hop_limit = path.hop_limit;
  if (!id->use(route)) {
    refuse(connection);
    return nullptr;
  }
  // Of the header only the port is believed: the addresses are those that the MAD came by.
  id->local_ = {path.local, local_.port};
  id->remote_ = {path.remote, ends->source_port};
  id->tos = tos;
  id->ack_timeout = ack_timeout;
  id->min_rnr_timer = min_rnr_timer;
  id->connection_ = std::move(connection);
  id->connection_.set_handler(id.get());
  id->state_ = CmIdState::kConnecting;
  return id;
}

void CmId::bring(std::unique_ptr<CmId> id, const ConnParam& param) {
  CmEvent event;
  event.type = CmEventType::kConnectRequest;
  event.param = param;
  event.request = std::move(id);
  if (handler_ != nullptr) handler_->on_event(*this, event);
}

void CmId::on_request(Connection connection, const Req& req) {
  if (service_ == CmService::kUd || req.transport != transport_of(service_)) return;
  auto id = child(std::move(connection), req.path, req.private_data);
  if (!id) return;
  id->remote_qpn_ = req.qpn;
  id->remote_psn_ = req.starting_psn;
  id->responder_resources_ = req.responder_resources;
  id->initiator_depth_ = req.initiator_depth;
  id->retry_count_ = req.retry_count;
  id->rnr_retry_count_ = req.rnr_retry_count;
  id->path_mtu_ = req.path_mtu;
  id->timeout_ = id->ack_timeout.value_or(req.ack_timeout);
  id->answered_ = true;
  ConnParam param;
  param.responder_resources = req.responder_resources;
  param.initiator_depth = req.initiator_depth;
  param.retry_count = req.retry_count;
  param.rnr_retry_count = req.rnr_retry_count;
  param.flow_control = req.flow_control;
  param.srq = req.srq;
  param.qpn = req.qpn;
  param.private_data = req.private_data.subspan(sizeof(wire::IpHeader));
  bring(std::move(id), param);
}

void CmId::on_sidr_request(Connection connection, const SidrReq& req) {
  if (service_ != CmService::kUd) return;
  auto id = child(std::move(connection), req.path, req.private_data);
  if (!id) return;
  ConnParam param;
  param.private_data = req.private_data.subspan(sizeof(wire::IpHeader));
  bring(std::move(id), param);
}

void CmId::on_event(const Event& event) {
  ConnParam param;
  param.private_data = event.private_data;
  switch (event.kind) {
    case EventKind::kReqError:
    case EventKind::kRepError:
    case EventKind::kSidrReqError:
      return tell(CmEventType::kUnreachable, -ETIMEDOUT);
    case EventKind::kMraReceived:
      return;
    case EventKind::kRepReceived: {
      const Rep& rep = *event.rep;
      remote_qpn_ = rep.qpn;
      remote_psn_ = rep.starting_psn;
      responder_resources_ = rep.responder_resources;
      initiator_depth_ = rep.initiator_depth;
      rnr_retry_count_ = rep.rnr_retry_count;
      if (!ack_timeout) timeout_ = ack_timeout_of(rep.target_ack_delay, route_.packet_life);
      answered_ = true;
      param.responder_resources = rep.responder_resources;
      param.initiator_depth = rep.initiator_depth;
      param.rnr_retry_count = rep.rnr_retry_count;
      param.flow_control = rep.flow_control;
      param.srq = rep.srq;
      param.qpn = rep.qpn;
      param.private_data = rep.private_data;
      return tell(CmEventType::kConnectResponse, 0, param);
    }
    case EventKind::kRtuReceived:
      return tell(CmEventType::kEstablished, 0, param);
    case EventKind::kRejReceived:
      param.private_data = event.rej->private_data;
      return tell(CmEventType::kRejected, static_cast<int>(event.rej->reason), param);
    case EventKind::kDreqReceived:
    case EventKind::kDrepReceived:
    case EventKind::kDreqError:
      if (std::exchange(state_, CmIdState::kDisconnected) == CmIdState::kDisconnected) return;
      return tell(CmEventType::kDisconnected, event.kind == EventKind::kDreqError ? -ETIMEDOUT : 0,
                  param);
    case EventKind::kTimewaitExit:
      return tell(CmEventType::kTimewaitExit);
    case EventKind::kSidrRepReceived: {
      const SidrRep& rep = *event.sidr;
      param.private_data = rep.private_data;
      if (rep.status != wire::SidrStatus::kValid)
        return tell(CmEventType::kUnreachable, static_cast<int>(rep.status), param);
      remote_qpn_ = param.qpn = rep.qpn;
      param.qkey = rep.qkey;
      return tell(CmEventType::kEstablished, 0, param);
    }
  }
}

base::Result<uint32_t> CmId::qp_attributes(QpState state, verbs::QpAttributes* attributes) const {
  if (state_ == CmIdState::kGone) return base::fail(ENODEV, "the device has gone");
  if (route_.endpoint == nullptr) return base::fail(EINVAL, "the id has no device yet");
  attributes->state = static_cast<uint32_t>(state);
  uint32_t mask = verbs::kQpState;
  if (state == QpState::kInit) {
    attributes->pkey_index = 0;
    attributes->port_num = 1;
    mask |= verbs::kQpPkeyIndex | verbs::kQpPort;
    if (service_ == CmService::kUd) {
      attributes->qkey = kDatagramQkey;
      return mask | verbs::kQpQkey;
    }
    attributes->access_flags = verbs::kRemoteWrite;
    if (responder_resources_ != 0)
      attributes->access_flags |= verbs::kRemoteRead | verbs::kRemoteAtomic;
    return mask | verbs::kQpAccessFlags;
  }
  const bool datagram = service_ == CmService::kUd;
  if (state != QpState::kRtr && state != QpState::kRts)
    return base::fail(EINVAL, "a connection has no part in that state");
  if (!datagram && !answered_) return base::fail(EINVAL, "the peer has not answered yet");
  if (state == QpState::kRtr) {
    if (datagram) return mask;
    verbs::AddressVector& av = attributes->av;
    av = {};
    std::copy(remote_.gid.bytes.begin(), remote_.gid.bytes.end(), av.dgid);
    av.is_global = 1;
    av.hop_limit = route_.hop_limit;
    av.traffic_class = tos;
    av.port_num = 1;
    attributes->path_mtu = path_mtu_;
    attributes->dest_qpn = remote_qpn_;
    attributes->rq_psn = psn_;
    mask |= verbs::kQpAv | verbs::kQpPathMtu | verbs::kQpDestQpn | verbs::kQpRqPsn;
    const bool responds = service_ == CmService::kRc || (service_ == CmService::kXrc && !active_);
    if (!responds) return mask;
    attributes->max_dest_rd_atomic = responder_resources_;
    attributes->min_rnr_timer = min_rnr_timer;
    return mask | verbs::kQpMaxDestRdAtomic | verbs::kQpMinRnrTimer;
  }
  attributes->sq_psn = datagram ? 0 : remote_psn_;
  mask |= verbs::kQpSqPsn;
  if (datagram || service_ == CmService::kUc) return mask;
  attributes->timeout = ack_timeout.value_or(timeout_);  // also if set since
  if (service_ == CmService::kXrc && !active_) return mask | verbs::kQpTimeout;
  attributes->retry_cnt = retry_count_;
  attributes->rnr_retry = rnr_retry_count_;
  attributes->max_rd_atomic = initiator_depth_;
  return mask | verbs::kQpTimeout | verbs::kQpRetryCnt | verbs::kQpRnrRetry |
         verbs::kQpMaxQpRdAtomic;
}

}  // namespace vrdma::qp1mux
