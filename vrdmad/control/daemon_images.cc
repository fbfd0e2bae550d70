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
  for (ParkedSession& session : process->sessions) {
    const auto of = std::ranges::find_if(
        parked.sessions, [&](const auto& one) { return one.second.session == session.number; });
    const Record* const record = of != parked.sessions.end() ? find(of->second.vdevice) : nullptr;
    auto image =
        SessionFile::image_in(SessionFiles::journal_path(settings_.state_dir, session.number));
    auto anchors = record != nullptr ? anchors_of(of->second) : fail(ENOENT, "it has gone");
    if (record == nullptr || !image || !anchors || (sum += image->size()) > kMostImages) {
      spdlog::info("process {} can be restored only while this vrdmad runs: {}", parked.pid,
                   !image ? image.error().message() : "its sessions have too many objects");
      for (ParkedSession& each : process->sessions) each.image.clear();
      return;
    }
    session.image = std::move(*image);
    session.known_as = anchors->of.known_as;
    for (const verbs::Gid& gid : record->table()) session.gids.push_back(gid.text());
  }
}

// With the same name, or the only one on which the session can go on.
Result<Daemon::Record*> Daemon::place(const ParkedSession& session, uint64_t netns) {
  auto image = SessionImage::decode(session.image);
  if (!image) return pass(std::move(image).error());
  std::vector<Record*> fitting;
  std::string why = "its network namespace has no vdevice";
  for (const auto& [id, record] : records_) {
    if (record->link.netns_cookie != netns || record->leaving) continue;
    const std::string its = obstacle(*image, session.gids, record->table());
    if (its.empty() && record->spec.name == session.vdev.name) return record.get();
    if (its.empty())
      fitting.push_back(record.get());
    else
      why = "vdevice " + record->label + ": " + its;
  }
  if (fitting.size() > 1)
    return fail(ENOENT, "its network namespace has several vdevices, and none is named " +
                            session.vdev.name);
  if (fitting.empty()) return fail(ENOENT, why);
  return fitting.front();
}

Result<void> Daemon::may_import(const AttachedProcess& process) {
  if (used_tokens_.has(process.token))
    return fail(EEXIST, "it was restored before, and an image is restored once");
  if (const auto it = parked_.find(process.token); it != parked_.end() && !is_homeless(it->second))
    return fail(EBUSY, "its sessions are parked here");
  const bool has_all =
      std::ranges::none_of(process.sessions, [](const auto& one) { return one.image.empty(); });
  if (process.sessions.empty() || !has_all)
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
    ParkedProcess placed{process.pid, process.token, {}};
    for (const ParkedSession& session : process.sessions) {
      auto record = place(session, netns->cookie);
      if (!record) return pass(std::move(record).error(), who + " cannot be restored");
      placed.sessions.push_back(
          {session.number,
           {(*record)->id, (*record)->spec.name, (*record)->spec.netns},
           run_dir_.session_socket((*record)->link.netns_cookie, (*record)->number),
           {}});
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
  const std::string who = "process " + std::to_string(process.pid);
  const auto failed = [&](base::Error why) {
    done(pass(std::move(why), who + " cannot be restored"));
  };
  if (auto may = may_import(process); !may) return failed(std::move(may).error());
  const auto netns = settings_.broker->netns("pid:" + std::to_string(process.pid));
  if (!netns) return failed(netns.error());
  std::vector<std::pair<Record*, std::shared_ptr<Caller>>> places;
  for (const ParkedSession& session : process.sessions) {
    const auto record = place(session, netns->cookie);
    if (!record) return failed(record.error());
    auto caller = furnisher_.newcomer_of((*record)->id, process.pid);
    if (caller == nullptr)
      return failed(base::Error(
          ENOTCONN, "it is not connected to the socket of vdevice " + (*record)->label));
    places.emplace_back(*record, std::move(caller));
  }
  begin_epoch();
  // Sessions whose vdevices have gone give their numbers to their successors.
  std::map<uint64_t, Furnisher::Open> before;
  if (auto homeless = parked_.extract(process.token)) before = homeless.mapped().sessions;
  for (const auto& [connection, session] : before) furnisher_.ended(connection);
  std::vector<Furnisher::Adopted> all;
  std::vector<Furnisher::Open> opened;
  for (size_t i = 0; i < places.size(); ++i) {
    auto one = imported(process.sessions[i], *places[i].first, std::move(places[i].second));
    if (!one) {
      for (const auto& made : opened) furnisher_.ended(made.connection);
      ask_all(before, ParkSession::Step::kEnd, [](const auto&) {});
      return failed(std::move(one).error());
    }
    opened.push_back({one->connection, one->vdevice, one->kit.session});
    all.push_back(std::move(*one));
  }
  used_tokens_.add(process.token);
  spdlog::info("{} goes on with {} session(s) of an image", who, all.size());
  Adopting adopting;
  for (WorkerEnd* const worker : give(std::move(all), &adopting)) worker->send(TakeOver{});
  // What is left of them was served by another worker.
  ask_all(before, ParkSession::Step::kEnd, [](const auto&) {});
  // A worker that has answered has adopted them, or has said that they ended.
  const auto left = std::make_shared<size_t>(adopting.workers.size());
  for (const auto& [worker, its] : adopting.workers)
    worker->send(CheckLimits{its->id,
                             answers_.expect(its->domain, kWorkerPatience,
                                             [this, left, opened, who, done](const ToControl*) {
                                               if (--*left == 0) on_imported(opened, who, done);
                                             }),
                             {}});
}

void Daemon::on_imported(const std::vector<Furnisher::Open>& opened, const std::string& who,
                         const Steps& done) {
  std::map<uint64_t, Furnisher::Open> living;
  for (const auto& one : opened)
    if (furnisher_.vdevice_of(one.connection) != 0) living[one.connection] = one;
  if (living.size() == opened.size()) return done({});
  if (!living.empty()) ask_all(living, ParkSession::Step::kEnd, [](const auto&) {});
  done(fail(EIO,
            who + " cannot be restored: a session could not be made again; vrdmad's log says why"));
}

}  // namespace vrdma::vrdmad
