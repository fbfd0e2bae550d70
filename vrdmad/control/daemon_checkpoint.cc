// Programs that are written to disk and come back as another process.
//
// An operator's tool parks all sessions of a process, detaches them, and attaches them to the
// process that was made of the image. That process has connected to the session sockets before, so
// the broker has identified it like any other. The token of a parked process is random, and used up
// when a process is attached: no two processes go on with the same sessions. Its sessions of
// rdma_cm (vrdmad/cm/park.cc) go with those of its vdevices.
//
// Nothing of this outlives the daemon or its worker: a parked program is then taken over as if it
// had never been parked, and a detached one is not found, so its sessions end. What is left of it
// is its image (daemon_images.cc).
#include <spdlog/spdlog.h>

#include <algorithm>
#include <charconv>
#include <set>
#include <thread>
#include <utility>

#include "core/base/random.h"
#include "vrdmad/control/daemon_record.h"

namespace vrdma::vrdmad {

using base::fail;
using base::pass;
using base::Result;

namespace {

std::string random_token() {
  char text[33];
  std::snprintf(text, sizeof text, "%016llx%016llx",
                static_cast<unsigned long long>(base::random64()),
                static_cast<unsigned long long>(base::random64()));
  return text;
}

Result<void> result_of_step(const ToControl* answer) {
  const auto* done = answer != nullptr ? std::get_if<Done>(answer) : nullptr;
  if (done == nullptr) return fail(ETIMEDOUT, "the worker does not answer");
  if (done->error != 0) return fail(done->error, done->reason);
  return {};
}

}  // namespace

void Daemon::ask_all(const std::map<uint64_t, Furnisher::Open>& sessions, ParkSession::Step step,
                     Steps then) {
  if (sessions.empty()) return then({});  // it uses rdma_cm only
  struct All {
    size_t left;
    Result<void> done;
    Steps then;
  };
  const auto all = std::make_shared<All>(All{sessions.size(), {}, std::move(then)});
  for (const auto& [connection, session] : sessions) {
    const auto one = [all](const Result<void>& done) {
      if (!done && all->done) all->done = done;
      if (--all->left == 0) all->then(all->done);
    };
    const std::string* const domain = workers_.domain_of(connection);
    if (domain == nullptr) {
      one(fail(ENOENT, "its session has ended"));
      continue;
    }
    const uint64_t ticket = answers_.expect(
        *domain, kWorkerPatience, [one](const ToControl* answer) { one(result_of_step(answer)); });
    workers_.find(*domain)->send(ParkSession{session.vdevice, connection, ticket, step});
  }
}

Result<SessionAnchors> Daemon::anchors_of(const Furnisher::Open& session) const {
  auto files = SessionFiles::open(settings_.state_dir, session.session);
  if (!files) return pass(std::move(files).error());
  return files->anchors->anchors();
}

// Its vdevice may have gone.
Result<ParkedSession> Daemon::described(const Furnisher::Open& session) {
  auto anchors = anchors_of(session);
  if (!anchors) return pass(std::move(anchors).error());
  const Anchor& of = anchors->of;
  const Record* const record = find(session.vdevice);
  return ParkedSession{
      session.session,
      {session.vdevice, of.name, record != nullptr ? record->spec.netns : std::string()},
      record != nullptr ? run_dir_.session_socket(record->link.netns_cookie, record->number)
                        : std::string(),
      {of.arena.inode, of.bells.inode, of.memory.inode, of.doorbell, of.events, anchors->channels},
      of.process.pid};
}

// Its worker has what its program had.
void Daemon::be_away(uint64_t connection, ParkedSession* session) const {
  const std::string* const domain = workers_.domain_of(connection);
  session->away = true;
  session->pid = domain != nullptr ? workers_.find(*domain)->pid() : 0;
}

Result<ParkedProcess> Daemon::described(const Parked& parked) {
  ParkedProcess process{parked.pid, parked.token, {}};
  for (const auto& one : parked.connections)
    process.connections.push_back({one.socket, one.channels, {}});
  for (const auto& [connection, session] : parked.sessions) {
    auto its = described(session);
    if (!its) return pass(std::move(its).error());
    if (parked.detached) be_away(connection, &*its);
    process.sessions.push_back(std::move(*its));
  }
  process.peers = peers_of(parked);
  return process;
}

// Programs of one worker and one user may have direct links.
std::vector<ParkedSession> Daemon::peers_of(const Parked& parked) {
  std::set<std::string> domains;
  std::set<uint64_t> away;  // connections
  for (const auto& [connection, session] : parked.sessions)
    if (const std::string* const domain = workers_.domain_of(connection)) domains.insert(*domain);
  for (const auto& [token, other] : parked_)
    for (const auto& [connection, session] : other.sessions)
      if (other.detached) away.insert(connection);
  std::vector<ParkedSession> peers;
  for (const Furnisher::Open& session : furnisher_.sessions_beside(parked.pid)) {
    const std::string* const domain = workers_.domain_of(session.connection);
    if (domain == nullptr || !domains.contains(*domain)) continue;
    auto its = described(session);
    if (!its) continue;  // it ends
    if (away.contains(session.connection)) be_away(session.connection, &*its);
    peers.push_back(std::move(*its));
  }
  return peers;
}

Result<Daemon::Parked*> Daemon::find_parked(const std::string& process) {
  forget_ended();
  if (const auto it = parked_.find(process); it != parked_.end()) return &it->second;
  int32_t pid = 0;
  const auto [end, error] = std::from_chars(process.data(), process.data() + process.size(), pid);
  if (error == std::errc() && end == process.data() + process.size())
    for (auto& [token, parked] : parked_)
      if (parked.pid == pid) return &parked;
  return fail(ENOENT,
              "no parked process has this number or token: it was attached, resumed or "
              "abandoned, or its time is over");
}

Result<ParkedProcess> Daemon::park_process(int32_t pid) {
  const std::string who = "process " + std::to_string(pid);
  return call_later<Result<ParkedProcess>>([&](auto done) {
    if (find_parked(std::to_string(pid))) return done(fail(EALREADY, who + " is parked already"));
    Parked parked{random_token(), pid, false, {}, {}, {}};
    const std::string token = parked.token;
    for (const auto& open : furnisher_.sessions_of(pid)) parked.sessions[open.connection] = open;
    auto connections = cm_.park(pid, token);
    if (!connections) return done(pass(std::move(connections).error(), who + " cannot be parked"));
    parked.connections = std::move(*connections);
    if (parked.sessions.empty() && parked.connections.empty())
      return done(fail(ENOENT, who + " has no vdevice open"));
    const auto sessions = parked.sessions;
    parked_.emplace(token, std::move(parked));
    ask_all(sessions, ParkSession::Step::kPark, [this, token, sessions, who, done](auto all) {
      const auto it = parked_.find(token);
      if (all && it == parked_.end()) all = fail(ENOENT, "its sessions have ended");
      auto process = all ? described(it->second) : pass(std::move(all).error());
      if (process) {
        start_grace(token);
        spdlog::info("{} is parked, with {} session(s) and {} of rdma_cm", who, sessions.size(),
                     process->connections.size());
        return done(std::move(process));
      }
      parked_.erase(token);
      cm_.resume_parked(token);
      ask_all(sessions, ParkSession::Step::kResume, [](const auto&) {});  // those that are parked
      done(pass(std::move(process).error(), who + " cannot be parked"));
    });
  });
}

Result<ParkedProcess> Daemon::parked_process(const std::string& process) {
  return call_later<Result<ParkedProcess>>([&](auto done) {
    auto parked = find_parked(process);
    auto found = parked ? described(**parked) : pass(std::move(parked).error());
    if (found && (*parked)->detached && !is_homeless(**parked)) add_images(**parked, &*found);
    done(std::move(found));
  });
}

Result<void> Daemon::detach_process(const std::string& process) {
  return call_later<Result<void>>([&](auto done) {
    auto parked = find_parked(process);
    if (!parked) return done(pass(std::move(parked).error()));
    if ((*parked)->detached) return done(fail(EALREADY, "the process is detached already"));
    (*parked)->detached = true;
    cm_.detach((*parked)->token);
    ask_all((*parked)->sessions, ParkSession::Step::kDetach, done);
  });
}

// The descriptors of `process` that are those of the session.
Result<Furnisher::Adopted> Daemon::attached(const Furnisher::Open& session,
                                            const AttachedProcess& process,
                                            AttachSession* message) {
  Record* const record = find(session.vdevice);
  if (record == nullptr) return fail(ENOENT, "its vdevice has gone");
  const auto its = std::ranges::find(process.sessions, session.session, &ParkedSession::number);
  if (its == process.sessions.end())
    return fail(EINVAL, "session " + std::to_string(session.session) + " is missing");
  auto caller = furnisher_.newcomer_of(session.vdevice, process.pid);
  if (caller == nullptr)
    return fail(ENOTCONN, "it is not connected to the socket of vdevice " + record->label);
  auto now = anchors_of(session);
  if (!now) return pass(std::move(now).error());
  const SharedFileIds& files = its->files;
  now->of.arena = memory_file_id(files.arena);
  now->of.bells = memory_file_id(files.bells);
  now->of.memory = memory_file_id(files.memory);
  now->of.doorbell = files.doorbell;
  now->of.events = files.events;
  for (auto& [handle, write_end] : now->channels)
    if (const auto found = files.channels.find(handle); found != files.channels.end())
      write_end = found->second;
  base::Duration used{};
  auto adopted =
      furnisher_.attach(session.connection, *now, std::move(caller), record->intake, &used);
  if (WorkerEnd* const worker = workers_.find(record->domain))
    worker->send(Await{
        record->id,
        static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(used).count()),
        awaits_others(*record)});
  message->bells = now->of.bells;
  message->doorbell = files.doorbell;
  message->events = files.events;
  message->epoch = settings_.epoch;
  return adopted;
}

