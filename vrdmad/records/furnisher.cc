#include "vrdmad/records/furnisher.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <set>
#include <utility>

#include "core/base/log.h"
#include "core/base/mapping.h"
#include "core/ipc/layout.h"
#include "vrdmad/records/session_search.h"

namespace vrdma::vrdmad {

using base::fail;
using base::Fd;
using base::pass;
using base::Result;

void Furnisher::begin(std::string directory, std::string arenas, uint32_t epoch, uint32_t last,
                      base::Duration patience) {
  directory_ = std::move(directory);
  owners_.open(std::move(arenas));
  epoch_ = epoch;
  last_session_ = std::max(last_session_, last);
  patience_ = patience;
}

uint64_t Furnisher::add(uint64_t vdevice, std::shared_ptr<Caller> caller,
                        std::unique_ptr<Entrance::Waiting> waiting) {
  connections_[++last_connection_] = {vdevice, std::move(caller), std::move(waiting), 0, 0};
  return last_connection_;
}

void Furnisher::accepted(uint64_t connection) {
  const auto it = connections_.find(connection);
  if (it != connections_.end()) it->second.waiting.reset();
}

uint64_t Furnisher::vdevice_of(uint64_t connection) const {
  const auto it = connections_.find(connection);
  return it != connections_.end() ? it->second.vdevice : 0;
}

const rdma::Peer* Furnisher::peer_of(uint64_t connection) const {
  const auto it = connections_.find(connection);
  return it != connections_.end() ? &it->second.caller->peer() : nullptr;
}

std::vector<std::shared_ptr<Caller>> Furnisher::callers_of(uint64_t vdevice) const {
  std::vector<std::shared_ptr<Caller>> callers;
  for (auto it = connections_.rbegin(); it != connections_.rend(); ++it)
    if (it->second.vdevice == vdevice) callers.push_back(it->second.caller);
  return callers;
}

namespace {

// Of this process, which the program cannot know: ipc/messages.h has the codes.
tl::unexpected<base::Error> lacking(const base::Error& why) {
  const bool descriptors = why.code() == EMFILE || why.code() == ENFILE;
  return fail(descriptors ? ENFILE : ENOBUFS, "make the memory of a session: " + why.message());
}

}  // namespace

Result<SessionKit> Furnisher::furnish(uint64_t connection, const Opened& opened,
                                      const FileId& shown) {
  const auto it = connections_.find(connection);
  if (it == connections_.end()) return fail(ENOTCONN, "there is no such connection");
  remove_files(it->second.session);  // of a proof that failed
  it->second.session = 0;
  const rdma::Peer& peer = it->second.caller->peer();
  SessionKit kit;
  if (shown != FileId{}) {
    if (!owners_.has(peer, shown)) return fail(EPERM, "it presents memory of another process");
    kit.memory_id = shown;
  } else {
    auto memory = base::make_memfd("vrdma-memory", ipc::kMemoryArenaSize);
    if (!memory) return lacking(memory.error());
    kit.memory = std::move(*memory);
    kit.memory_id = file_id(kit.memory);
  }
  constexpr unsigned kEvents = 32;  // the others wait at the daemon
  auto arena = base::make_memfd("vrdma-queues", ipc::kQueueArenaSize);
  auto bells = base::make_memfd("vrdma-bells", ipc::kBellFileSize);
  auto events = ipc::make_event_ends(kEvents);
  kit.doorbell = Fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!kit.doorbell.valid()) return lacking({errno, "make an eventfd"});
  for (const auto* made : {&arena, &bells})
    if (!*made) return lacking(made->error());
  if (!events) return lacking(events.error());
  auto read_only = arena->reopen(O_RDONLY);
  if (!read_only) return lacking(read_only.error());
  kit.session = ++last_session_;
  kit.arena = std::move(*arena);
  kit.arena_read_only = std::move(*read_only);
  kit.arena_id = file_id(kit.arena);
  kit.bells = std::move(*bells);
  kit.events = std::move(*events);
  if (opened.userfaultfd)
    if (auto device = it->second.caller->userfaultfd()) kit.userfaultfd = std::move(*device);
  owners_.note(kit.memory_id, peer);
  if (directory_.empty()) return kit;

  Anchor anchor = anchor_of(opened, it->second.vdevice, peer, kit);
  anchor.epoch = epoch_;
  if (!owners_.note_session(kit.session, anchor.vdevice, peer)) {
    kit.without_files = std::string("note whose it is: ") + std::strerror(errno);
    owners_.forget_session(kit.session);
    return kit;
  }
  auto files = SessionFiles::create(directory_, anchor);
  if (!files) {
    owners_.forget_session(kit.session);
    kit.without_files = files.error().message();
    return kit;
  }
  kit.anchors = files->anchors->release();
  kit.journal = files->journal->release();
  it->second.session = kit.session;
  return kit;
}

