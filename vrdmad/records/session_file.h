// The journal of a session, from which the next daemon gets its image.
//
//   R/state/            0700
//   R/state/<n>.session 0600, one per session, beside <n>.anchors; removed with it
//
// The records of a session_image.h (in a record_file.h) and the last request. Each change is in the
// file when the call returns.
//
// Owned by one thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/base/event_loop.h"
#include "core/ipc/messages.h"
#include "vrdmad/records/record_file.h"
#include "vrdmad/records/session_image.h"

namespace vrdma::vrdmad {

class SessionFile {
 public:
  using Kind = Stored;
  using Record = RecordFile::Record;

  [[nodiscard]] static base::Result<std::unique_ptr<SessionFile>> create(const std::string& path);
  // For control: a copy (RecordFile::copy()) that tells whether it is open or forbidden.
  [[nodiscard]] static base::Result<std::unique_ptr<SessionFile>> open(const std::string& path);
  [[nodiscard]] static base::Result<std::unique_ptr<SessionFile>> open(base::Fd file);
  // The image() in a file that a worker writes, for control; decoded once. EFBIG: it is larger than
  // kMostImage.
  static constexpr uint64_t kMostImage = 2u << 20;  // bytes
  [[nodiscard]] static base::Result<std::vector<uint8_t>> image_in(const std::string& path);

  // The session is open, so another daemon may take it over. A new file belongs to no open session.
  void begin() { file_->permit(); }
  // The session has ended, and its files are about to be removed.
  void end() { forbid(kNotOpen); }
  [[nodiscard]] bool is_open() const { return forbidden() != kNotOpen; }

  // `sequence`: of the request that created the object, or 0. Until that request is answered, the
  // program does not know the object, and repeats the request.
  void put(Kind kind, uint32_t number, const void* data, size_t size, uint32_t sequence = 0);
  // In effect from commit() on.
  void put_later(Kind kind, uint32_t number, const void* data, size_t size);
  void erase_later(Kind kind, uint32_t number);
  void commit() { file_->commit(); }
  void erase(Kind kind, uint32_t number);
  [[nodiscard]] std::optional<Record> find(Kind kind, uint32_t number) const {
    return file_->find(static_cast<uint16_t>(kind), number);
  }
  [[nodiscard]] std::vector<Record> all(Kind kind) const {  // by number
    return file_->all(static_cast<uint16_t>(kind));
  }
  [[nodiscard]] bool is_answered(const Record& record) const;

  // set_begun() starts a request that changes something; set_answered() stores its reply.
  void set_begun(uint32_t sequence);
  void set_answered(const ipc::Reply& reply);
  struct Last {
    uint32_t begun = 0;  // sequence of the last request that began
    ipc::Reply reply;    // the last reply
  };
  [[nodiscard]] Last last() const;
  // A new file of an open session gets all that an image contains, which SessionImage::decode()
  // accepts.
  void restore(std::span<const uint8_t> image);
  // All of it, as SessionImage::decode() takes it.
  [[nodiscard]] std::vector<uint8_t> image() const;

  // When the session worked last, in units of kWorkTime of the system's clock; 0: never. The writer
  // may be behind by a unit.
  static constexpr std::chrono::milliseconds kWorkTime{100};
  void worked(base::TimePoint now) {
    file_->stamp(static_cast<uint32_t>(now.time_since_epoch() / kWorkTime));
  }
  [[nodiscard]] uint32_t last_work() const { return file_->stamped(); }

  // See RecordFile.
  void forbid(const char* reason) { file_->forbid(reason); }
  [[nodiscard]] std::string forbidden() const { return file_->forbidden(); }

  // The destructor removes the file unless it is kept; open() keeps it.
  void keep(bool kept = true) { file_->keep(kept); }
  // See RecordFile.
  [[nodiscard]] base::Fd release() { return file_->release(); }

 private:
  static constexpr const char* kNotOpen = "it is not open";
  struct Area;
  explicit SessionFile(std::unique_ptr<RecordFile> file) : file_(std::move(file)) {}
  [[nodiscard]] static base::Result<std::unique_ptr<SessionFile>> of(
      base::Result<std::unique_ptr<RecordFile>> file);
  [[nodiscard]] Area* area() const { return reinterpret_cast<Area*>(file_->area()); }

  std::unique_ptr<RecordFile> file_;
};

}  // namespace vrdma::vrdmad
