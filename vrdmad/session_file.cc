#include "vrdmad/session_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

namespace vrdma::vrdmad {

using base::fail;
using base::fail_errno;
using base::Fd;
using base::Result;

namespace {
constexpr uint64_t kMagic = 0x76726d6173657373;
// Changes with anything that is stored here, so also with what core/ipc and core/rdma put into it.
constexpr uint32_t kFormat = 1;
constexpr uint64_t kFirstSize = 16384;
constexpr uint64_t kRecords = 1024;  // where they begin
constexpr uint64_t kSlack = 1u << 20;

uint64_t padded(uint64_t size) { return (size + 7) / 8 * 8; }
}  // namespace

struct SessionFile::Header {
  uint64_t magic;
  uint32_t format;
  uint32_t begun;
  std::atomic<uint32_t> answered;  // sequence; its reply is replies[answered % 2]
  uint32_t reserved;
  ipc::Reply replies[2];
  char forbidden[128];
};

struct SessionFile::RecordHeader {
  uint32_t size;  // of the data; 0: the end
  uint16_t kind;
  std::atomic<uint16_t> valid;
  uint32_t number;
  uint32_t sequence;
  uint8_t* data() { return reinterpret_cast<uint8_t*>(this + 1); }
  [[nodiscard]] uint64_t length() const { return sizeof(RecordHeader) + padded(size); }
};

Result<std::unique_ptr<SessionFile>> SessionFile::create(const std::string& path) {
  Fd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!fd.valid()) return fail_errno("make " + path);
  std::unique_ptr<SessionFile> file(new SessionFile(path, std::move(fd)));
  if (!file->grow(kFirstSize)) return fail_errno("make room in " + path);
  static_assert(sizeof(Header) <= kRecords && sizeof(RecordHeader) == 16);
  file->header()->format = kFormat;
  file->header()->magic = kMagic;
  file->end_ = kRecords;
  return file;
}

Result<std::unique_ptr<SessionFile>> SessionFile::open(const std::string& path) {
  Fd fd(::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW));
  if (!fd.valid()) return fail_errno("open " + path);
  struct stat status {};
  if (::fstat(fd.get(), &status) != 0) return fail_errno("look at " + path);
  std::unique_ptr<SessionFile> file(new SessionFile(path, std::move(fd)));
  const auto size = static_cast<uint64_t>(status.st_size);
  if (!S_ISREG(status.st_mode) || size < kFirstSize) return fail(EINVAL, path + " is no session");
  if (auto mapped = file->map(size); !mapped) return base::pass(std::move(mapped).error());
  if (file->header()->magic != kMagic) return fail(EINVAL, path + " is no session");
  if (file->header()->format != kFormat)
    return fail(EPROTO, "its state is of another version of vrdmad");
  uint64_t at = kRecords;
  while (at + sizeof(RecordHeader) <= size) {
    RecordHeader* record = file->at(at);
    if (record->size == 0) break;
    if (record->length() > size - at || record->kind >= static_cast<uint16_t>(Kind::kKinds))
      return fail(EINVAL, path + " is damaged");
    if (record->valid.load(std::memory_order_acquire) == 1) {
      // Of two, the later one: the daemon died before it had crossed out the other.
      const auto [it, fresh] =
          file->records_.try_emplace(key(static_cast<Kind>(record->kind), record->number), at);
      if (!fresh) {
        RecordHeader* before = file->at(std::exchange(it->second, at));
        before->valid.store(0, std::memory_order_relaxed);
        file->live_ -= before->length();
      }
      file->live_ += record->length();
    }
    at += record->length();
  }
  file->end_ = at;
  return file;
}

SessionFile::~SessionFile() {
  if (base_ != nullptr) ::munmap(base_, size_);
  if (!kept_) ::unlink(path_.c_str());
}

Result<void> SessionFile::map(uint64_t size) {
  void* mapped = base_ == nullptr
                     ? ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd_.get(), 0)
                     : ::mremap(base_, size_, size, MREMAP_MAYMOVE);
  if (mapped == MAP_FAILED) return fail_errno("map " + path_);
  base_ = static_cast<uint8_t*>(mapped);
  size_ = size;
  return {};
}

// Room that is allocated cannot be missing when it is written (SIGBUS).
bool SessionFile::grow(uint64_t size) {
  if (size <= size_) return true;
  const uint64_t wanted = std::max(size, size_ + std::min(size_, kSlack));
  const int error = ::posix_fallocate(fd_.get(), 0, static_cast<off_t>(wanted));
  if (error != 0) {
    errno = error;
    return false;
  }
  return map(wanted).has_value();
}