Anchor Furnisher::anchor_of(const Opened& opened, uint64_t vdevice, const rdma::Peer& process,
                            const SessionKit& kit) {
  Anchor anchor{};
  anchor.vdevice = vdevice;
  opened.name.copy(anchor.name, sizeof anchor.name - 1);
  anchor.node_guid = opened.node_guid;
  anchor.netns = opened.netns;
  anchor.process = process;
  anchor.session = kit.session;
  anchor.arena = kit.arena_id;
  anchor.bells = file_id(kit.bells);
  anchor.memory = kit.memory_id;
  anchor.doorbell = eventfd_id(kit.doorbell);
  anchor.events = file_id(kit.events.write).inode;
  return anchor;
}

namespace {

std::vector<Caller::Wanted> files_of(const SessionAnchors& anchors) {
  const Anchor& of = anchors.of;
  std::vector<Caller::Wanted> all{{of.arena.inode, WantedFile::kMemory},
                                  {of.bells.inode, WantedFile::kMemory},
                                  {of.memory.inode, WantedFile::kMemory},
                                  {of.doorbell, WantedFile::kEventfd},
                                  {of.events, WantedFile::kSocket}};
  for (const auto& [handle, write_end] : anchors.channels)
    all.push_back({write_end, WantedFile::kSocket});
  for (const ShownFile& one : anchors.shown) all.push_back({one.id.inode, WantedFile::kMemory});
  return all;
}

// Between attempts to take over what is unanswered; they become longer.
constexpr base::Duration kShortestPause = std::chrono::milliseconds(250);
constexpr base::Duration kLongestPause = std::chrono::seconds(2);

std::string sentence(const Furnisher::Found& one, const std::string& what, const base::Error& why) {
  return "vdevice " + one.label + ": the session of process " +
         std::to_string(one.files.anchors->anchors().of.process.pid) + " " + what + ": " +
         why.message();
}

}  // namespace

Furnisher::TakenOver Furnisher::take_over(Broker& broker, std::vector<Found> all,
                                          const Deliver& deliver) {
  std::stable_sort(all.begin(), all.end(), [](const Found& one, const Found& other) {
    return one.files.journal->last_work() > other.files.journal->last_work();
  });
  std::vector<Found> found;
  std::vector<SessionSearch::Wanted> wanted;
  for (Found& one : all) {
    const SessionAnchors& anchors = one.files.anchors->anchors();
    if (const std::string reason = one.files.journal->forbidden(); !reason.empty()) {
      leave_out(one, base::Error(ENOTSUP, reason));
      continue;
    }
    if (!owners_.may_have(anchors.of.session, one.vdevice, anchors.of.process)) {
      leave_out(one, base::Error(EPERM, "that process has no such session of this vdevice"));
      continue;
    }
    wanted.push_back(
        {one.vdevice, anchors.of.process, one.socket, one.recipient, files_of(anchors)});
    found.push_back(std::move(one));
  }

  TakenOver result;
  const auto before = std::exchange(unanswered_, {});
  const auto now = base::Clock::steady().now();
  SessionSearch search(broker, wanted);
  size_t batch = kFirstBatch;
  for (size_t i = 0; i < found.size(); ++i) {
    if (deliver && result.sessions.size() == batch) {
      deliver(std::exchange(result.sessions, {}));
      batch *= 2;
    }
    auto adopted = adopt(found[i], wanted[i].files, search.take(i));
    if (adopted) {
      result.sessions.push_back(std::move(*adopted));
      continue;
    }
    const auto earlier = before.find(found[i].files.anchors->anchors().of.session);
    const auto since = earlier != before.end() ? earlier->second : now;
    if (!may_answer(found[i], adopted.error(), since)) {
      leave_out(found[i], adopted.error());
      continue;
    }
    if (earlier == before.end())
      base::log_info(sentence(found[i], "is not taken over yet", adopted.error()));
    unanswered_[found[i].files.anchors->anchors().of.session] = since;
    const base::Duration pause = std::clamp(now - since, kShortestPause, kLongestPause);
    if (result.unanswered.empty() || pause < result.again_after) result.again_after = pause;
    result.unanswered.push_back(std::move(found[i].files));
  }
  result.searched = search.used();
  return result;
}

bool Furnisher::may_answer(const Found& one, const base::Error& why, base::TimePoint since) const {
  return (why.code() == EAGAIN || why.code() == ENXIO) &&
         base::Clock::steady().now() - since < patience_ &&
         rdma::exists(one.files.anchors->anchors().of.process.pid);
}