// Its connection may have arrived and not been accepted yet.
Result<void> Daemon::attach_process(const AttachedProcess& process) {
  constexpr auto kPause = std::chrono::milliseconds(20);
  constexpr int kTries = 100;
  auto done = attach_once(process);
  for (int tries = 1; !done && done.error().code() == ENOTCONN && tries < kTries; ++tries) {
    std::this_thread::sleep_for(kPause);
    done = attach_once(process);
  }
  return done;
}

Result<void> Daemon::attach_once(const AttachedProcess& process) {
  const std::string who = "process " + std::to_string(process.pid);
  return call_later<Result<void>>([&](auto done) {
    forget_ended();
    const auto it = parked_.find(process.token);
    if (it == parked_.end() || is_homeless(it->second)) return import(process, done);
    if (!it->second.detached)
      return done(
          fail(EBUSY, "process " + std::to_string(it->second.pid) + " still has its sessions"));
    begin_epoch();
    // Of all, before any of them changes hands.
    std::vector<std::pair<Furnisher::Adopted, AttachSession>> all;
    for (const auto& [connection, session] : it->second.sessions) {
      AttachSession message;
      auto adopted = attached(session, process, &message);
      if (!adopted) return done(pass(std::move(adopted).error(), who + " cannot be attached"));
      all.emplace_back(std::move(*adopted), std::move(message));
    }
    if (auto attached = cm_.attach(process.token, process.pid); !attached)
      return done(pass(std::move(attached).error(), who + " cannot be attached"));
    const auto sessions = it->second.sessions;
    used_tokens_.add(process.token);
    parked_.erase(it);
    spdlog::info("{} goes on with {} session(s) that were detached", who, all.size());
    if (all.empty()) return done({});
    const auto left = std::make_shared<size_t>(all.size());
    const auto result = std::make_shared<Result<void>>();
    for (auto& [adopted, message] : all) {
      Record& record = *find(adopted.vdevice);
      const auto one = [this, left, result, sessions, done](const ToControl* answer) {
        if (auto ended = result_of_step(answer); !ended && *result) *result = std::move(ended);
        if (--*left > 0) return;
        // No process has all of them, and none will come.
        if (!*result) ask_all(sessions, ParkSession::Step::kEnd, [](const auto&) {});
        done(*result);
      };
      WorkerEnd* const worker = workers_.find(record.domain);
      if (worker == nullptr) {
        one(nullptr);
        continue;
      }
      message.ticket = answers_.expect(record.domain, kWorkerPatience, one);
      for (auto& parcel : parcels(std::move(adopted), std::move(message)))
        worker->send(std::move(parcel));
    }
  });
}

