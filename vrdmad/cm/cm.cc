#include "vrdmad/cm/cm.h"

#include <endian.h>
#include <spdlog/spdlog.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <optional>

#include "core/base/random.h"
#include "core/ipc/cm_messages.h"
#include "vrdmad/cm/session.h"

namespace vrdma::vrdmad {

using base::fail;
using base::pass;
using base::Result;
using provisioning::Kind;
using verbs::Gid;

namespace {

constexpr const char* kCmFile = ".cm";
// Less than the first retransmission timeout of a request.
constexpr std::chrono::milliseconds kPatience(30);
constexpr std::chrono::milliseconds kAdoptAgain(500);

bool is_loopback(const Gid& gid) {
  if (gid.is_ipv4_mapped()) return gid.bytes[12] == 127;
  Gid one;
  one.bytes[15] = 1;
  return gid == one;
}

// Whether the addresses can communicate: same family and scope. A multicast group is reachable from
// any scope.
bool alike(const Gid& own, const Gid& other) {
  return own.is_ipv4_mapped() == other.is_ipv4_mapped() &&
         (own.is_link_local() == other.is_link_local() || other.is_multicast());
}

int common_bits(const Gid& a, const Gid& b) {
  for (size_t i = 0; i < a.bytes.size(); ++i)
    if (const auto differs = static_cast<uint8_t>(a.bytes[i] ^ b.bytes[i]); differs != 0)
      return static_cast<int>(i) * 8 + std::countl_zero(differs);
  return 128;
}

}  // namespace

Cm::Cm(base::EventLoop& loop, SessionSettings settings, CmNetwork* network)
    : settings_(std::move(settings)),
      loop_(loop),
      network_(network),
      loopback_(
          [this] {
            loop_.post([this, alive = std::weak_ptr(alive_)] {
              if (!alive.expired()) loopback_.deliver();
            });
          },
          network),
      mux_({.patience = kPatience}, *this, loopback_),
      host_{ports_, *this} {
  loopback_.set_mux(&mux_);
}

Cm::~Cm() = default;

void Cm::wake_at(base::TimePoint when) {
  timer_ = loop_.after(std::max(when - now(), base::Duration::zero()), [this] { mux_.advance(); });
}

Result<std::unique_ptr<CmDevice>> Cm::attach(CmDeviceSetup setup) {
  qp1mux::EndpointSetup wanted;
  wanted.vdevice = setup.name;
  wanted.vdevice_id = setup.id;
  wanted.tenant = setup.tenant;
  wanted.fabric = setup.fabric;
  wanted.node_guid = be64toh(setup.node_guid);
  wanted.raw = setup.gsi != nullptr;
  wanted.owns_qpn = [numbers = setup.qp_numbers](uint32_t qpn) { return numbers.contains(qpn); };
  auto endpoint = mux_.attach(std::move(wanted));
  if (!endpoint) return pass(std::move(endpoint.error()));
  std::unique_ptr<CmDevice> device(new CmDevice(*this, std::move(setup), std::move(*endpoint)));
  devices_[device->netns()].push_back(device.get());
  by_endpoint_.emplace(&device->endpoint(), device.get());
  set_rates(device->netns());
  for (const auto& session : sessions_)
    if (session->netns() == device->netns()) session->device_added(device->endpoint());
  return device;
}

void Cm::gone(CmDevice& device) {
  by_endpoint_.erase(&device.endpoint());
  const auto its = devices_.find(device.netns());
  std::erase(its->second, &device);
  if (its->second.empty()) devices_.erase(its);
  set_rates(device.netns());
  // A program that is written to disk may go on with another vdevice.
  for (const auto& session : sessions_)
    if (session->is_detached() && session->netns() == device.netns() &&
        (session->has_ids_of(device.endpoint()) || in(device.netns()).empty()))
      put_away(*session, device.gids());
  for (const auto& session : sessions_) session->device_removed(device.endpoint());
}

std::shared_ptr<CmNamespace> Cm::known_space(uint64_t netns) const {
  const auto it = spaces_.find(netns);
  return it != spaces_.end() ? it->second.lock() : nullptr;
}

std::shared_ptr<CmNamespace> Cm::space(uint64_t netns) {
  if (auto known = known_space(netns); known != nullptr) return known;
  std::shared_ptr<CmNamespace> made(new CmNamespace(totals_),
                                    [this, alive = std::weak_ptr(alive_)](CmNamespace* gone) {
                                      if (!alive.expired()) spaces_.erase(gone->cookie);
                                      delete gone;
                                    });
  made->cookie = netns;
  made->intake = std::make_shared<Intake::Account>(settings_.intake);
  made->entrance = std::make_shared<Entrance>();
  spaces_[netns] = made;
  set_rates(netns);
  return made;
}

// The highest rate of the namespace's vdevices, because the connection does not belong to one of
// them.
uint64_t Cm::rate_of(uint64_t netns, Kind kind) const {
  const uint64_t initial = provisioning::traits(kind).initial;
  std::optional<uint64_t> most;
  for (const CmDevice* device : in(netns)) {
    const uint64_t rate = device->rate(kind);
    if (rate == 0) return 0;
    most = std::max(most.value_or(0), rate);
  }
  return most.value_or(initial);
}

void Cm::set_rates(uint64_t netns) {
  constexpr uint64_t kUsers = 4;  // that may use their full rate at once
  const auto space = known_space(netns);
  if (space == nullptr) return;
  const uint64_t arrivals = rate_of(netns, Kind::kConnRate);
  space->entrance->set_rate(now(), arrivals * kUsers);
  for (const auto& [uid, user] : space->users) {
    user->arrivals.change(now(), arrivals, arrivals);
    user->requests.set(rate_of(netns, Kind::kReqRate));
  }
}

std::shared_ptr<CmUser> Cm::user(CmNamespace& space, uid_t uid) {
  constexpr size_t kMany = 1024;
  auto& user = space.users[uid];
  if (user != nullptr) return user;
  user = std::make_shared<CmUser>(loop_);
  const uint64_t arrivals = rate_of(space.cookie, Kind::kConnRate);
  user->arrivals.change(now(), arrivals, arrivals);
  user->requests.set(rate_of(space.cookie, Kind::kReqRate));
  const std::shared_ptr<CmUser> made = user;
  if (space.users.size() > kMany)
    std::erase_if(space.users, [&](const auto& entry) {
      return entry.second != made && entry.second->is_at_rest(now());
    });
  return made;
}

Result<std::shared_ptr<SessionSocket>> Cm::socket(uint64_t netns, const std::string& directory) {
  auto its = space(netns);
  if (auto known = its->socket.lock(); known != nullptr) return known;
  auto made = SessionSocket::listen(
      *settings_.broker, loop_, directory + "/" + ipc::kCmSocket, netns,
      {its->intake, its->entrance,
       [this, its](Arrival arrival) { accept(its, std::move(arrival)); }, [] {},
       [this, its](uid_t uid) {
         const bool may = user(*its, uid)->arrivals.take(now());
         if (!may) ++counters_.crowded;
         return may;
       }});
  if (!made) return pass(std::move(made.error()));
  std::shared_ptr<SessionSocket> shared = std::move(*made);
  its->socket = shared;
  return shared;
}

void Cm::accept(std::shared_ptr<CmNamespace> space, Arrival arrival) {
  const auto whose = user(*space, arrival.caller->peer().uid());
  if (!space->sessions.has_room() || whose->sessions >= CmUser::kMaxSessions) {
    ++counters_.crowded;
    return close_connection(space->intake, std::move(arrival.socket));
  }
  auto session = CmSession::start(*this, std::move(space), std::move(arrival),
                                  [this](CmSession* over) { forget(over); });
  if (!session) return;
  ++counters_.sessions;
  sessions_.push_back(std::move(*session));
}

bool Cm::is_used(uint64_t netns) const {
  const auto space = known_space(netns);
  return space != nullptr && space->sessions.count() > 0;
}

std::vector<std::shared_ptr<Caller>> Cm::callers_of(uint64_t netns) const {
  std::vector<std::shared_ptr<Caller>> callers;
  for (const auto& session : sessions_)
    if (session->netns() == netns && session->caller() != nullptr)
      callers.push_back(session->caller());
  return callers;
}

void Cm::forget(CmSession* over) {
  loop_.post([this, over, netns = over->netns(), alive = std::weak_ptr(alive_)] {
    if (alive.expired()) return;
    if (!over->end_some()) return forget(over);
    sessions_.remove_if([over](const auto& s) { return s.get() == over; });
    if (network_ != nullptr) network_->left(netns);
  });
}

std::string Cm::new_file() {
  return settings_.state_dir + "/" + std::to_string(++last_file_) + kCmFile;
}

std::string Cm::socket_path(uint64_t netns) const {
  return run_dir_ + "/netns/" + std::to_string(netns) + "/" + ipc::kCmSocket;
}

void Cm::keep_sessions(const std::string& state_dir, std::string run_dir) {
  settings_.state_dir = state_dir;
  run_dir_ = std::move(run_dir);
  for (const auto& [path, number] : RecordFile::list(settings_.state_dir, kCmFile)) {
    last_file_ = std::max(last_file_, number);
    auto file = CmSessionFile::open(path);
    auto who = file ? file->who() : pass(std::move(file).error());
    if (who) {
      found_.emplace_back(who->netns, std::move(*file));
      continue;
    }
    spdlog::warn("the rdma_cm session in {} cannot be taken over: {}", path, who.error().message());
    ::unlink(path.c_str());
  }
}

void Cm::adopt_sessions(std::set<uint64_t> later) {
  later_ = std::move(later);
  adopt_again_.reset();
  const auto before = std::exchange(unanswered_, {});
  const auto now = loop_.now();
  for (auto it = found_.begin(); it != found_.end();) {
    if (awaits_others(it->first)) {
      ++it;
      continue;
    }
    auto session =
        CmSession::adopt(*this, std::move(it->second), [this](CmSession* over) { forget(over); });
    const auto since = before.contains(it->first) ? before.at(it->first) : now;
    if (!session && session.error().code() == EAGAIN && now - since < settings_.patience()) {
      unanswered_.emplace(it->first, since);
      ++it;
      continue;
    }
    if (session)
      sessions_.push_back(std::move(*session));
    else if (session.error().code() != ESRCH)
      spdlog::warn("netns {}: an rdma_cm session cannot be taken over: {}", it->first,
                   session.error().message());
    it = found_.erase(it);
  }
  if (!unanswered_.empty())
    adopt_again_ = loop_.after(kAdoptAgain, [this] { adopt_sessions(later_); });
  else if (later_.empty())
    mux_.drop_half_open();
}

void Cm::end_left_by(uint64_t netns, const rdma::Peer& process) {
  found_.remove_if([&](const auto& found) {
    const auto who = found.second.who();
    return found.first == netns && who && who->process == process;
  });
  for (const auto& session : sessions_)
    if (session->netns() == netns && session->is_left_by(process)) session->end();
}

void Cm::leave_sessions() {
  for (const auto& session : sessions_) session->leave();
  sessions_.clear();
  for (auto& [netns, file] : found_) file.leave();
  found_.clear();
}

CmSession* Cm::session(uint64_t netns, const uint8_t* secret) const {
  for (const auto& session : sessions_)
    if (session->netns() == netns && session->has_secret(secret)) return session.get();
  return nullptr;
}

uint64_t Cm::secret() const { return base::random64(); }

void Cm::end_the_unread(const std::shared_ptr<CmNamespace>& space, CmDevice* device) {
  if (std::exchange(space->ending, true)) return;
  loop_.post([this, space, device, alive = std::weak_ptr(alive_)] {
    if (alive.expired()) return;
    space->ending = false;
    const auto& there = in(space->cookie);
    if (device != nullptr && std::find(there.begin(), there.end(), device) == there.end()) return;
    CmSession* most = nullptr;
    size_t unread_there = 0;
    for (const auto& session : sessions_) {
      if (session->netns() != space->cookie) continue;
      const size_t unread = device != nullptr ? session->unread_of(*device) : session->unread();
      if (unread <= unread_there) continue;
      most = session.get();
      unread_there = unread;
    }
    if (most == nullptr) return;
    ++counters_.unread;
    most->end();
  });
}

Result<std::shared_ptr<void>> Cm::charge(const qp1mux::Endpoint& endpoint) {
  CmDevice* const its = device(&endpoint);
  if (its == nullptr) return fail(ENODEV, "the vdevice was deleted");
  return its->charge_id();
}

const std::vector<CmDevice*>& Cm::in(uint64_t netns) const {
  static const std::vector<CmDevice*> kNone;
  const auto it = devices_.find(netns);
  return it != devices_.end() ? it->second : kNone;
}

CmDevice* Cm::device(const qp1mux::Endpoint* endpoint) const {
  const auto it = by_endpoint_.find(endpoint);
  return it != by_endpoint_.end() ? it->second : nullptr;
}

CmDevice* Cm::device(uint64_t netns, uint64_t node_guid) const {
  for (CmDevice* device : in(netns))
    if (device->node_guid() == node_guid) return device;
  return nullptr;
}

const CmDevice* Cm::numbered(uint64_t netns, uint32_t number) const {
  for (const CmDevice* device : in(netns))
    if (device->number() == number) return device;
  return nullptr;
}

std::vector<uint64_t> Cm::guids(uint64_t netns) const {
  std::vector<uint64_t> all;
  for (const CmDevice* device : in(netns)) all.push_back(device->node_guid());
  return all;
}

Gid Cm::meant(uint64_t netns, const Gid& gid) const {
  if (!is_loopback(gid)) return gid;
  for (const CmDevice* device : in(netns)) {
    const auto& gids = device->gids();
    if (std::find(gids.begin(), gids.end(), gid) != gids.end()) return gid;  // a vdevice on lo
    for (const Gid& own : gids)
      if (alike(own, gid)) return own;
  }
  return gid;
}

Result<qp1mux::Routes::Found> Cm::find(uint64_t netns, const Gid& local, const Gid& remote) {
  bool here = false;
  bool speaks = false;
  CmDevice* best = nullptr;
  bool near = false;
  Gid from;
  int bits = -1, choices = 0;
  for (CmDevice* device : in(netns)) {
    here = true;
    for (const Gid& gid : device->gids()) {
      if (local.is_unspecified() ? !alike(gid, remote) : gid != local) continue;
      speaks = true;
      const bool is_near = remote.is_multicast() || mux_.are_near(device->fabric(), gid, remote);
      if (!is_near && (near || network_ == nullptr || !network_->leads_to(*device, remote)))
        continue;
      ++choices;
      const int common = common_bits(gid, remote);
      if (is_near == near && common <= bits) continue;
      best = device;
      near = is_near;
      from = gid;
      bits = common;
    }
  }
  if (!here) return fail(ENODEV, "the namespace has no vdevice");
  if (!speaks && !local.is_unspecified())
    return fail(EADDRNOTAVAIL, "no vdevice has " + local.text());
  if (!speaks) return fail(ENETUNREACH, "no vdevice has an address of that family");
  if (best == nullptr) return fail(EHOSTUNREACH, "no reachable vdevice has " + remote.text());
  // Of several addresses the one from which the kernel would send.
  if (!near && choices > 1 && local.is_unspecified())
    if (const auto source = network_->source_to(*best, from, remote); source)
      for (CmDevice* device : in(netns))
        if (device->endpoint().owns(*source) && network_->leads_to(*device, remote)) {
          best = device;
          from = *source;
        }
  qp1mux::Route route;
  route.endpoint = &best->endpoint();
  route.local = from;
  route.path_mtu = best->path_mtu();
  route.ack_delay = best->ack_delay();
  return Found{route, near};
}

std::shared_ptr<void> Cm::look_up(const qp1mux::Route& route, const Gid& remote, Answer answer) {
  const CmDevice* const from = device(route.endpoint);
  return network_ != nullptr && from != nullptr
             ? network_->look_up(*from, route, remote, std::move(answer))
             : Routes::look_up(route, remote, std::move(answer));
}

Result<qp1mux::Endpoint*> Cm::owner(uint64_t netns, const Gid& local) {
  for (CmDevice* device : in(netns))
    if (device->endpoint().owns(local)) return &device->endpoint();
  return fail(ENODEV, "no vdevice has " + local.text());
}

std::vector<qp1mux::Endpoint*> Cm::all(uint64_t netns) {
  std::vector<qp1mux::Endpoint*> all;
  for (CmDevice* device : in(netns)) all.push_back(&device->endpoint());
  return all;
}

}  // namespace vrdma::vrdmad
