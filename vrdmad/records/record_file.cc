#include "vrdmad/records/record_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace vrdma::vrdmad {

using base::fail;
using base::fail_errno;
using base::Fd;
using base::Result;

namespace {
constexpr uint64_t kMagic = 0x76726d61726563f1;
constexpr uint64_t kFirstSize = 16384;
constexpr uint64_t kRoom = 1024;                          // where the log begins
constexpr uint64_t kSlack = 16 * RecordFile::kMostSlack;  // obsolete bytes that are tolerated
constexpr uint64_t kMostGrowth = 1u << 20;

constexpr const char* kNoRoom = "the run directory has no space for its state";

uint64_t padded(uint64_t size) { return (size + 7) / 8 * 8; }
// In units of 8 bytes, so that 32 bits suffice for each.
uint64_t pack(uint64_t start, uint64_t end) { return start / 8 << 32 | end / 8; }
}  // namespace

struct RecordFile::Header {
  uint64_t magic;
  uint32_t format;
  uint32_t stamp;
  std::atomic<uint64_t> log;  // its begin and end: see pack()
  uint8_t area[kArea];
  char forbidden[128];
};

struct RecordFile::RecordHeader {
  uint32_t size;  // of the data
  uint16_t kind;
  uint16_t erases;  // 1: erases the record; no data
  uint32_t number;
  uint32_t tag;
  uint8_t* data() { return reinterpret_cast<uint8_t*>(this + 1); }
  [[nodiscard]] uint64_t length() const { return sizeof(RecordHeader) + padded(size); }
};

Result<std::unique_ptr<RecordFile>> RecordFile::create(const std::string& path, uint32_t format) {
  Fd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!fd.valid()) return fail_errno("make " + path);
  std::unique_ptr<RecordFile> file(new RecordFile(path, std::move(fd)));
  if (!file->grow(kFirstSize)) return fail_errno("make room in " + path);
  static_assert(sizeof(Header) <= kRoom && sizeof(RecordHeader) == 16);
  file->start_ = file->end_ = kRoom;
  file->header()->format = format;
  file->header()->log = pack(kRoom, kRoom);
  file->header()->magic = kMagic;
  return file;
}

Result<std::unique_ptr<RecordFile>> RecordFile::open_unread(const std::string& path) {
  Fd fd(::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW));
  if (!fd.valid()) return fail_errno("open " + path);
  std::unique_ptr<RecordFile> file(new RecordFile(path, std::move(fd)));
  file->keep();
  return file;
}

Result<std::unique_ptr<RecordFile>> RecordFile::open(const std::string& path, uint32_t format) {
  auto file = open_unread(path);
  if (!file) return file;
  if (auto read = (*file)->read(format); !read) return base::pass(std::move(read).error());
  return file;
}

Result<std::unique_ptr<RecordFile>> RecordFile::open(Fd fd, uint32_t format) {
  std::unique_ptr<RecordFile> file(new RecordFile("its state", std::move(fd)));
  file->keep();
  if (auto read = file->read(format); !read) return base::pass(std::move(read).error());
  return file;
}

Result<std::unique_ptr<RecordFile>> RecordFile::copy(const std::string& path, uint32_t format,
                                                     const std::optional<Limits>& limits) {
  auto file = open_unread(path);
  if (!file) return file;
  const auto all = (*file)->size_of_file();
  if (!all) return base::pass(all.error());
  if (limits && *all > limits->bytes) return fail(EFBIG, path + " is too large");
  if (auto copied = (*file)->copy_bytes(limits ? *all : kRoom, limits.has_value()); !copied)
    return base::pass(std::move(copied).error());
  auto good = (*file)->check_format(format);
  if (good && limits) good = (*file)->parse(*limits);
  if (!good) return base::pass(std::move(good).error());
  return file;
}

Result<void> RecordFile::read(uint32_t format) {
  const auto size = size_of_file();
  if (!size) return base::pass(size.error());
  if (auto mapped = map(*size); !mapped) return mapped;
  if (auto good = check_format(format); !good) return good;
  return parse({});
}

