#include "qp1mux/cm_id.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "qp1mux/record.h"

namespace vrdma::qp1mux {
namespace {

using verbs::QpState;

// The local ACK timeout: twice the packet life time plus the peer's delay, as codes. Codes are
// powers of two, so the sum is the larger one, plus one if they are close.
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
    : host_(host), netns_(netns), handler_(handler) {
  kept_.space = space;
  kept_.service = service;
  kept_.psn = psn & verbs::kPsnMask;
}

CmId::~CmId() = default;

CmIdRecord CmId::record() const {
  CmIdRecord record = kept_;
  record.is_bound = binding_.active();
  if (record.is_bound) record.bound = binding_.request();
  record.connection = connection_.record();
  return record;
}

std::unique_ptr<CmId> CmId::restore(CmHost& host, uint64_t netns, const CmIdRecord& record,
                                    Endpoint* endpoint, CmIdHandler* handler) {
  const bool sound = is_sound(record);
  auto id = std::make_unique<CmId>(host, netns, sound ? record.space : wire::PortSpace::kTcp,
                                   sound ? record.service : CmService::kRc, record.psn, handler);
  if (!sound) {
    id->kept_.state = CmIdState::kGone;
    return id;
  }
  id->kept_ = record;
  id->kept_.route.endpoint = nullptr;
  if (id->take_again(record, endpoint)) return id;
  id->kept_.route.endpoint = nullptr;
  id->kept_.state = CmIdState::kGone;
  id->binding_.reset();
  id->charge_.reset();
  return id;
}

bool CmId::take_again(const CmIdRecord& record, Endpoint* endpoint) {
  if (record.route.endpoint != nullptr && endpoint == nullptr) return false;
  if (record.is_bound) {
    PortRequest request = record.bound;
    request.privileged = true;  // was checked when the port was first bound
    auto binding = host_.ports.bind(request);
    if (!binding) return false;
    binding_ = std::move(*binding);
  }
  Route route = record.route;
  route.endpoint = endpoint;
  if (!use(route)) return false;
  // While its address is absent it receives nothing, as before the restart.
  if (record.state == CmIdState::kListening) (void)begin_to_listen(Endpoint::Absent::kMay);
  if (record.connection.state == State::kClosed || endpoint == nullptr) return true;
  auto connection = endpoint->restore(record.connection, this);
  if (!connection) return false;
  connection_ = std::move(*connection);
  return true;
}

base::Result<void> CmId::in(std::initializer_list<CmIdState> states) const {
  if (kept_.state == CmIdState::kGone) return base::fail(ENODEV, "the device has gone");
  for (const CmIdState state : states)
    if (kept_.state == state) return {};
  return base::fail(EINVAL, "not possible in this state of the id");
}

void CmId::tell(CmEventType type, int status, const ConnParam& param) {
  CmEvent event;
  event.type = type;
  event.status = status;
  event.param = param;
  if (handler_ != nullptr) handler_->on_event(*this, event);
}

// Binds the id to the endpoint of the route.
base::Result<void> CmId::use(const Route& route) {
  if (route.endpoint != nullptr && route.endpoint != kept_.route.endpoint) {
    auto charge = host_.routes.charge(*route.endpoint);
    if (!charge) return tl::unexpected(charge.error());
    charge_ = std::move(*charge);
  }
  kept_.route = route;
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
  auto binding = host_.ports.bind({netns_, kept_.space, local.gid, local.port, kept_.reuse,
                                   kept_.family_only, kept_.privileged});
  if (!binding) return tl::unexpected(binding.error());
  if (auto ok = use(route); !ok) return ok;
  binding_ = std::move(*binding);
  kept_.local = {local.gid, binding_.port()};
  kept_.state = CmIdState::kBound;
  return {};
}

base::Result<void> CmId::resolve_addr(const std::optional<Address>& local, const Address& remote,
                                      base::Duration timeout) {
  if (auto ok = in({CmIdState::kIdle, CmIdState::kBound}); !ok) return ok;
  if (kept_.state == CmIdState::kIdle) {
    const Address any{verbs::Gid::unspecified(remote.gid.is_ipv4_mapped()), 0};
    if (auto ok = bind(local.value_or(any)); !ok) return ok;
  }
  kept_.remote = remote;
  resolve(timeout);
  return {};
}

void CmId::resolve(base::Duration timeout) {
  auto found = host_.routes.find(netns_, kept_.local.gid, kept_.remote.gid);
  if (!found) return on_route(tl::unexpected(found.error()));
  if (found->complete) return on_route(found->route);
  incomplete_ = found->route;
  kept_.state = CmIdState::kResolving;
  lookup_ = incomplete_.endpoint->look_up(
      timeout,
      [&routes = host_.routes, route = incomplete_, remote = kept_.remote.gid](
          Lookups::Answer answer) { return routes.look_up(route, remote, std::move(answer)); },
      [this](base::Result<Route> route) {
        if (route) {  // the network says how to get there, and not from where
          route->endpoint = incomplete_.endpoint;
          route->local = incomplete_.local;
        }
        on_route(std::move(route));
      });
}

void CmId::go_on() {
  if (kept_.state == CmIdState::kResolving) resolve(kPatience);
}

void CmId::on_route(base::Result<Route> route) {
  incomplete_ = {};
  auto used = route ? use(*route) : tl::unexpected(route.error());
  if (!used) {
    kept_.remote = {};
    kept_.state = CmIdState::kBound;
    return tell(CmEventType::kAddrError, -used.error().code());
  }
  kept_.local.gid = kept_.route.local;
  kept_.path_mtu = kept_.route.path_mtu;
  kept_.timeout = chosen_timeout(ack_timeout_of(kept_.route.ack_delay, kept_.route.packet_life));
  kept_.state = CmIdState::kAddressResolved;
  tell(CmEventType::kAddrResolved);
}

base::Result<void> CmId::resolve_route() {
  if (auto ok = in({CmIdState::kAddressResolved}); !ok) return ok;
  kept_.state = CmIdState::kRouteResolved;
  tell(CmEventType::kRouteResolved);
  return {};
}

base::Result<void> CmId::listen_on(Endpoint& endpoint, Endpoint::Absent absent) {
  // The IPv6 wildcard covers all addresses unless restricted to its family.
  std::optional<verbs::Gid> at;
  if (kept_.local.gid != verbs::Gid() || kept_.family_only) at = kept_.local.gid;
  auto listener = endpoint.listen(service_id(kept_.local.port), at, kept_.backlog, this, absent);
  if (!listener) return tl::unexpected(listener.error());
  listeners_.emplace_back(&endpoint, std::move(*listener));
  return {};
}

base::Result<void> CmId::listen(uint32_t backlog) {
  if (kept_.state == CmIdState::kIdle)
    if (auto ok = bind({verbs::Gid::unspecified(true), 0}); !ok) return ok;
  if (auto ok = in({CmIdState::kBound}); !ok) return ok;
  kept_.backlog = backlog;
  if (auto ok = begin_to_listen(); !ok) return ok;
  kept_.state = CmIdState::kListening;
  return {};
}

base::Result<void> CmId::begin_to_listen(Endpoint::Absent absent) {
  if (auto ok = binding_.listen(); !ok) return ok;
  std::vector<Endpoint*> where;
  if (kept_.local.gid.is_unspecified())
    where = host_.routes.all(netns_);
  else
    where = {kept_.route.endpoint};
  for (Endpoint* endpoint : where) {
    if (auto ok = listen_on(*endpoint, absent); !ok) {
      listeners_.clear();
      return ok;
    }
  }
  return {};
}

void CmId::device_added(Endpoint& endpoint) {
  // An endpoint on which listening fails is treated as absent.
  if (kept_.state == CmIdState::kListening && kept_.local.gid.is_unspecified())
    (void)listen_on(endpoint);
}

void CmId::device_removed(const Endpoint& endpoint) {
  std::erase_if(listeners_, [&](const auto& at) { return at.first == &endpoint; });
  if (kept_.route.endpoint != &endpoint) {
    if (incomplete_.endpoint != &endpoint) return;
    lookup_.reset();
    return on_route(base::fail(ENODEV, "the device has gone"));
  }
  lookup_.reset();
  incomplete_ = {};
  kept_.route.endpoint = nullptr;
  charge_.reset();
  connection_.reset();
  kept_.state = CmIdState::kGone;
  tell(CmEventType::kDeviceRemoval);
}

Path CmId::path() const {
  Path path;
  path.local = kept_.local.gid;
  path.remote = kept_.remote.gid;
  path.roce = kept_.route.roce;
  path.traffic_class = kept_.tos;
  path.hop_limit = kept_.route.hop_limit;
  return path;
}

std::vector<uint8_t> CmId::with_header(PrivateData data) const {
  const wire::IpHeader header = wire::encode({kept_.local.gid, kept_.remote.gid, kept_.local.port});
  std::vector<uint8_t> all(sizeof header + data.size());
  std::memcpy(all.data(), &header, sizeof header);
  std::copy(data.begin(), data.end(), all.begin() + sizeof header);
  return all;
}

base::Result<void> CmId::connect(const ConnParam& param) {
  if (auto ok = in({CmIdState::kRouteResolved}); !ok) return ok;
  const std::vector<uint8_t> data = with_header(param.private_data);
  Connection connection = kept_.route.endpoint->connection(this);
  base::Result<void> sent;
  if (kept_.service == CmService::kUd) {
    SidrReq req;
    req.path = path();
    req.service_id = service_id(kept_.remote.port);
    req.private_data = data;
    sent = connection.send_sidr_req(req);
  } else {
    Req req;
    req.path = path();
    req.service_id = service_id(kept_.remote.port);
    req.transport = transport_of(kept_.service);
    req.qpn = param.qpn;
    req.starting_psn = kept_.psn;
    req.responder_resources = param.responder_resources;
    req.initiator_depth = param.initiator_depth;
    req.path_mtu = kept_.path_mtu;
    req.retry_count = std::min<uint8_t>(param.retry_count, 7);
    req.rnr_retry_count = std::min<uint8_t>(param.rnr_retry_count, 7);
    req.ack_timeout = chosen_timeout(kept_.timeout);
    req.packet_life = kept_.route.packet_life;
    req.srq = param.srq;
    req.flow_control = param.flow_control;
    req.private_data = data;
    sent = connection.send_req(req);
    kept_.responder_resources = param.responder_resources;
    kept_.initiator_depth = param.initiator_depth;
    kept_.retry_count = req.retry_count;
  }
  if (!sent) return sent;
  connection_ = std::move(connection);
  kept_.active = true;
  kept_.state = CmIdState::kConnecting;
  return {};
}

// After the accept, this side is charged.
base::Result<void> CmId::pay_for_request() {
  if (charge_ != nullptr || kept_.route.endpoint == nullptr) return {};
  auto charge = host_.routes.charge(*kept_.route.endpoint);
  if (!charge) return tl::unexpected(charge.error());
  charge_ = std::move(*charge);
  return {};
}

base::Result<void> CmId::accept(const ConnParam& param) {
  if (auto ok = in({CmIdState::kConnecting}); !ok) return ok;
  if (auto ok = pay_for_request(); !ok) return ok;
  if (kept_.service == CmService::kUd) {
    SidrRep rep;
    rep.qpn = param.qpn;
    rep.qkey = param.qkey != 0 ? param.qkey : kDatagramQkey;
    rep.private_data = param.private_data;
    return connection_.send_sidr_rep(rep);
  }
  Rep rep;
  rep.qpn = param.qpn;
  rep.starting_psn = kept_.psn;
  rep.responder_resources = param.responder_resources;
  rep.initiator_depth = param.initiator_depth;
  rep.target_ack_delay = kept_.route.ack_delay;
  rep.rnr_retry_count = std::min<uint8_t>(param.rnr_retry_count, 7);
  rep.srq = param.srq;
  rep.flow_control = param.flow_control;
  rep.private_data = param.private_data;
  if (auto ok = connection_.send_rep(rep); !ok) return ok;
  kept_.responder_resources = param.responder_resources;
  kept_.initiator_depth = param.initiator_depth;
  return {};
}

base::Result<void> CmId::confirm() {
  if (auto ok = in({CmIdState::kConnecting}); !ok) return ok;
  return connection_.send_rtu();
}

base::Result<void> CmId::reject(PrivateData data, wire::RejectReason reason) {
  if (auto ok = in({CmIdState::kConnecting}); !ok) return ok;
  if (kept_.service == CmService::kUd) {
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
  // Already disconnected or disconnecting.
  if (connection_.state() == State::kDreqSent || connection_.state() == State::kTimewait ||
      connection_.state() == State::kClosed)
    return {};
  return connection_.send_dreq();
}

base::Result<void> CmId::establish() {
  if (auto ok = in({CmIdState::kConnecting}); !ok) return ok;
  if (connection_.state() == State::kEstablished) return base::fail(EISCONN, "already connected");
  if (auto ok = connection_.establish(); !ok) return ok;
  tell(CmEventType::kEstablished);
  return {};
}

// Rejects a request for lack of a local resource.
void CmId::refuse(Connection& connection) const {
  if (kept_.service == CmService::kUd) {
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
  if (kept_.service != CmService::kUd || kept_.route.endpoint == nullptr || !group.is_multicast())
    return base::fail(EINVAL, "only a datagram id with a vdevice can join, and only a group");
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
  // The connection's random id serves as the first packet sequence number.
  auto id = std::make_unique<CmId>(host_, netns_, kept_.space, kept_.service, connection.local_id(),
                                   nullptr);
  Route route;
  for (const auto& [endpoint, listener] : listeners_)
    if (endpoint->owns(path.local)) route.endpoint = endpoint;
  route.local = path.local;
  route.roce = path.roce;
  route.hop_limit = path.hop_limit;
  if (connection.asker_pays()) {
    id->kept_.route = route;
  } else if (!id->use(route)) {
    refuse(connection);
    return nullptr;
  }
  // Only the port of the header is trusted; the addresses are those of the MAD itself.
  id->kept_.local = {path.local, kept_.local.port};
  id->kept_.remote = {path.remote, ends->source_port};
  id->kept_.tos = kept_.tos;
  id->kept_.ack_timeout = kept_.ack_timeout;
  id->kept_.min_rnr_timer = kept_.min_rnr_timer;
  id->connection_ = std::move(connection);
  id->connection_.set_handler(id.get());
  id->kept_.state = CmIdState::kConnecting;
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
  if (kept_.service == CmService::kUd || req.transport != transport_of(kept_.service)) return;
  auto id = child(std::move(connection), req.path, req.private_data);
  if (!id) return;
  id->kept_.remote_qpn = req.qpn;
  id->kept_.remote_psn = req.starting_psn;
  id->kept_.responder_resources = req.responder_resources;
  id->kept_.initiator_depth = req.initiator_depth;
  id->kept_.retry_count = req.retry_count;
  id->kept_.rnr_retry_count = req.rnr_retry_count;
  id->kept_.path_mtu = req.path_mtu;
  id->kept_.timeout = id->chosen_timeout(req.ack_timeout);
  id->kept_.answered = true;
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
  if (kept_.service != CmService::kUd) return;
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
      kept_.remote_qpn = rep.qpn;
      kept_.remote_psn = rep.starting_psn;
      kept_.responder_resources = rep.responder_resources;
      kept_.initiator_depth = rep.initiator_depth;
      kept_.rnr_retry_count = rep.rnr_retry_count;
      kept_.timeout = chosen_timeout(ack_timeout_of(rep.target_ack_delay, kept_.route.packet_life));
      kept_.answered = true;
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
      if (std::exchange(kept_.state, CmIdState::kDisconnected) == CmIdState::kDisconnected) return;
      return tell(CmEventType::kDisconnected, event.kind == EventKind::kDreqError ? -ETIMEDOUT : 0,
                  param);
    case EventKind::kTimewaitExit:
      return tell(CmEventType::kTimewaitExit);
    case EventKind::kSidrRepReceived: {
      const SidrRep& rep = *event.sidr;
      param.private_data = rep.private_data;
      if (rep.status != wire::SidrStatus::kValid)
        return tell(CmEventType::kUnreachable, static_cast<int>(rep.status), param);
      kept_.remote_qpn = param.qpn = rep.qpn;
      param.qkey = rep.qkey;
      return tell(CmEventType::kEstablished, 0, param);
    }
  }
}

base::Result<uint32_t> CmId::qp_attributes(QpState state, verbs::QpAttributes* attributes) const {
  if (kept_.state == CmIdState::kGone) return base::fail(ENODEV, "the device has gone");
  if (kept_.route.endpoint == nullptr) return base::fail(EINVAL, "the id has no device yet");
  attributes->state = static_cast<uint32_t>(state);
  uint32_t mask = verbs::kQpState;
  if (state == QpState::kInit) {
    attributes->pkey_index = 0;
    attributes->port_num = 1;
    mask |= verbs::kQpPkeyIndex | verbs::kQpPort;
    if (kept_.service == CmService::kUd) {
      attributes->qkey = kDatagramQkey;
      return mask | verbs::kQpQkey;
    }
    attributes->access_flags = verbs::kRemoteWrite;
    if (kept_.responder_resources != 0)
      attributes->access_flags |= verbs::kRemoteRead | verbs::kRemoteAtomic;
    return mask | verbs::kQpAccessFlags;
  }
  const bool datagram = kept_.service == CmService::kUd;
  if (state != QpState::kRtr && state != QpState::kRts)
    return base::fail(EINVAL, "a connection has no attributes for that state");
  if (!datagram && !kept_.answered) return base::fail(EINVAL, "the peer has not answered yet");
  if (state == QpState::kRtr) {
    if (datagram) return mask;
    verbs::AddressVector& av = attributes->av;
    av = {};
    std::copy(kept_.remote.gid.bytes.begin(), kept_.remote.gid.bytes.end(), av.dgid);
    av.is_global = 1;
    av.hop_limit = kept_.route.hop_limit;
    av.traffic_class = kept_.tos;
    av.port_num = 1;
    attributes->path_mtu = kept_.path_mtu;
    attributes->dest_qpn = kept_.remote_qpn;
    attributes->rq_psn = kept_.psn;
    mask |= verbs::kQpAv | verbs::kQpPathMtu | verbs::kQpDestQpn | verbs::kQpRqPsn;
    const bool responds =
        kept_.service == CmService::kRc || (kept_.service == CmService::kXrc && !kept_.active);
    if (!responds) return mask;
    attributes->max_dest_rd_atomic = kept_.responder_resources;
    attributes->min_rnr_timer = kept_.min_rnr_timer;
    return mask | verbs::kQpMaxDestRdAtomic | verbs::kQpMinRnrTimer;
  }
  attributes->sq_psn = datagram ? 0 : kept_.remote_psn;
  mask |= verbs::kQpSqPsn;
  if (datagram || kept_.service == CmService::kUc) return mask;
  attributes->timeout = chosen_timeout(kept_.timeout);  // also if it was set later
  if (kept_.service == CmService::kXrc && !kept_.active) return mask | verbs::kQpTimeout;
  attributes->retry_cnt = kept_.retry_count;
  attributes->rnr_retry = kept_.rnr_retry_count;
  attributes->max_rd_atomic = kept_.initiator_depth;
  return mask | verbs::kQpTimeout | verbs::kQpRetryCnt | verbs::kQpRnrRetry |
         verbs::kQpMaxQpRdAtomic;
}

}  // namespace vrdma::qp1mux