Result<void> Daemon::resume_process(const std::string& process) {
  return call_later<Result<void>>([&](auto done) {
    auto parked = find_parked(process);
    if (!parked) return done(pass(std::move(parked).error()));
    if ((*parked)->detached)
      return done(fail(EBUSY, "the process is detached: attach one, or abandon it"));
    const auto sessions = (*parked)->sessions;
    cm_.resume_parked((*parked)->token);
    parked_.erase((*parked)->token);
    ask_all(sessions, ParkSession::Step::kResume, done);
  });
}

Result<void> Daemon::abandon_process(const std::string& process) {
  return call_later<Result<void>>([&](auto done) {
    auto parked = find_parked(process);
    if (!parked) return done(pass(std::move(parked).error()));
    const auto sessions = (*parked)->sessions;
    used_tokens_.add((*parked)->token);
    cm_.end_parked((*parked)->token);
    parked_.erase((*parked)->token);
    ask_all(sessions, ParkSession::Step::kEnd, done);
  });
}

// Its vdevices have gone, while it was away.
bool Daemon::is_homeless(const Parked& parked) const {
  if (parked.sessions.empty()) return cm_.is_away(parked.token);
  return parked.detached && std::ranges::none_of(parked.sessions, [this](const auto& one) {
           return records_.contains(one.second.vdevice);
         });
}