Result<uint64_t> RecordFile::size_of_file() const {
  struct stat status {};
  if (::fstat(fd_.get(), &status) != 0) return fail_errno("stat " + path_);
  const auto size = static_cast<uint64_t>(status.st_size);
  if (!S_ISREG(status.st_mode) || size < kFirstSize)
    return fail(EINVAL, path_ + " is not a session's file");
  return size;
}

// What the file does not have any more reads as zeros, and so does what follows the log, because
// every page that is copied must be allocated first.
Result<void> RecordFile::copy_bytes(uint64_t size, bool records) {
  void* const room =
      ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (room == MAP_FAILED) return fail_errno("copy " + path_);
  base_ = static_cast<uint8_t*>(room);
  size_ = size;
  const auto copy_until = [this](uint64_t got, uint64_t end) {
    while (got < end) {
      const ssize_t more = ::pread(fd_.get(), base_ + got, end - got, static_cast<off_t>(got));
      if (more <= 0) break;
      got += static_cast<uint64_t>(more);
    }
  };
  copy_until(0, kRoom);
  if (records) copy_until(kRoom, std::min(size, (header()->log & UINT32_MAX) * 8));
  return {};
}

Result<void> RecordFile::check_format(uint32_t format) const {
  if (header()->magic != kMagic) return fail(EINVAL, path_ + " is not a session's file");
  if (header()->format != format) return fail(EPROTO, "its state is of another version of vrdmad");
  return {};
}

// Of the record at `place`; 0: it does not end before `end`.
uint64_t RecordFile::length_at(uint64_t place, uint64_t end) const {
  const uint64_t length = end - place < sizeof(RecordHeader) ? 0 : at(place)->length();
  return length <= end - place ? length : 0;
}

// Counts first, because to count takes far less time than to enter.
Result<void> RecordFile::parse(const Limits& limits) {
  const auto damaged = fail(EINVAL, path_ + " is damaged");
  const uint64_t log = header()->log;
  const uint64_t start = (log >> 32) * 8, end = (log & UINT32_MAX) * 8;
  if (start < kRoom || end < start || end > size_) return damaged;
  size_t all = 0;
  for (uint64_t place = start; place != end && all <= limits.records; ++all) {
    const uint64_t length = length_at(place, end);
    if (length == 0 || at(place)->kind >= limits.kinds) return damaged;
    place += length;
  }
  if (all > limits.records) return fail(E2BIG, path_ + " has too many records");
  start_ = start;
  for (end_ = start; end_ != end;) {
    const RecordHeader* record = at(end_);
    const uint64_t length = length_at(end_, end);  // its writer may have changed it meanwhile
    if (length == 0) return damaged;
    const uint64_t name = key(record->kind, record->number);
    if (const auto before = records_.find(name); before != records_.end()) {
      live_ -= at(before->second)->length();
      records_.erase(before);
    }
    if (record->erases == 0) {
      records_[name] = end_;
      live_ += length;
    }
    end_ += length;
  }
  return {};
}

RecordFile::~RecordFile() {
  drop_copy();
  if (!kept_) ::unlink(path_.c_str());
}

void RecordFile::drop_copy() {
  if (base_ != nullptr) ::munmap(std::exchange(base_, nullptr), size_);
  std::unordered_map<uint64_t, uint64_t>().swap(records_);  // an assignment keeps its buckets
}

uint8_t* RecordFile::area() const { return header()->area; }
void RecordFile::stamp(uint32_t number) { header()->stamp = number; }
uint32_t RecordFile::stamped() const { return header()->stamp; }

Result<void> RecordFile::map(uint64_t size) {
  void* mapped = base_ == nullptr
                     ? ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd_.get(), 0)
                     : ::mremap(base_, size_, size, MREMAP_MAYMOVE);
  if (mapped == MAP_FAILED) return fail_errno("map " + path_);
  base_ = static_cast<uint8_t*>(mapped);
  size_ = size;
  return {};
}