void SessionFile::append(Kind kind, uint32_t number, const void* data, size_t size,
                         uint32_t sequence) {
  RecordHeader* record = at(end_);
  std::memcpy(record->data(), data, size);
  record->kind = static_cast<uint16_t>(kind);
  record->number = number;
  record->sequence = sequence;
  record->valid.store(0, std::memory_order_relaxed);
  at(end_ + sizeof(RecordHeader) + padded(size))->size = 0;
  std::atomic_thread_fence(std::memory_order_release);
  record->size = static_cast<uint32_t>(size);
  record->valid.store(1, std::memory_order_release);
  const auto [it, fresh] = records_.try_emplace(key(kind, number), end_);
  if (!fresh) {
    RecordHeader* before = at(std::exchange(it->second, end_));
    before->valid.store(0, std::memory_order_release);
    live_ -= before->length();
  }
  live_ += record->length();
  end_ += record->length();
}

void SessionFile::put(Kind kind, uint32_t number, const void* data, size_t size,
                      uint32_t sequence) {
  const uint64_t needed = 2 * sizeof(RecordHeader) + padded(size);
  if (end_ + needed > size_ && end_ - kRecords > 2 * live_) compact();
  if (!grow(end_ + needed)) return forbid("there is no room for its state in the run directory");
  append(kind, number, data, size, sequence);
}

void SessionFile::erase(Kind kind, uint32_t number) {
  const auto it = records_.find(key(kind, number));
  if (it == records_.end()) return;
  RecordHeader* record = at(it->second);
  record->valid.store(0, std::memory_order_release);
  live_ -= record->length();
  records_.erase(it);
}

// Into a new file, which then takes the place of this one. Without room for it, all stays as it is.
void SessionFile::compact() {
  const std::string path = path_ + "~";
  ::unlink(path.c_str());
  auto made = create(path);
  if (!made || !(*made)->grow(kRecords + live_ + kFirstSize)) return;
  SessionFile& fresh = **made;
  std::memcpy(fresh.base_, base_, kRecords);
  std::vector<uint64_t> offsets;
  for (const auto& [name, offset] : records_) offsets.push_back(offset);
  std::sort(offsets.begin(), offsets.end());
  for (const uint64_t offset : offsets) {
    RecordHeader* record = at(offset);
    fresh.append(static_cast<Kind>(record->kind), record->number, record->data(), record->size,
                 record->sequence);
  }
  if (::rename(path.c_str(), path_.c_str()) != 0) return;
  fresh.kept_ = true;  // by its new name
  std::swap(fd_, fresh.fd_);
  std::swap(base_, fresh.base_);
  std::swap(size_, fresh.size_);
  std::swap(end_, fresh.end_);
  std::swap(live_, fresh.live_);
  std::swap(records_, fresh.records_);
}

std::vector<SessionFile::Record> SessionFile::all(Kind kind) const {
  std::vector<Record> found;
  for (const auto& [name, offset] : records_) {
    if (name >> 32 != static_cast<uint16_t>(kind)) continue;
    RecordHeader* record = at(offset);
    found.push_back({record->number, record->data(), record->size,
                     record->sequence <= header()->answered.load()});
  }
  std::sort(found.begin(), found.end(),
            [](const auto& a, const auto& b) { return a.number < b.number; });
  return found;
}

void SessionFile::set_begun(uint32_t sequence) { header()->begun = sequence; }

// While it is written, the answer before it stands, which the program has: it asks no more of it.
void SessionFile::set_answered(const ipc::Reply& reply) {
  std::memcpy(static_cast<void*>(&header()->replies[reply.sequence % 2]), &reply, sizeof reply);
  header()->answered.store(reply.sequence, std::memory_order_release);
}

SessionFile::Last SessionFile::last() const {
  Last last;
  last.begun = header()->begun;
  const uint32_t answered = header()->answered.load(std::memory_order_acquire);
  std::memcpy(static_cast<void*>(&last.reply), &header()->replies[answered % 2], sizeof last.reply);
  last.reply.sequence = answered;
  return last;
}

void SessionFile::forbid(const char* reason) {
  if (header()->forbidden[0] != '\0') return;
  std::strncpy(header()->forbidden, reason, sizeof header()->forbidden - 1);
}

std::string SessionFile::forbidden() const { return header()->forbidden; }

}  // namespace vrdma::vrdmad
