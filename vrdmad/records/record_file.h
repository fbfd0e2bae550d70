// A journal of records for the next daemon. It survives the process that writes it, but not a
// reboot.
//
//   file   := Header ... log ...
//   log    := record*
//   record := RecordHeader data, padded to 8 bytes
//
// A mapped file. Kind and number identify a record; a new put() replaces it. When most of the log
// is obsolete, it is compacted into free space; one header word holds its position. commit()
// applies all puts and erases since the last one atomically, even if the process is killed. Only a
// file of the same `format` is read. A file that cannot grow is forbidden: the next daemon reads
// the reason and takes nothing over.
//
// A worker writes the files of its sessions, so no reader trusts them: this class checks the
// positions in the log, its user checks the data of the records. Control reads a copy(). A worker
// maps the file: a process that shortens it meanwhile harms the sessions of its own domain only.
//
// Owned by one thread.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/base/fd.h"

namespace vrdma::vrdmad {

class RecordFile {
 public:
  static constexpr size_t kArea = 536;  // bytes; see area()
  // A log is compacted when its obsolete bytes exceed its current bytes by those of so many records
  // without data.
  static constexpr size_t kMostSlack = 2048;

  struct Record {
    uint32_t number = 0;
    uint32_t tag = 0;
    const uint8_t* data = nullptr;  // valid until the next change
    uint32_t size = 0;
    // False: it is too short. Excess bytes are ignored.
    template <class T>
    [[nodiscard]] bool read(T* out) const {
      if (size < sizeof *out) return false;
      std::memcpy(static_cast<void*>(out), data, sizeof *out);
      return true;
    }
  };

  struct Name {
    std::string path;
    uint32_t number = 0;
  };
  // The files DIRECTORY/<number>SUFFIX, in any order; none if the directory cannot be read.
  [[nodiscard]] static std::vector<Name> list(const std::string& directory,
                                              std::string_view suffix);
  // EEXIST: the file exists.
  [[nodiscard]] static base::Result<std::unique_ptr<RecordFile>> create(const std::string& path,
                                                                        uint32_t format);
  // Keeps the file. EINVAL: not a journal, or damaged. EPROTO: another format.
  [[nodiscard]] static base::Result<std::unique_ptr<RecordFile>> open(const std::string& path,
                                                                      uint32_t format);
  // What a reader accepts, because each record takes its time and memory. The default accepts all.
  struct Limits {
    uint16_t kinds = UINT16_MAX;  // all are less
    size_t records = SIZE_MAX;    // with the obsolete ones
    uint64_t bytes = 1u << 20;    // of a copy
  };
  // A file that a worker writes, or wrote: control reads a copy of it, because its writer may
  // shorten or change it at any time. Without `limits`: only what precedes the records. Nothing may
  // be changed, but release() gives the file itself. E2BIG: it is beyond the limits.
  [[nodiscard]] static base::Result<std::unique_ptr<RecordFile>> copy(
      const std::string& path, uint32_t format, const std::optional<Limits>& limits);
  // A file that another process has opened.
  [[nodiscard]] static base::Result<std::unique_ptr<RecordFile>> open(base::Fd file,
                                                                      uint32_t format);
  ~RecordFile();
  RecordFile(const RecordFile&) = delete;
  RecordFile& operator=(const RecordFile&) = delete;

  // `tag` is the caller's. On a forbidden file these three do nothing.
  void put(uint16_t kind, uint32_t number, const void* data, size_t size, uint32_t tag = 0);
  void erase(uint16_t kind, uint32_t number);
  void commit();
  // Prevents a takeover. The first reason is kept; it is for the operator.
  void forbid(const char* reason);
  void permit();                                // ends it, whatever the reason was
  [[nodiscard]] std::string forbidden() const;  // empty: it is not
  [[nodiscard]] std::optional<Record> find(uint16_t kind, uint32_t number) const;
  [[nodiscard]] std::vector<Record> all(uint16_t kind) const;  // by number

  // Bytes that the owner changes in place, without commit(). Initially zero; 8-byte aligned; moves
  // when the file grows.
  [[nodiscard]] uint8_t* area() const;
  // A number that the owner changes in place, initially 0.
  void stamp(uint32_t number);
  [[nodiscard]] uint32_t stamped() const;

  // The destructor removes the file unless it is kept.
  void keep(bool kept = true) { kept_ = kept; }
  // Frees the memory of a copy with its records. Only release() may follow.
  void drop_copy();
  // Keeps the file, and gives it to a process that opens it. This object may only be destroyed.
  [[nodiscard]] base::Fd release() {
    keep();
    return std::move(fd_);
  }

 private:
  struct Header;
  struct RecordHeader;

  RecordFile(std::string path, base::Fd fd) : path_(std::move(path)), fd_(std::move(fd)) {}
  [[nodiscard]] static base::Result<std::unique_ptr<RecordFile>> open_unread(
      const std::string& path);                               // keeps the file
  [[nodiscard]] base::Result<uint64_t> size_of_file() const;  // EINVAL: it is too short
  [[nodiscard]] base::Result<void> copy_bytes(uint64_t size, bool records);
  [[nodiscard]] base::Result<void> read(uint32_t format);
  [[nodiscard]] base::Result<void> check_format(uint32_t format) const;
  [[nodiscard]] base::Result<void> parse(const Limits& limits);
  [[nodiscard]] uint64_t length_at(uint64_t place, uint64_t end) const;
  [[nodiscard]] base::Result<void> map(uint64_t size);
  [[nodiscard]] bool grow(uint64_t size);
  [[nodiscard]] bool is_forbidden() const;
  [[nodiscard]] Header* header() const { return reinterpret_cast<Header*>(base_); }
  [[nodiscard]] RecordHeader* at(uint64_t offset) const {
    return reinterpret_cast<RecordHeader*>(base_ + offset);
  }
  [[nodiscard]] RecordHeader* append(uint16_t kind, uint32_t number, size_t size);
  void compact();
  [[nodiscard]] static uint64_t key(uint16_t kind, uint32_t number) {
    return uint64_t{kind} << 32 | number;
  }

  std::string path_;
  base::Fd fd_;
  uint8_t* base_ = nullptr;
  uint64_t size_ = 0;             // mapped
  uint64_t start_ = 0, end_ = 0;  // of the log
  uint64_t live_ = 0;             // bytes of current records
  uint64_t patience_ = 0;         // a shorter log, in bytes, is not compacted
  bool kept_ = false;
  std::unordered_map<uint64_t, uint64_t> records_;  // key -> offset
};

}  // namespace vrdma::vrdmad
