// Programs that come from elsewhere: from another host, or from a vdevice or a daemon that is no
// more. Their sessions are made of images.
//
// The image of a session is what the next daemon would read of it, and is treated in the same way:
// this daemon writes files of it, as if it had served the session before, and the worker adopts it.
// So there is no second way to make a session, and none that trusts the bytes more. Queue pairs go
// on with their numbers, keys and PSNs; a vdevice must have the GIDs that they name. Peers on the
// network notice nothing. If only the vdevice has gone, peers on this host have waited, and are
// linked to the successor (vrdmad/worker/session_park.cc); what was linked to a queue pair of
// another host goes to ERR.
#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>

#include "vrdmad/control/daemon_record.h"

namespace vrdma::vrdmad {

using base::fail;
using base::pass;
using base::Result;
using verbs::QpState;

namespace {

// What gRPC carries in a message, and a little less.
constexpr size_t kMostImages = 3u << 20;  // bytes, of all sessions of a process

// A GID that objects of the session name by its index, and the first of these objects.
struct Named {
  std::string gid;
  std::string by;
};
std::map<size_t, Named> named_gids(const SessionImage& image,
                                   const std::vector<std::string>& gids) {
  std::map<size_t, Named> all;
  for (const auto& [handle, state] : image.qp_states) {
    const QpRecord& qp = state.made.record;
    if (qp.attributes.state < static_cast<uint32_t>(QpState::kRtr) || qp.sgid == verbs::Gid())
      continue;
    all.try_emplace(qp.attributes.av.sgid_index, Named{qp.sgid.text(), "a queue pair"});
  }
  const auto handles = image.served.find(Stored::kAh);
  if (handles == image.served.end()) return all;
  for (const auto& [handle, ah] : handles->second) {
    const size_t index = ah.made.request.create_ah.sgid_index;
    all.try_emplace(index, Named{index < gids.size() ? gids[index] : "::", "an address handle"});
  }
  return all;
}

// Why the session cannot go on with a vdevice that has `table`, as a sentence about it.
std::string obstacle(const SessionImage& image, const std::vector<std::string>& gids,
                     const std::vector<verbs::Gid>& table) {
  for (const auto& [index, named] : named_gids(image, gids)) {
    const std::string now = index < table.size() ? table[index].text() : "::";
    if (now != named.gid)
      return named.by + " of the program names GID " + named.gid + " by index " +
             std::to_string(index) + ", where the vdevice has " + (now == "::" ? "none" : now);
  }
  return {};
}

}  // namespace

void Daemon::add_images(const Parked& parked, ParkedProcess* process) {
  size_t sum = 0;
  const auto only_here = [&](const std::string& why) {
    spdlog::info("process {} can be restored only while this vrdmad runs: {}", parked.pid, why);
    for (ParkedSession& each : process->sessions) each.image.clear();
    for (ParkedConnections& each : process->connections) each.image.clear();
  };
  for (ParkedSession& session : process->sessions) {
    const auto of = std::ranges::find_if(
        parked.sessions, [&](const auto& one) { return one.second.session == session.number; });
    const Record* const record = of != parked.sessions.end() ? find(of->second.vdevice) : nullptr;
    auto image =
        SessionFile::image_in(SessionFiles::journal_path(settings_.state_dir, session.number));
    auto anchors = record != nullptr ? anchors_of(of->second) : fail(ENOENT, "it has gone");
    if (record == nullptr || !image || !anchors || (sum += image->size()) > kMostImages)
      return only_here(!image ? image.error().message() : "its sessions have too many objects");
    session.image = std::move(*image);
    session.known_as = anchors->of.known_as;
    for (const verbs::Gid& gid : record->table()) session.gids.push_back(gid.text());
  }
  const auto connections = cm_.images(parked.token);
  if (!connections || connections->size() != process->connections.size())
    return only_here(!connections ? connections.error().message()
                                  : "a session of rdma_cm has ended");
  for (size_t i = 0; i < connections->size(); ++i) {
    auto image = (*connections)[i].encode();
    if (image.size() > CmSessionImage::kMostBytes || (sum += image.size()) > kMostImages)
      return only_here("its connections of rdma_cm are too many");
    process->connections[i].image = std::move(image);
  }
}

// The vdevice with this name, or the only one of the namespace to which there is no obstacle.
Result<Daemon::Record*> Daemon::place(const std::string& name, uint64_t netns,
                                      const std::function<std::string(const Record&)>& obstacle) {
  std::vector<Record*> fitting;
  std::string why = "its network namespace has no vdevice";
  for (const auto& [id, record] : records_) {
    if (record->link.netns_cookie != netns || record->leaving) continue;
    const std::string its = obstacle(*record);
    if (its.empty() && record->spec.name == name) return record.get();
    if (its.empty())
      fitting.push_back(record.get());
    else
      why = "vdevice " + record->label + ": " + its;
  }
  if (fitting.size() > 1)
    return fail(ENOENT, "its network namespace has several vdevices, and none is named " + name);
  if (fitting.empty()) return fail(ENOENT, why);
  return fitting.front();
}

Result<Daemon::Record*> Daemon::place(const ParkedSession& session, uint64_t netns) {
  auto image = SessionImage::decode(session.image);
  if (!image) return pass(std::move(image).error());
  return place(session.vdev.name, netns, [&](const Record& record) {
    return obstacle(*image, session.gids, record.table());
  });
}

// A vdevice that its verbs use, too, is the one where these go on. Of one that no id has, its
// program only knows the GUID.
Result<Cm::Coming> Daemon::place(const ParkedConnections& connections,
                                 const AttachedProcess& process,
                                 const std::vector<Record*>& sessions, uint64_t netns) {
  auto image = CmSessionImage::decode(connections.image);
  if (!image) return pass(std::move(image).error());
  Cm::Coming coming{std::move(*image), {}};
  for (const auto& vdevice : coming.image.vdevices) {
    const uint64_t guid = vdevice.is.node_guid;
    const auto why_not = [&](const Record& record) {
      return Cm::obstacle(coming.image, guid, *record.cm);
    };
    const bool is_used = std::ranges::any_of(
        coming.image.ids, [guid](const auto& id) { return id.second.record.node_guid == guid; });
    Result<Record*> its = fail(ENOENT, "its network namespace has no vdevice");
    for (size_t i = 0; i < sessions.size(); ++i)
      if (process.sessions[i].vdev.name == vdevice.name) its = sessions[i];
    if (its) {
      if (const std::string why = why_not(**its); !why.empty())
        return fail(ENOENT, "vdevice " + (*its)->label + ": " + why);
    } else {
      its = place(vdevice.name, netns, why_not);
    }
    if (!its && is_used) return pass(std::move(its).error());
    if (its && (is_used || (*its)->spec.name == vdevice.name))
      coming.vdevices[guid] = (*its)->cm.get();
  }
  return coming;
}

Result<Daemon::Places> Daemon::places_of(const AttachedProcess& process, uint64_t netns) {
  Places places;
  for (const ParkedSession& session : process.sessions) {
    auto record = place(session, netns);
    if (!record) return pass(std::move(record).error());
    places.sessions.push_back(*record);
  }
  for (const ParkedConnections& one : process.connections) {
    auto coming = place(one, process, places.sessions, netns);
    if (!coming) return pass(std::move(coming).error());
    places.connections.push_back(std::move(*coming));
  }
  // Those that wait here for it have the same ports and numbers, and will give them up.
  const auto homeless = parked_.find(process.token);
  if (homeless != parked_.end()) cm_.put_away(process.token);
  if (auto may = cm_.may_import(netns, places.connections); !may)
    return pass(std::move(may).error());
  return places;
}

Result<void> Daemon::may_import(const AttachedProcess& process) {
  if (used_tokens_.has(process.token))
    return fail(EEXIST, "it was restored before, and an image is restored once");
  if (const auto it = parked_.find(process.token); it != parked_.end() && !is_homeless(it->second))
    return fail(EBUSY, "its sessions are parked here");
  const auto lacks_image = [](const auto& one) { return one.image.empty(); };
  const bool has_all = std::ranges::none_of(process.sessions, lacks_image) &&
                       std::ranges::none_of(process.connections, lacks_image);
  if ((process.sessions.empty() && process.connections.empty()) || !has_all)
    return fail(ENOENT,
                "no parked process has this token: another process was attached, or it was "
                "abandoned, or its time is over");
  return {};
}

Result<ParkedProcess> Daemon::place_process(const AttachedProcess& process) {
  const std::string who = "process " + std::to_string(process.pid);
  return call([&]() -> Result<ParkedProcess> {
    if (auto may = may_import(process); !may)
      return pass(std::move(may).error(), who + " cannot be restored");
    auto netns = settings_.broker->netns("pid:" + std::to_string(process.pid));
    if (!netns) return pass(std::move(netns).error());
    auto places = places_of(process, netns->cookie);
    if (!places) return pass(std::move(places).error(), who + " cannot be restored");
    ParkedProcess placed{process.pid, process.token, {}};
    for (size_t i = 0; i < places->sessions.size(); ++i) {
      const Record& record = *places->sessions[i];
      placed.sessions.push_back({process.sessions[i].number,
                                 {record.id, record.spec.name, record.spec.netns},
                                 run_dir_.session_socket(record.link.netns_cookie, record.number),
                                 {}});
    }
    for (size_t i = 0; i < places->connections.size(); ++i)
      placed.connections.push_back({cm_.socket_path(netns->cookie), {}, {}});
    if (!placed.connections.empty()) {
      constexpr auto kUntilItComes = std::chrono::seconds(30);
      expected_[process.token] = {
          cm_.expect(netns->cookie),
          loop_.after(kUntilItComes, [this, token = process.token] { expected_.erase(token); })};
    }
    return placed;
  });
}

// Of a session, in the process that comes.
Result<Furnisher::Adopted> Daemon::imported(const ParkedSession& session, Record& record,
                                            std::shared_ptr<Caller> caller) {
  SessionAnchors now;
  const SharedFileIds& files = session.files;
  now.of.arena = memory_file_id(files.arena);
  now.of.bells = memory_file_id(files.bells);
  now.of.memory = memory_file_id(files.memory);
  now.of.doorbell = files.doorbell;
  now.of.events = files.events;
  now.channels = files.channels;
  if (std::max(session.number, session.known_as) > Furnisher::kMostImported ||
      now.channels.size() > SessionAnchors::kMost)
    return fail(EINVAL, "its state is damaged");
  base::Duration used{};
  auto adopted = furnisher_.import(
      record.id, {record.spec.name, record.node_guid.big_endian(), record.link.netns_cookie, false},
      {session.number, session.known_as, session.image, now}, std::move(caller), record.intake,
      &used);
  if (WorkerEnd* const worker = workers_.find(record.domain))
    worker->send(Await{
        record.id,
        static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(used).count()),
        awaits_others(record)});
  return adopted;
}

