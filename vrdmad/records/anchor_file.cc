#include "vrdmad/records/anchor_file.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "core/ipc/messages.h"

namespace vrdma::vrdmad {

using base::fail;
using base::Result;

namespace {
// Must change with the layout of any record, including the structs of core/rdma in it.
constexpr uint32_t kAnchorFormat = 0x20001;
}  // namespace

Result<std::unique_ptr<AnchorFile>> AnchorFile::create(const std::string& path,
                                                       const Anchor& anchor) {
  auto made = RecordFile::create(path, kAnchorFormat);
  if (!made) return base::pass(std::move(made).error());
  std::unique_ptr<AnchorFile> file(new AnchorFile(std::move(*made)));
  file->anchors_.of = anchor;
  file->put_anchor();
  return file;
}

Result<std::unique_ptr<AnchorFile>> AnchorFile::open(const std::string& path) {
  auto file = of(RecordFile::copy(path, kAnchorFormat, kLimits));
  if (file) (*file)->file_->drop_copy();
  return file;
}

Result<std::unique_ptr<AnchorFile>> AnchorFile::open(base::Fd file) {
  return of(RecordFile::open(std::move(file), kAnchorFormat));
}

Result<std::unique_ptr<AnchorFile>> AnchorFile::of(Result<std::unique_ptr<RecordFile>> opened) {
  if (!opened) return base::pass(std::move(opened).error());
  std::unique_ptr<AnchorFile> file(new AnchorFile(std::move(*opened)));
  if (const std::string reason = file->file_->forbidden(); !reason.empty())
    return fail(ENOTSUP, reason);
  SessionAnchors& anchors = file->anchors_;
  const auto of = file->file_->find(static_cast<uint16_t>(Kind::kAnchor), 0);
  if (!of || !of->read(&anchors.of)) return fail(EINVAL, "it was not open yet");
  anchors.of.name[sizeof anchors.of.name - 1] = '\0';
  for (const auto& record : file->file_->all(static_cast<uint16_t>(Kind::kChannel)))
    if (uint64_t inode = 0; record.read(&inode)) anchors.channels[record.number] = inode;
  for (const auto& record : file->file_->all(static_cast<uint16_t>(Kind::kDomain)))
    if (FileId id; record.read(&id)) anchors.domains[record.number] = id;
  if (const auto shown = file->file_->find(static_cast<uint16_t>(Kind::kShown), 0)) {
    anchors.shown.resize(std::min<size_t>(shown->size / sizeof(ShownFile), ipc::kMaxFds));
    std::memcpy(anchors.shown.data(), shown->data, anchors.shown.size() * sizeof(ShownFile));
  }
  if (std::max(anchors.channels.size(), anchors.domains.size()) > SessionAnchors::kMost)
    return fail(E2BIG, "it has more than " + std::to_string(SessionAnchors::kMost) +
                           " completion channels or XRC domains");
  return file;
}

void AnchorFile::put(Kind kind, uint32_t number, const void* data, size_t size) {
  file_->put(static_cast<uint16_t>(kind), number, data, size);
  file_->commit();
}

void AnchorFile::erase(Kind kind, uint32_t number) {
  file_->erase(static_cast<uint16_t>(kind), number);
  file_->commit();
}

void AnchorFile::put_channel(uint32_t handle, uint64_t write_end) {
  anchors_.channels[handle] = write_end;
  put(Kind::kChannel, handle, &write_end, sizeof write_end);
}

void AnchorFile::erase_channel(uint32_t handle) {
  anchors_.channels.erase(handle);
  erase(Kind::kChannel, handle);
}

void AnchorFile::put_domain(uint32_t handle, const FileId& file) {
  anchors_.domains[handle] = file;
  put(Kind::kDomain, handle, &file, sizeof file);
}

void AnchorFile::erase_domain(uint32_t handle) {
  anchors_.domains.erase(handle);
  erase(Kind::kDomain, handle);
}

void AnchorFile::put_packet_socket() {
  if (std::exchange(anchors_.of.packet_socket, 1) == 0) put_anchor();
}

void AnchorFile::put_shown(std::vector<ShownFile> files) {
  anchors_.shown = std::move(files);
  put(Kind::kShown, 0, anchors_.shown.data(), anchors_.shown.size() * sizeof(ShownFile));
}

void AnchorFile::put_anchor(const Anchor& anchor) {
  anchors_.of = anchor;
  put_anchor();
}

void AnchorFile::put_epoch(uint32_t epoch) {
  anchors_.of.epoch = epoch;
  put_anchor();
}

}  // namespace vrdma::vrdmad
