#include "vrdmad/records/owners.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "core/base/fd.h"
#include "core/base/log.h"

namespace vrdma::vrdmad {

struct Owners::Entry {
  static constexpr uint32_t kArena = 0x61726e31, kSession = 0x73657331, kMark = 0x6d726b31;
  uint32_t magic = 0;
  int32_t pid = 0;
  uint64_t start_time = 0;
  uint64_t first = 0, second = 0;  // device and inode, or vdevice and session
};

namespace {

template <class Entry>
bool write_entries(const std::string& path, int how, const std::vector<Entry>& entries) {
  static_assert(sizeof(Entry) == 32);
  const base::Fd file(
      ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | how, S_IRUSR | S_IWUSR));
  const size_t size = entries.size() * sizeof(Entry);
  return file.valid() && ::write(file.get(), entries.data(), size) == static_cast<ssize_t>(size);
}

void warn(const std::string& path) {
  base::log_warning("write " + path + ": " + std::strerror(errno) +
                    ": a program that is running cannot open a vdevice again after a restart");
}

}  // namespace

void Owners::open(std::string path) {
  path_ = std::move(path);
  const base::Fd file(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  Entry entry;
  while (file.valid() && ::read(file.get(), &entry, sizeof entry) == sizeof entry) {
    if (entry.magic == Entry::kMark)
      knows_all_sessions_ = true;
    else if (entry.magic == Entry::kArena)
      add({entry.pid, entry.start_time}, {entry.first, entry.second});
    else if (entry.magic == Entry::kSession)
      sessions_[static_cast<uint32_t>(entry.second)] = {{entry.pid, entry.start_time}, entry.first};
    else
      break;
  }
  sweep();
}

void Owners::note(const FileId& arena, const rdma::Peer& owner) {
  const bool is_new = !has(owner, arena);
  add({owner.pid, owner.start_time}, arena);
  if (is_new && !append({Entry::kArena, owner.pid, owner.start_time, arena.device, arena.inode}))
    warn(path_);
}

void Owners::add(const Process& process, const FileId& arena) {
  auto& its = arenas_[process];
  std::erase(its, arena);
  its.insert(its.begin(), arena);
  if (its.size() > kMostArenas) its.pop_back();
}

bool Owners::has(const rdma::Peer& owner, const FileId& arena) const {
  const auto its = arenas_.find({owner.pid, owner.start_time});
  return its != arenas_.end() &&
         std::find(its->second.begin(), its->second.end(), arena) != its->second.end();
}

bool Owners::note_session(uint32_t session, uint64_t vdevice, const rdma::Peer& owner) {
  const Session wanted{{owner.pid, owner.start_time}, vdevice};
  auto& its = sessions_[session];
  if (its == wanted) return true;
  its = wanted;
  return append({Entry::kSession, owner.pid, owner.start_time, vdevice, session});
}

void Owners::forget_session(uint32_t session) { sessions_.erase(session); }

bool Owners::may_have(uint32_t session, uint64_t vdevice, const rdma::Peer& owner) const {
  if (!knows_all_sessions_) return true;
  const auto its = sessions_.find(session);
  return its != sessions_.end() && its->second == Session{{owner.pid, owner.start_time}, vdevice};
}

// An entry whose writer was killed in the middle is the last one, and of a process that has not
// been answered.
bool Owners::append(const Entry& entry) {
  if (path_.empty()) return true;
  if (entries_ == 0 || ++entries_ >= sweep_at_) {
    forget_the_dead();
    return rewrite();  // with this one
  }
  return write_entries<Entry>(path_, O_APPEND, {entry});
}

void Owners::sweep() {
  forget_the_dead();
  if (!path_.empty() && !rewrite()) warn(path_);
}

void Owners::forget_the_dead() {
  const auto has_ended = [](const Process& process) { return !rdma::exists(process.first); };
  std::erase_if(arenas_, [&](const auto& entry) { return has_ended(entry.first); });
  std::erase_if(sessions_, [&](const auto& entry) { return has_ended(entry.second.process); });
}

bool Owners::rewrite() {
  const std::string fresh = path_ + ".new";
  if (arenas_.empty() && sessions_.empty()) {
    ::unlink(path_.c_str());
    ::unlink(fresh.c_str());  // of a daemon that was killed
    entries_ = 0;
    return true;
  }
  std::vector<Entry> all{{Entry::kMark}};
  for (const auto& [process, its] : arenas_)
    for (auto arena = its.rbegin(); arena != its.rend(); ++arena)
      all.push_back({Entry::kArena, process.first, process.second, arena->device, arena->inode});
  for (const auto& [number, session] : sessions_)
    all.push_back(
        {Entry::kSession, session.process.first, session.process.second, session.vdevice, number});
  // If this process is killed meanwhile, the old file is there.
  if (!write_entries(fresh, O_TRUNC, all) || ::rename(fresh.c_str(), path_.c_str()) != 0)
    return false;
  entries_ = all.size();
  sweep_at_ = std::max(kFewest, 2 * entries_);
  return true;
}

}  // namespace vrdma::vrdmad
