#include "vrdmad/records/session_file.h"

#include <atomic>
#include <cstring>

namespace vrdma::vrdmad {

using base::Result;

namespace {
// Must change with the layout of any record, including the structs of core/ipc and core/rdma in it.
constexpr uint32_t kFormat = 8;
}  // namespace

struct SessionFile::Area {
  uint32_t begun;
  std::atomic<uint32_t> answered;  // sequence; its reply is replies[answered % 2]
  ipc::Reply replies[2];
};

Result<std::unique_ptr<SessionFile>> SessionFile::of(Result<std::unique_ptr<RecordFile>> file) {
  static_assert(sizeof(Area) <= RecordFile::kArea);
  if (!file) return base::pass(std::move(file).error());
  return std::unique_ptr<SessionFile>(new SessionFile(std::move(*file)));
}

Result<std::unique_ptr<SessionFile>> SessionFile::create(const std::string& path) {
  auto file = of(RecordFile::create(path, kFormat));
  if (file) (*file)->end();  // until begin()
  return file;
}

Result<std::unique_ptr<SessionFile>> SessionFile::open(const std::string& path) {
  return of(RecordFile::copy(path, kFormat, std::nullopt));
}

Result<std::unique_ptr<SessionFile>> SessionFile::open(base::Fd file) {
  return of(RecordFile::open(std::move(file), kFormat));
}

Result<std::vector<uint8_t>> SessionFile::image_in(const std::string& path) {
  constexpr RecordFile::Limits kLimits{static_cast<uint16_t>(kLastStored) + 1,
                                       kMostImage / sizeof(uint64_t), kMostImage};
  auto file = of(RecordFile::copy(path, kFormat, kLimits));
  if (!file) return base::pass(std::move(file).error());
  (*file)->keep();
  auto image = (*file)->image();
  if (auto decoded = SessionImage::decode(image); !decoded)
    return base::pass(std::move(decoded).error());
  return image;
}

void SessionFile::put(Kind kind, uint32_t number, const void* data, size_t size,
                      uint32_t sequence) {
  file_->put(static_cast<uint16_t>(kind), number, data, size, sequence);
  file_->commit();
}

void SessionFile::put_later(Kind kind, uint32_t number, const void* data, size_t size) {
  file_->put(static_cast<uint16_t>(kind), number, data, size);
}

void SessionFile::erase_later(Kind kind, uint32_t number) {
  file_->erase(static_cast<uint16_t>(kind), number);
}

void SessionFile::erase(Kind kind, uint32_t number) {
  file_->erase(static_cast<uint16_t>(kind), number);
  file_->commit();
}

bool SessionFile::is_answered(const Record& record) const { return record.tag <= area()->answered; }

void SessionFile::set_begun(uint32_t sequence) { area()->begun = sequence; }

// The previous reply stays valid while this one is written; the program has it and will not ask for
// it again.
void SessionFile::set_answered(const ipc::Reply& reply) {
  std::memcpy(static_cast<void*>(&area()->replies[reply.sequence % 2]), &reply, sizeof reply);
  area()->answered.store(reply.sequence, std::memory_order_release);
}

SessionFile::Last SessionFile::last() const {
  Last last;
  last.begun = area()->begun;
  const uint32_t answered = area()->answered.load(std::memory_order_acquire);
  std::memcpy(static_cast<void*>(&last.reply), &area()->replies[answered % 2], sizeof last.reply);
  last.reply.sequence = answered;
  return last;
}

// An object of the request without an answer has the sequence of that one.
void SessionFile::restore(std::span<const uint8_t> image) {
  const SessionImage decoded = SessionImage::decode(image).value();
  set_begun(decoded.begun);
  if (decoded.reply.sequence != 0) set_answered(decoded.reply);
  each_record(image, [&](Stored kind, uint32_t number, bool answered, auto data) {
    file_->put(static_cast<uint16_t>(kind), number, data.data(), data.size(),
               answered ? 0 : decoded.begun);
  });
  file_->commit();
}

std::vector<uint8_t> SessionFile::image() const {
  const Last now = last();
  ImageBytes bytes(now.begun, now.reply);
  for (auto kind = uint16_t{0}; kind <= static_cast<uint16_t>(kLastStored); ++kind)
    for (const Record& record : file_->all(kind))
      bytes.add(static_cast<Stored>(kind), record.number, is_answered(record),
                {record.data, record.size});
  return bytes.take();
}

}  // namespace vrdma::vrdmad