// All or none.
void Daemon::import(const AttachedProcess& process, const Steps& done) {
  Imported all{"process " + std::to_string(process.pid), process.token, 0, {}, {}, nullptr};
  const auto failed = [&](base::Error why) {
    done(pass(std::move(why), all.who + " cannot be restored"));
  };
  if (auto may = may_import(process); !may) return failed(std::move(may).error());
  const auto netns = settings_.broker->netns("pid:" + std::to_string(process.pid));
  if (!netns) return failed(netns.error());
  all.netns = netns->cookie;
  auto places = places_of(process, all.netns);
  if (!places) return failed(std::move(places).error());
  all.connections = std::move(places->connections);
  std::vector<std::shared_ptr<Caller>> callers;
  for (const Record* const record : places->sessions) {
    callers.push_back(furnisher_.newcomer_of(record->id, process.pid));
    if (callers.back() == nullptr)
      return failed(
          base::Error(ENOTCONN, "it is not connected to the socket of vdevice " + record->label));
  }
  if (!all.connections.empty()) all.of_cm = cm_.newcomer(all.netns, process.pid);
  if (!all.connections.empty() && all.of_cm == nullptr)
    return failed(base::Error(ENOTCONN, "it is not connected to " + cm_.socket_path(all.netns)));
  begin_epoch();
  // Sessions whose vdevices have gone give their numbers to their successors.
  std::map<uint64_t, Furnisher::Open> before;
  if (auto homeless = parked_.extract(process.token)) before = homeless.mapped().sessions;
  for (const auto& [connection, session] : before) furnisher_.ended(connection);
  std::vector<Furnisher::Adopted> adopted;
  for (size_t i = 0; i < callers.size(); ++i) {
    auto one = imported(process.sessions[i], *places->sessions[i], std::move(callers[i]));
    if (!one) {
      for (const auto& made : all.sessions) furnisher_.ended(made.connection);
      ask_all(before, ParkSession::Step::kEnd, [](const auto&) {});
      cm_.forget_away(process.token);
      return failed(std::move(one).error());
    }
    all.sessions.push_back({one->connection, one->vdevice, one->kit.session});
    adopted.push_back(std::move(*one));
  }
  used_tokens_.add(process.token);
  spdlog::info("{} goes on with {} session(s) of an image, and {} of rdma_cm", all.who,
               all.sessions.size(), all.connections.size());
  Adopting adopting;
  for (WorkerEnd* const worker : give(std::move(adopted), &adopting)) worker->send(TakeOver{});
  // What is left of them was served by another worker.
  ask_all(before, ParkSession::Step::kEnd, [](const auto&) {});
  if (adopting.workers.empty()) return on_imported(all, done);
  // A worker that has answered has adopted them, or has said that they ended.
  const auto left = std::make_shared<size_t>(adopting.workers.size());
  for (const auto& [worker, its] : adopting.workers)
    worker->send(CheckLimits{its->id,
                             answers_.expect(its->domain, kWorkerPatience,
                                             [this, left, all, done](const ToControl*) {
                                               if (--*left == 0) on_imported(all, done);
                                             }),
                             {}});
}