// Allocates the space, so that no later write can fail with SIGBUS.
bool RecordFile::grow(uint64_t size) {
  if (size <= size_) return true;
  const uint64_t wanted = std::max(size, size_ + std::min(size_, kMostGrowth));
  const int error =
      ::posix_fallocate(fd_.get(), static_cast<off_t>(size_), static_cast<off_t>(wanted - size_));
  if (error != 0) {
    errno = error;
    return false;
  }
  return map(wanted).has_value();
}

// Appends a record with room for its data; it replaces the one of the same key. nullptr: no space.
RecordFile::RecordHeader* RecordFile::append(uint16_t kind, uint32_t number, size_t size) {
  const uint64_t length = sizeof(RecordHeader) + padded(size);
  if (!grow(end_ + length)) return nullptr;
  const auto [it, fresh] = records_.try_emplace(key(kind, number), end_);
  if (!fresh) live_ -= at(std::exchange(it->second, end_))->length();
  live_ += length;
  RecordHeader* record = at(end_);
  *record = {static_cast<uint32_t>(size), kind, 0, number, 0};
  end_ += length;
  return record;
}

void RecordFile::put(uint16_t kind, uint32_t number, const void* data, size_t size, uint32_t tag) {
  if (is_forbidden()) return;
  RecordHeader* record = append(kind, number, size);
  if (record == nullptr) return forbid(kNoRoom);
  record->tag = tag;
  if (size != 0) std::memcpy(record->data(), data, size);
}

void RecordFile::erase(uint16_t kind, uint32_t number) {
  if (is_forbidden() || !records_.contains(key(kind, number))) return;
  RecordHeader* record = append(kind, number, 0);
  if (record == nullptr) return forbid(kNoRoom);
  record->erases = 1;
  live_ -= record->length();
  records_.erase(key(kind, number));
}

void RecordFile::forbid(const char* reason) {
  if (!is_forbidden()) std::strncpy(header()->forbidden, reason, sizeof header()->forbidden - 1);
}

void RecordFile::permit() { header()->forbidden[0] = '\0'; }

bool RecordFile::is_forbidden() const { return header()->forbidden[0] != '\0'; }

std::string RecordFile::forbidden() const {
  const char* const reason = header()->forbidden;
  return {reason, ::strnlen(reason, sizeof header()->forbidden)};
}

void RecordFile::commit() {
  if (is_forbidden()) return;
  header()->log.store(pack(start_, end_), std::memory_order_release);
  if (end_ - start_ > std::max(2 * live_ + kSlack, patience_)) compact();
}

// Copies the current records before the log if they fit, or behind it. Without space, tries again
// later.
void RecordFile::compact() {
  const uint64_t start = kRoom + live_ <= start_ ? kRoom : end_;
  patience_ = end_ - start_ + kSlack;
  if (!grow(start + live_)) return;
  patience_ = 0;
  uint64_t end = start;
  for (auto& [name, offset] : records_) {
    const uint64_t length = at(offset)->length();
    std::memcpy(base_ + end, base_ + offset, length);
    offset = end;
    end += length;
  }
  start_ = start;
  end_ = end;
  header()->log.store(pack(start_, end_), std::memory_order_release);
  // Keeps enough to continue and frees the rest.
  const uint64_t enough = kRoom + 4 * (live_ + kSlack);
  if (start_ == kRoom && size_ > 2 * enough && map(enough))
    if (::ftruncate(fd_.get(), static_cast<off_t>(enough)) != 0) return;
}

std::optional<RecordFile::Record> RecordFile::find(uint16_t kind, uint32_t number) const {
  const auto it = records_.find(key(kind, number));
  if (it == records_.end()) return std::nullopt;
  RecordHeader* record = at(it->second);
  return Record{record->number, record->tag, record->data(), record->size};
}

std::vector<RecordFile::Record> RecordFile::all(uint16_t kind) const {
  std::vector<Record> found;
  for (const auto& [name, offset] : records_)
    if (name >> 32 == kind) found.push_back(*find(kind, static_cast<uint32_t>(name)));
  std::sort(found.begin(), found.end(),
            [](const auto& a, const auto& b) { return a.number < b.number; });
  return found;
}

}  // namespace vrdma::vrdmad