void Daemon::start_grace(const std::string& token) {
  if (settings_.park_grace.count() == 0) return;
  parked_.at(token).grace =
      loop_.after(settings_.park_grace, [this, token] { on_grace_over(token); });
}

// A program that still has its sessions goes on with them.
void Daemon::on_grace_over(const std::string& token) {
  auto over = parked_.extract(token);
  const Parked& parked = over.mapped();
  parked.detached ? cm_.end_parked(token) : cm_.resume_parked(token);
  spdlog::warn("process {} was parked for too long: {}", parked.pid,
               parked.detached ? "its sessions end" : "it goes on");
  ask_all(parked.sessions, parked.detached ? ParkSession::Step::kEnd : ParkSession::Step::kResume,
          [](const auto&) {});
}

// Without its last vdevice the connections of a process go on, or end, with what is left of it.
void Daemon::forget_parked(uint64_t connection) {
  for (auto& [token, parked] : parked_) {
    if (parked.sessions.erase(connection) == 0 || !parked.sessions.empty()) continue;
    parked.detached ? cm_.end_parked(token) : cm_.resume_parked(token);
  }
  forget_ended();
}

void Daemon::forget_ended() {
  std::erase_if(parked_, [this](const auto& one) {
    return one.second.sessions.empty() && !cm_.has_parked(one.first);
  });
}

uint32_t Daemon::parked_of(uint64_t vdevice) const {
  uint32_t count = 0;
  for (const auto& [token, parked] : parked_)
    for (const auto& [connection, session] : parked.sessions)
      if (session.vdevice == vdevice) ++count;
  return count;
}

}  // namespace vrdma::vrdmad