// A program may repeat rdma_accept() as soon as its session of rdma_cm is there, so that comes
// last.
void Daemon::on_imported(const Imported& all, const Steps& done) {
  std::map<uint64_t, Furnisher::Open> living;
  for (const auto& one : all.sessions)
    if (furnisher_.vdevice_of(one.connection) != 0) living[one.connection] = one;
  Result<void> result;
  if (living.size() != all.sessions.size())
    result = fail(EIO, "a session could not be made again; vrdmad's log says why");
  else if (!all.connections.empty())
    result = import_connections(all);
  cm_.forget_away(all.token);
  expected_.erase(all.token);
  if (result) return done({});
  // Its image is still good when nothing of it is left.
  ask_all(living, ParkSession::Step::kEnd,
          [this, who = all.who, token = all.token, result, done](const Result<void>& ended) {
            if (ended) used_tokens_.take_back(token);
            done(pass(base::Error(result.error()), who + " cannot be restored"));
          });
}

// A vdevice may have gone since.
Result<void> Daemon::import_connections(const Imported& all) {
  for (const auto& one : all.connections)
    for (const auto& [guid, device] : one.vdevices)
      if (std::ranges::none_of(records_, [device = device](const auto& record) {
            return record.second->cm.get() == device;
          }))
        return fail(ENODEV, "a vdevice of its connections has gone");
  return cm_.import(all.netns, all.of_cm, all.connections);
}

}  // namespace vrdma::vrdmad
