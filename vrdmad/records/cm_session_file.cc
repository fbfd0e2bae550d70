#include "vrdmad/records/cm_session_file.h"

#include <cstddef>
#include <cstring>

namespace vrdma::vrdmad {

using base::Result;

namespace {
// Must change with the layout of any record, including the structs of core/ipc and qp1mux in it.
constexpr uint32_t kCmFormat = 0x10002;
constexpr size_t kAnswer = offsetof(ipc::CmReply, attributes);
}  // namespace

Result<CmSessionFile> CmSessionFile::create(const std::string& path, const Who& who) {
  auto made = RecordFile::create(path, kCmFormat);
  if (!made) return base::pass(std::move(made).error());
  CmSessionFile file(std::move(*made));
  file.put_who(who);
  return file;
}

Result<CmSessionFile> CmSessionFile::open(const std::string& path) {
  auto opened = RecordFile::open(path, kCmFormat);
  if (!opened) return base::pass(std::move(opened).error());
  if (const std::string reason = (*opened)->forbidden(); !reason.empty())
    return base::fail(ENOTSUP, reason);
  (*opened)->keep(false);
  return CmSessionFile(std::move(*opened));
}

void CmSessionFile::leave() {
  if (file_) file_->keep();
  file_.reset();
}

void CmSessionFile::put(Kind kind, uint32_t number, const void* data, size_t size) {
  if (file_) file_->put(static_cast<uint16_t>(kind), number, data, size);
}

void CmSessionFile::erase(Kind kind, uint32_t number) {
  if (file_) file_->erase(static_cast<uint16_t>(kind), number);
}

void CmSessionFile::put_who(const Who& who) { put(Kind::kWho, 0, &who, sizeof who); }
void CmSessionFile::put_channel(uint32_t handle, uint64_t socket) {
  put(Kind::kChannel, handle, &socket, sizeof socket);
}
void CmSessionFile::erase_channel(uint32_t handle) { erase(Kind::kChannel, handle); }
void CmSessionFile::put_id(uint32_t handle, const IdRecord& record) {
  put(Kind::kId, handle, &record, sizeof record);
}
void CmSessionFile::erase_id(uint32_t handle) { erase(Kind::kId, handle); }
void CmSessionFile::put_vdevice(uint32_t number, const VdeviceRecord& record) {
  put(Kind::kVdevice, number, &record, sizeof record);
}
void CmSessionFile::put_event(const ipc::CmEventMessage& message) {
  put(Kind::kEvent, message.sequence, &message, sizeof message);
}
void CmSessionFile::erase_event(uint32_t sequence) { erase(Kind::kEvent, sequence); }
void CmSessionFile::put_answer(const ipc::CmReply& reply) {
  put(Kind::kAnswer, 0, &reply, kAnswer);
}

void CmSessionFile::commit() {
  if (file_) file_->commit();
}

Result<CmSessionFile::Who> CmSessionFile::who() const {
  Who who{};
  const auto record = file_->find(static_cast<uint16_t>(Kind::kWho), 0);
  if (!record || !record->read(&who))
    return base::fail(EINVAL, "its file has no record of its process");
  return who;
}

ipc::CmReply CmSessionFile::answer() const {
  ipc::CmReply reply;
  const auto record = file_->find(static_cast<uint16_t>(Kind::kAnswer), 0);
  if (record && record->size == kAnswer)
    std::memcpy(static_cast<void*>(&reply), record->data, kAnswer);
  return reply;
}

std::vector<std::pair<uint32_t, uint64_t>> CmSessionFile::channels() const {
  std::vector<std::pair<uint32_t, uint64_t>> channels;
  for (const auto& record : all(Kind::kChannel)) {
    uint64_t socket = 0;
    if (!record.read(&socket)) socket = 0;
    channels.emplace_back(record.number, socket);
  }
  return channels;
}

std::vector<std::pair<uint32_t, CmSessionFile::IdRecord>> CmSessionFile::ids() const {
  std::vector<std::pair<uint32_t, IdRecord>> records;
  for (const auto& record : all(Kind::kId))
    if (IdRecord id{}; record.read(&id)) records.emplace_back(record.number, id);
  return records;
}

std::vector<CmSessionFile::VdeviceRecord> CmSessionFile::vdevices() const {
  std::vector<VdeviceRecord> records;
  for (const auto& record : all(Kind::kVdevice))
    if (VdeviceRecord vdevice{}; record.read(&vdevice)) records.push_back(vdevice);
  return records;
}

std::vector<ipc::CmEventMessage> CmSessionFile::events() const {
  std::vector<ipc::CmEventMessage> messages;
  for (const auto& record : all(Kind::kEvent))
    if (ipc::CmEventMessage message; record.read(&message)) messages.push_back(message);
  return messages;
}

}  // namespace vrdma::vrdmad
