#include "vrdmad/records/arena_owners.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "core/base/fd.h"
#include "core/base/log.h"

namespace vrdma::vrdmad {

namespace {

constexpr uint32_t kMagic = 0x61726e31;

struct Entry {
  uint32_t magic = kMagic;
  int32_t pid = 0;
  uint64_t start_time = 0, device = 0, inode = 0;
};
static_assert(sizeof(Entry) == 32);

// False: the file does not contain all of them.
bool write_entries(const std::string& path, int how, const std::vector<Entry>& entries) {
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

void ArenaOwners::open(std::string path) {
  path_ = std::move(path);
  const base::Fd file(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  Entry entry;
  while (file.valid() && ::read(file.get(), &entry, sizeof entry) == sizeof entry &&
         entry.magic == kMagic)
    add({entry.pid, entry.start_time}, {entry.device, entry.inode});
  sweep();
}

void ArenaOwners::note(const FileId& arena, const rdma::Peer& owner) {
  const bool is_new = !has(owner, arena);
  add({owner.pid, owner.start_time}, arena);
  if (is_new) append({owner.pid, owner.start_time}, arena);
  if (arenas_.size() >= sweep_at_) sweep();
}

void ArenaOwners::add(const Process& process, const FileId& arena) {
  auto& its = arenas_[process];
  std::erase(its, arena);
  its.insert(its.begin(), arena);
  if (its.size() > kMostArenas) its.pop_back();
}

bool ArenaOwners::has(const rdma::Peer& owner, const FileId& arena) const {
  const auto its = arenas_.find({owner.pid, owner.start_time});
  return its != arenas_.end() &&
         std::find(its->second.begin(), its->second.end(), arena) != its->second.end();
}

// An entry whose writer was killed in the middle is the last one, and of a process that has not
// been answered.
void ArenaOwners::append(const Process& process, const FileId& arena) const {
  if (path_.empty()) return;
  const Entry entry{kMagic, process.first, process.second, arena.device, arena.inode};
  if (!write_entries(path_, O_APPEND, {entry})) warn(path_);
}

void ArenaOwners::sweep() {
  std::erase_if(arenas_, [](const auto& entry) { return !rdma::exists(entry.first.first); });
  sweep_at_ = std::max<size_t>(64, 2 * arenas_.size());
  if (path_.empty()) return;
  const std::string fresh = path_ + ".new";
  if (arenas_.empty()) {
    ::unlink(path_.c_str());
    ::unlink(fresh.c_str());  // of a daemon that was killed
    return;
  }
  std::vector<Entry> all;
  for (const auto& [process, its] : arenas_)
    for (auto arena = its.rbegin(); arena != its.rend(); ++arena)
      all.push_back({kMagic, process.first, process.second, arena->device, arena->inode});
  // If this process is killed meanwhile, the old file is there.
  if (!write_entries(fresh, O_TRUNC, all) || ::rename(fresh.c_str(), path_.c_str()) != 0)
    warn(path_);
}

}  // namespace vrdma::vrdmad
