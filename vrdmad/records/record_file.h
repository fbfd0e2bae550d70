// Records that outlive the process which writes them, for the next daemon (not for the next boot).
//
//   file   := Header ... log ...
//   log    := record*
//   record := RecordHeader data, padded to 8 bytes
//
// A mapped file. A record is known by its kind and a number; to put it again replaces it. The log
// moves when most of it does not stand any more, into room that is free; where it is, says one
// word. What was put and erased since the last commit() takes effect with the next one, all of it
// or nothing, whatever becomes of this process in between. Only the daemon writes here (the file is
// 0600), so what stands here is believed. Only one of the same `format` is read. A file for which
// there is no room any more is forbidden: the next daemon learns why, and takes nothing from it.
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
#include <vector>

#include "core/base/error.h"
#include "core/base/fd.h"

namespace vrdma::vrdmad {

class RecordFile {
 public:
  static constexpr size_t kArea = 536;  // bytes, besides the records: see area()

  struct Record {
    uint32_t number = 0;
    uint32_t tag = 0;
    const uint8_t* data = nullptr;  // valid until the next change
    uint32_t size = 0;
    // False: it is too short to be one. What follows is not looked at.
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
  // EEXIST if there is one.
  [[nodiscard]] static base::Result<std::unique_ptr<RecordFile>> create(const std::string& path,
                                                                        uint32_t format);
  // It is kept. EINVAL: it is none, or damaged. EPROTO: of another format.
  [[nodiscard]] static base::Result<std::unique_ptr<RecordFile>> open(const std::string& path,
                                                                      uint32_t format);
  ~RecordFile();
  RecordFile(const RecordFile&) = delete;
  RecordFile& operator=(const RecordFile&) = delete;

  // `tag` is the owner's. Once the file is forbidden, these three do nothing.
  void put(uint16_t kind, uint32_t number, const void* data, size_t size, uint32_t tag = 0);
  void erase(uint16_t kind, uint32_t number);
  void commit();
  // No other daemon can take over what this tells of. The first reason stays; it is for people.
  void forbid(const char* reason);
  [[nodiscard]] std::string forbidden() const;  // empty: it is not
  [[nodiscard]] std::optional<Record> find(uint16_t kind, uint32_t number) const;
  [[nodiscard]] std::vector<Record> all(uint16_t kind) const;  // by number

  // Bytes that the owner changes in place, without commit(). Zero at first; 8-byte aligned; moves.
  [[nodiscard]] uint8_t* area() const;

  // The file goes with this object, unless it is kept.
  void keep(bool kept = true) { kept_ = kept; }

 private:
  struct Header;
  struct RecordHeader;

  RecordFile(std::string path, base::Fd fd) : path_(std::move(path)), fd_(std::move(fd)) {}
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
  uint64_t live_ = 0;             // bytes of records that stand
  uint64_t patience_ = 0;         // bytes of the log; a shorter one is not moved
  bool kept_ = false;
  std::unordered_map<uint64_t, uint64_t> records_;  // key -> offset
};

}  // namespace vrdma::vrdmad
