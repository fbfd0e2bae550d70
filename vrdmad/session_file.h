// What a session is, for a daemon that takes it over when this one has died.
//
//   R/state/            0700
//   R/state/<n>.session 0600, one a session; removed with it
//
//   file   := Header record*
//   record := RecordHeader data, padded to 8 bytes; the first of size 0 ends the file
//
// A record is known by its kind and a number; to put it again replaces it. The file is mapped, and
// every change is there when the call returns, whatever becomes of this process (not of the host:
// after a boot nothing is taken over): a record is written, then marked as valid, then the one that
// it replaces is marked as invalid. Only the daemon writes here, so what stands here is believed.
// Only one of the same Header::format is read.
//
// Owned by one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/base/error.h"
#include "core/base/fd.h"
#include "core/ipc/messages.h"

namespace vrdma::vrdmad {

class SessionFile {
 public:
  // In the order in which they are made again.
  enum class Kind : uint16_t { kWho, kPd, kChannel, kCq, kCqSize, kAh, kMr, kQp, kQpState, kKinds };

  struct Record {
    uint32_t number = 0;
    const uint8_t* data = nullptr;  // valid until the next change
    uint32_t size = 0;
    bool answered = true;  // the program has been told of it
  };

  [[nodiscard]] static base::Result<std::unique_ptr<SessionFile>> create(const std::string& path);
  [[nodiscard]] static base::Result<std::unique_ptr<SessionFile>> open(const std::string& path);
  ~SessionFile();
  SessionFile(const SessionFile&) = delete;
  SessionFile& operator=(const SessionFile&) = delete;

  // Without room for it, the session is given up: see forbid(). `sequence` is that of the request
  // which made it, or 0: until that is answered, the program does not know of it, and will ask
  // again.
  void put(Kind kind, uint32_t number, const void* data, size_t size, uint32_t sequence = 0);
  void erase(Kind kind, uint32_t number);
  [[nodiscard]] std::vector<Record> all(Kind kind) const;  // by number

  // A request that changes something is begun; and this is the answer to it.
  void set_begun(uint32_t sequence);
  void set_answered(const ipc::Reply& reply);
  struct Last {
    uint32_t begun = 0;  // sequence of the last one that was
    ipc::Reply reply;    // the last answer
  };
  [[nodiscard]] Last last() const;

  // The session has, or had, what no other daemon can take over; the reason is for people.
  void forbid(const char* reason);
  [[nodiscard]] std::string forbidden() const;  // empty: it is not

  // The file goes with this object, unless it is kept.
  void keep() { kept_ = true; }

 private:
  struct Header;
  struct RecordHeader;

  SessionFile(std::string path, base::Fd fd) : path_(std::move(path)), fd_(std::move(fd)) {}
  [[nodiscard]] base::Result<void> map(uint64_t size);
  [[nodiscard]] bool grow(uint64_t size);
  [[nodiscard]] Header* header() const { return reinterpret_cast<Header*>(base_); }
  [[nodiscard]] RecordHeader* at(uint64_t offset) const {
    return reinterpret_cast<RecordHeader*>(base_ + offset);
  }
  void compact();
  void append(Kind kind, uint32_t number, const void* data, size_t size, uint32_t sequence);
  [[nodiscard]] static uint64_t key(Kind kind, uint32_t number) {
    return uint64_t{static_cast<uint16_t>(kind)} << 32 | number;
  }

  std::string path_;
  base::Fd fd_;
  uint8_t* base_ = nullptr;
  uint64_t size_ = 0;  // mapped
  uint64_t end_ = 0;   // of the last record
  uint64_t live_ = 0;  // bytes of valid records
  bool kept_ = false;
  std::unordered_map<uint64_t, uint64_t> records_;  // key -> offset
};

}  // namespace vrdma::vrdmad
