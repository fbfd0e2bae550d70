// What a session is, for a daemon that takes it over when this one has died.
//
//   R/state/            0700
//   R/state/<n>.session 0600, one a session; removed with it
//
// Records (vrdmad/records/record_file.h) and the last request. Every change is there when the call
// returns.
//
// Owned by one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/ipc/messages.h"
#include "vrdmad/records/record_file.h"

namespace vrdma::vrdmad {

class SessionFile {
 public:
  // In the order in which they are made again.
  enum class Kind : uint16_t {
    kWho,
    kPd,
    kChannel,
    kCq,
    kCqSize,
    kAh,
    kMr,
    kSrq,
    kSrqSize,
    kQp,
    kQpState,
    kClaim,
  };

  using Record = RecordFile::Record;

  [[nodiscard]] static base::Result<std::unique_ptr<SessionFile>> create(const std::string& path);
  [[nodiscard]] static base::Result<std::unique_ptr<SessionFile>> open(const std::string& path);

  // `sequence` is that of the request which made it, or 0: until that is answered, the program does
  // not know of it, and will ask again.
  void put(Kind kind, uint32_t number, const void* data, size_t size, uint32_t sequence = 0);
  void erase(Kind kind, uint32_t number);
  [[nodiscard]] std::vector<Record> all(Kind kind) const {  // by number
    return file_->all(static_cast<uint16_t>(kind));
  }
  [[nodiscard]] bool is_answered(const Record& record) const;

  // A request that changes something is begun; and this is the answer to it.
  void set_begun(uint32_t sequence);
  void set_answered(const ipc::Reply& reply);
  struct Last {
    uint32_t begun = 0;  // sequence of the last one that was
    ipc::Reply reply;    // the last answer
  };
  [[nodiscard]] Last last() const;

  // See RecordFile.
  void forbid(const char* reason) { file_->forbid(reason); }
  [[nodiscard]] std::string forbidden() const { return file_->forbidden(); }

  // The file goes with this object, unless it is kept, as one that was opened is.
  void keep(bool kept = true) { file_->keep(kept); }

 private:
  struct Area;
  explicit SessionFile(std::unique_ptr<RecordFile> file) : file_(std::move(file)) {}
  [[nodiscard]] static base::Result<std::unique_ptr<SessionFile>> of(
      base::Result<std::unique_ptr<RecordFile>> file);
  [[nodiscard]] Area* area() const { return reinterpret_cast<Area*>(file_->area()); }

  std::unique_ptr<RecordFile> file_;
};

}  // namespace vrdma::vrdmad
