// Sessions of rdma_cm whose program goes on elsewhere: at another vrdmad, at the next one, or with
// other vdevices.
//
// The image of a session is what the next daemon would read of it (cm_session_image.h). This daemon
// writes a file of it, as if it had served the session before, and adopts that: there is no second
// way to make a session. Connections keep their ids, which are random (qp1mux/mux.h), so that
// messages of their peers find them; ports stay the same. Whether numbers, ports, addresses and
// limits permit it is asked before anything is changed.
//
// A program knows a vdevice by its GUID. It is told that of the vdevice that it had, also after
// another one has taken its place: see CmSession::known_as().
//
// The source is not told that the program goes on elsewhere. So from its detachment on, its
// connections send nothing unasked, and when the session ends, peers on other hosts learn nothing.
// Where it goes on, messages to it that come too early must not be refused: Cm::expect().
#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>

#include "vrdmad/cm/cm.h"
#include "vrdmad/cm/session.h"

namespace vrdma::vrdmad {

using base::fail;
using base::pass;
using base::Result;
using qp1mux::CmIdState;
using qp1mux::State;

uint64_t CmSession::known_as(uint64_t node_guid) {
  if (const auto known = known_as_.find(node_guid); known != known_as_.end()) return known->second;
  if (known_as_.size() == CmSessionImage::kMostVdevices) return node_guid;
  known_as_.emplace(node_guid, node_guid);
  file_.put_vdevice(static_cast<uint32_t>(known_as_.size()), {node_guid, node_guid});
  return node_guid;
}

Result<CmSessionImage> CmSession::image() {
  if (channels_.empty()) return CmSessionImage{};  // its program begins anew
  if (!file_.active()) return fail(ENOTSUP, "no file keeps the state of its connections");
  for (const auto& [handle, id] : file_.ids())  // an earlier daemon may not have noted them
    if (id.node_guid != 0) (void)known_as(id.node_guid);
  auto image = CmSessionImage::of(file_);
  if (!image) return image;
  for (auto& [handle, id] : image->ids) {
    const uint64_t guid = id.record.node_guid;
    if (guid == 0) continue;
    const CmDevice* const device = cm_.device(netns(), guid);
    if (device == nullptr || !known_as_.contains(guid))
      return fail(ENODEV, "a vdevice of its connections is not known");
    id.sgid_index = device->sgid_index(id.record.id.local.gid);
  }
  image->vdevices.clear();
  for (const auto& [guid, known] : known_as_)
    if (const CmDevice* const device = cm_.device(netns(), guid); device != nullptr)
      image->vdevices.push_back({{known, guid}, device->name()});
  return image;
}

bool CmSession::has_ids_of(const qp1mux::Endpoint& endpoint) const {
  return std::any_of(ids_.begin(), ids_.end(),
                     [&](const auto& id) { return id.second->cm->endpoint() == &endpoint; });
}

std::set<uint32_t> CmSession::local_ids() const {
  std::set<uint32_t> all;
  for (const auto& [handle, id] : ids_)
    if (const uint32_t number = id->cm->connection_id(); number != 0) all.insert(number);
  return all;
}

bool CmSession::has_all_of(const CmSessionImage& image) const {
  return std::all_of(image.ids.begin(), image.ids.end(), [this](const auto& before) {
    const auto now = ids_.find(before.first);
    return now != ids_.end() && (now->second->cm->state() != CmIdState::kGone ||
                                 before.second.record.id.state == CmIdState::kGone);
  });
}

void CmSession::leave_quietly() {
  for (const auto& [handle, id] : ids_) id->cm->leave(false);
  end();
  while (!end_some()) {
  }
}

Result<std::vector<CmSessionImage>> Cm::images(const std::string& token) const {
  std::vector<CmSessionImage> all;
  for (CmSession* const session : parked_as(token)) {
    auto image = session->image();
    if (!image) return pass(std::move(image).error());
    all.push_back(std::move(*image));
  }
  return all;
}

std::string Cm::obstacle(const CmSessionImage& image, uint64_t node_guid, const CmDevice& device) {
  for (const auto& [handle, id] : image.ids) {
    if (id.record.node_guid != node_guid) continue;
    const verbs::Gid& named = id.record.id.local.gid;
    const verbs::Gid now = device.gid_at(id.sgid_index);
    if (!named.is_unspecified() && now != named)
      return "an rdma_cm id of the program names GID " + named.text() + " by index " +
             std::to_string(id.sgid_index) + ", where the vdevice has " +
             (now.is_unspecified() ? "none" : now.text());
  }
  return {};
}

Result<void> Cm::may_import(uint64_t netns, const std::vector<Coming>& all) const {
  uint32_t channels = 0, ids = 0;
  std::map<const CmDevice*, CmDevice::Arriving> arriving;
  std::set<uint32_t> numbers;
  for (const auto& [image, vdevices] : all) {
    if (image.channels.empty()) continue;
    channels += static_cast<uint32_t>(image.channels.size());
    ids += static_cast<uint32_t>(image.ids.size());
    if (session(netns, reinterpret_cast<const uint8_t*>(image.secret.data())) != nullptr)
      return fail(EADDRINUSE, "its session of rdma_cm is here already");
    for (const auto& [handle, id] : image.ids) {
      const qp1mux::CmIdRecord& record = id.record.id;
      if (record.is_bound) {
        qp1mux::PortRequest port = record.bound;
        port.netns = netns;
        if (record.state == CmIdState::kListening) port.reuse = false;
        if (auto free = ports_.may_bind(port); !free)
          return pass(std::move(free).error(), "an rdma_cm id of the program cannot have its port");
      }
      const auto vdevice = vdevices.find(id.record.node_guid);
      if (vdevice == vdevices.end()) continue;
      CmDevice::Arriving& its = arriving[vdevice->second];
      ++its.ids;
      if (record.connection.state == State::kClosed) continue;
      ++its.connections;
      const uint32_t number = record.connection.local_id;
      if (number == 0 || mux_.has_connection(number) || !numbers.insert(number).second)
        return fail(EADDRINUSE, "a connection of the program has communication id " +
                                    std::to_string(number) + ", which another connection has here");
    }
    for (const auto& event : image.events) {
      const auto id = image.ids.find(event.handle);
      if (id == image.ids.end()) continue;
      const auto vdevice = vdevices.find(id->second.record.node_guid);
      if (vdevice != vdevices.end()) ++arriving[vdevice->second].events;
    }
  }
  const auto space = known_space(netns);
  if (space != nullptr && (!space->channels.has_room(channels) || !space->ids.has_room(ids)))
    return fail(ENOMEM, "its network namespace has too many channels or ids of rdma_cm");
  for (const auto& [device, more] : arriving)
    if (auto room = device->check_room(more); !room)
      return pass(std::move(room).error(), "vdevice " + device->name());
  return {};
}

Result<std::unique_ptr<CmSession>> Cm::imported(uint64_t netns, const Caller& caller,
                                                const Coming& coming) {
  if (settings_.state_dir.empty()) return fail(ENOTSUP, "vrdmad keeps no state of sessions");
  CmSessionFile::Who who{};
  who.netns = netns;
  who.process = caller.peer();
  who.secret = coming.image.secret;
  who.privileged = caller.peer().uid() == 0;
  CmSessionImage image = coming.image;
  for (auto& [handle, id] : image.ids) {
    qp1mux::CmIdRecord& record = id.record.id;
    record.privileged = who.privileged;
    record.bound.netns = netns;
    record.connection.begun = loop_.now();
    if (id.record.node_guid == 0) continue;
    CmDevice& device = *coming.vdevices.at(id.record.node_guid);
    id.record.node_guid = device.node_guid();
    if (auto claimed = device.endpoint().claim(&record.connection); !claimed)
      return pass(std::move(claimed).error(), "a connection of rdma_cm");
  }
  std::set<uint64_t> taken;  // several may have one in their place: the first gives its name
  std::erase_if(image.vdevices, [&](CmSessionImage::Vdevice& one) {
    const auto now = coming.vdevices.find(one.is.node_guid);
    if (now != coming.vdevices.end()) one.is.node_guid = now->second->node_guid();
    return now == coming.vdevices.end() || !taken.insert(one.is.node_guid).second;
  });
  auto opened = caller.open(false);
  if (!opened) return pass(std::move(opened).error());
  auto file = CmSessionFile::create(new_file(), who);
  if (!file) return pass(std::move(file).error());
  image.write_to(&*file);
  if (!file->active())
    return fail(ENOSPC, "no file can keep the state of its connections of rdma_cm");
  auto made = CmSession::import(*this, std::move(*file), std::move(opened->pidfd),
                                [this](CmSession* over) { forget(over); });
  if (!made) return made;
  (*made)->set_counted(true);
  if ((*made)->has_all_of(image)) return made;
  sessions_.push_back(std::move(*made));
  sessions_.back()->leave_quietly();
  return fail(EADDRINUSE, "an rdma_cm id of the program cannot be had here");
}

Result<void> Cm::import(uint64_t netns, std::shared_ptr<Caller> caller,
                        const std::vector<Coming>& all) {
  if (auto may = may_import(netns, all); !may) return may;
  std::vector<CmSession*> made;
  std::set<uint32_t> numbers, awaited;
  for (const Coming& one : all) {
    if (one.image.channels.empty()) continue;
    auto session = imported(netns, *caller, one);
    if (!session) {
      for (CmSession* const other : made) other->leave_quietly();
      return pass(std::move(session).error());
    }
    numbers.merge((*session)->local_ids());
    made.push_back(session->get());
    sessions_.push_back(std::move(*session));
  }
  for (const auto& [token, away] : away_) awaited.insert(away.ids.begin(), away.ids.end());
  mux_.drop_half_open(numbers, awaited);
  // It does not ask for its addresses before it reads its channels.
  if (network_ != nullptr && !made.empty()) (void)network_->arrived(netns, *caller, true);
  return {};
}

std::shared_ptr<void> Cm::expect(uint64_t netns) {
  std::vector<verbs::Gid> gids;
  for (const CmDevice* const device : in(netns))
    gids.insert(gids.end(), device->gids().begin(), device->gids().end());
  return mux_.be_patient(gids);
}

void Cm::put_away(CmSession& session, const std::vector<verbs::Gid>& gids) {
  Away& away = away_[session.token()];
  away.ids.merge(session.local_ids());
  away.patience.push_back(mux_.be_patient(gids));
  session.leave_quietly();
}

void Cm::put_away(const std::string& token) {
  for (CmSession* const session : parked_as(token)) {
    std::vector<verbs::Gid> gids;
    for (const CmDevice* const device : in(session->netns()))
      gids.insert(gids.end(), device->gids().begin(), device->gids().end());
    put_away(*session, gids);
  }
}

void Cm::forget_away(const std::string& token) { away_.erase(token); }

}  // namespace vrdma::vrdmad