void Furnisher::leave_out(Found& one, const base::Error& why) {
  one.files.keep(why.code() == EPIPE);  // the broker has ended
  base::log_warning(sentence(one, "cannot be taken over", why));
}

Result<SessionKit> Furnisher::kit_of(const SessionAnchors& anchors, ProcessFiles& files) {
  const Anchor& anchor = anchors.of;
  SessionKit kit;
  std::pair<Fd*, Result<Fd>> has[] = {
      {&kit.arena, files.memory_file(anchor.arena, ipc::kQueueArenaSize)},
      {&kit.bells, files.memory_file(anchor.bells, ipc::kBellFileSize)},
      {&kit.memory, files.memory_file(anchor.memory, ipc::kMemoryArenaSize)},
      {&kit.doorbell, files.eventfd(anchor.doorbell)},
      {&kit.events.write, files.event_end(anchor.events)}};
  for (auto& [to, fd] : has) {
    if (!fd) return pass(std::move(fd).error());
    *to = std::move(*fd);
  }
  auto read_only = kit.arena.reopen(O_RDONLY);
  if (!read_only) return pass(std::move(read_only).error());
  kit.arena_read_only = std::move(*read_only);
  for (const auto& [handle, write_end] : anchors.channels)
    if (auto fd = files.event_end(write_end)) kit.channels[handle] = std::move(*fd);
  for (const ShownFile& one : anchors.shown) {
    auto fd = files.memory_file(one.id, one.size);
    if (!fd) return pass(std::move(fd).error());
    kit.shown.push_back({one, std::move(*fd)});
  }
  kit.session = anchor.session;
  kit.arena_id = anchor.arena;
  kit.memory_id = anchor.memory;
  return kit;
}

std::vector<Furnisher::Open> Furnisher::sessions_of(pid_t pid) const {
  std::vector<Open> all;
  for (const auto& [number, connection] : connections_)
    if (connection.session != 0 && connection.caller->peer().pid == pid)
      all.push_back({number, connection.vdevice, connection.session});
  return all;
}

std::vector<Furnisher::Open> Furnisher::sessions_beside(pid_t pid) const {
  std::set<uid_t> users;
  for (const auto& [number, connection] : connections_)
    if (connection.caller->peer().pid == pid) users.insert(connection.caller->peer().uid());
  std::vector<Open> all;
  for (const auto& [number, connection] : connections_) {
    const rdma::Peer& peer = connection.caller->peer();
    if (connection.session != 0 && peer.pid != pid && users.contains(peer.uid()))
      all.push_back({number, connection.vdevice, connection.session});
  }
  return all;
}

std::shared_ptr<Caller> Furnisher::newcomer_of(uint64_t vdevice, pid_t pid) const {
  for (auto it = connections_.rbegin(); it != connections_.rend(); ++it)
    if (it->second.vdevice == vdevice && it->second.session == 0 &&
        it->second.caller->peer().pid == pid)
      return it->second.caller;
  return nullptr;
}

Result<Furnisher::Adopted> Furnisher::attach(uint64_t connection, const SessionAnchors& now,
                                             std::shared_ptr<Caller> caller,
                                             Intake::AccountRef account, base::Duration* used) {
  const auto it = connections_.find(connection);
  if (it == connections_.end()) return fail(ENOENT, "its session has ended");
  auto opened = caller->open(false);
  if (!opened) return pass(std::move(opened).error());
  const auto wanted = files_of(now);
  auto taken = caller->take(wanted, ProcessFiles::kSearchTime, used);
  if (!taken) return pass(std::move(taken).error());
  ProcessFiles files(account, wanted, std::move(*taken));
  auto kit = kit_of(now, files);
  if (!kit) return pass(std::move(kit).error());
  owners_.note(kit->memory_id, caller->peer());
  if (!owners_.note_session(kit->session, it->second.vdevice, caller->peer()))
    return fail(EIO, "note whose session it is: " + std::string(std::strerror(errno)));
  it->second.caller = caller;
  return Adopted{connection, it->second.vdevice, std::move(caller), std::move(*opened),
                 std::move(*kit)};
}

// The one that it had, if that is free: programs that are linked with it know it, too. No session
// that begins later gets either.
uint32_t Furnisher::number_for(uint32_t imported) {
  const bool is_taken =
      imported == 0 || connection_of(imported) != 0 ||
      ::access(SessionFiles::anchors_path(directory_, imported).c_str(), F_OK) == 0;
  last_session_ = std::max(last_session_, imported);
  return is_taken ? ++last_session_ : imported;
}

Result<Furnisher::Adopted> Furnisher::import(uint64_t vdevice, const Opened& opened,
                                             const Imported& session,
                                             std::shared_ptr<Caller> caller,
                                             Intake::AccountRef account, base::Duration* used) {
  if (directory_.empty()) return fail(ENOTSUP, "vrdmad keeps no state of sessions");
  auto process = caller->open(false);
  if (!process) return pass(std::move(process).error());
  const auto wanted = files_of(session.now);
  auto taken = caller->take(wanted, ProcessFiles::kSearchTime, used);
  if (!taken) return pass(std::move(taken).error());
  ProcessFiles files(account, wanted, std::move(*taken));
  auto kit = kit_of(session.now, files);
  if (!kit) return pass(std::move(kit).error());
  kit->session = number_for(session.number);
  last_session_ = std::max(last_session_, session.known_as);
  kit->arena_id = file_id(kit->arena);
  kit->memory_id = file_id(kit->memory);
  Anchor anchor = anchor_of(opened, vdevice, caller->peer(), *kit);
  const uint32_t known = session.known_as != 0 ? session.known_as : session.number;
  anchor.known_as = kit->session != known ? known : 0;
  owners_.note(kit->memory_id, caller->peer());
  if (!owners_.note_session(kit->session, vdevice, caller->peer()))
    return fail(EIO, "note whose session it is: " + std::string(std::strerror(errno)));
  auto made = SessionFiles::create(directory_, anchor);
  if (!made) {
    owners_.forget_session(kit->session);
    return pass(std::move(made).error());
  }
  for (const auto& [handle, write_end] : session.now.channels)
    made->anchors->put_channel(handle, write_end);
  made->journal->begin();
  made->journal->restore(session.image);
  kit->anchors = made->anchors->release();
  kit->journal = made->journal->release();
  const uint64_t connection = add(vdevice, caller);
  connections_[connection].session = kit->session;
  return Adopted{connection,          vdevice,         std::move(caller),
                 std::move(*process), std::move(*kit), epoch_};
}

Result<Furnisher::Adopted> Furnisher::adopt(Found& found, const std::vector<Caller::Wanted>& wanted,
                                            Result<Broker::Found> process) {
  if (!process && process.error().code() == EMFILE)
    return fail(EMFILE, "its process has too many descriptors to search them all");
  if (!process) return pass(std::move(process).error());
  ProcessFiles files(found.account, wanted, std::move(process->files));
  auto found_kit = kit_of(found.files.anchors->anchors(), files);
  if (!found_kit) return pass(std::move(found_kit).error());
  SessionKit& kit = *found_kit;
  kit.anchors = found.files.anchors->release();
  kit.journal = found.files.journal->release();
  owners_.note(kit.memory_id, process->caller->peer());
  // If that fails, the next daemon does not take it over.
  (void)owners_.note_session(kit.session, found.vdevice, process->caller->peer());
  const uint64_t connection = add(found.vdevice, process->caller);
  connections_[connection].session = kit.session;
  return Adopted{connection, found.vdevice, std::move(process->caller), std::move(process->opened),
                 std::move(kit)};
}

void Furnisher::remove_files(uint32_t session) {
  if (session == 0) return;
  owners_.forget_session(session);
  ::unlink(SessionFiles::journal_path(directory_, session).c_str());
  ::unlink(SessionFiles::anchors_path(directory_, session).c_str());
}

uint64_t Furnisher::connection_of(uint32_t session) const {
  for (const auto& [number, connection] : connections_)
    if (connection.session == session) return number;
  return 0;
}

std::optional<Furnisher::Lost> Furnisher::lost(uint64_t connection) {
  const auto gone = connections_.extract(connection);
  if (gone.empty() || gone.mapped().session == 0) return std::nullopt;
  const Connection& was = gone.mapped();
  return Lost{was.session, was.vdevice, was.caller->peer()};
}

bool Furnisher::may_want(uint64_t connection) {
  constexpr unsigned kMost = 8;
  const auto it = connections_.find(connection);
  return it != connections_.end() && ++it->second.kits <= kMost;
}

void Furnisher::ended(uint64_t connection) {
  const auto gone = connections_.extract(connection);
  if (!gone.empty()) remove_files(gone.mapped().session);
}

void Furnisher::leave(const std::function<bool(uint64_t)>& stays) {
  for (const auto& [number, connection] : connections_)
    if (!stays(connection.vdevice)) remove_files(connection.session);
  connections_.clear();
  owners_.sweep();
}

}  // namespace vrdma::vrdmad
