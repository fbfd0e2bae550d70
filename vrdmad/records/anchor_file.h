// The local anchors of a session: the process that has it, and what identifies the descriptors that
// it shares with the daemon. They name no object; the objects are in the session's image
// (session_image.h). A session is taken over from its image and the anchors of a living process.
//
//   R/state/<n>.anchors 0600, beside <n>.session; created before it, removed after it
//
// The worker writes both files. A worker that its programs have taken over may write any image and
// any anchors: the next daemon decodes the image like a program's bytes, and takes descriptors only
// from a process that the broker knows to have connected to that vdevice. Each change is in the
// file when the call returns.
//
// Owned by one thread.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/rdma/process.h"
#include "vrdmad/records/process_files.h"
#include "vrdmad/records/record_file.h"

namespace vrdma::vrdmad {

// The process of a session, and the vdevice that it opened.
struct Anchor {
  char name[56];     // of the vdevice, for people: its beginning
  uint64_t vdevice;  // its id
  uint64_t node_guid;
  uint64_t netns;  // cookie of the vdevice's namespace
  rdma::Peer process;
  uint32_t session;  // id of the context
  uint32_t epoch;    // of the daemon that served it last
  FileId arena, bells, memory;
  uint64_t doorbell;  // eventfd_id()
  uint64_t events;    // inode of the write end
  // 1: the process has shown a packet socket of the namespace.
  uint32_t packet_socket;
  // The id by which the program knows the session, if it came as an image and that id was taken
  // here; 0: `session`.
  uint32_t known_as;
};

struct SessionAnchors {
  // Of channels, and of XRC domains. Control looks for each channel when a session is taken over.
  static constexpr size_t kMost = 4'096;
  Anchor of{};
  std::map<uint32_t, uint64_t> channels;  // inodes of their write ends, by handle
  std::map<uint32_t, FileId> domains;     // the files that name XRC domains, by handle
  std::vector<ShownFile> shown;  // the page table first (core/ipc/page_table.h), or nothing
};

class AnchorFile {
 public:
  [[nodiscard]] static base::Result<std::unique_ptr<AnchorFile>> create(const std::string& path,
                                                                        const Anchor& anchor);
  // For control, which keeps only anchors() in memory (RecordFile::copy()). Keeps the file. EPROTO:
  // of another version. E2BIG: it has more than SessionAnchors::kMost of a kind.
  [[nodiscard]] static base::Result<std::unique_ptr<AnchorFile>> open(const std::string& path);
  [[nodiscard]] static base::Result<std::unique_ptr<AnchorFile>> open(base::Fd file);

  void put_channel(uint32_t handle, uint64_t write_end);
  void erase_channel(uint32_t handle);
  void put_domain(uint32_t handle, const FileId& file);
  void erase_domain(uint32_t handle);
  void put_packet_socket();  // the process has shown one
  void put_shown(std::vector<ShownFile> files);
  void put_epoch(uint32_t epoch);
  // The session has gone to another process, or got other descriptors.
  void put_anchor(const Anchor& anchor);

  [[nodiscard]] const SessionAnchors& anchors() const { return anchors_; }
  // The destructor removes the file unless it is kept.
  void keep(bool kept = true) { file_->keep(kept); }
  // See RecordFile.
  [[nodiscard]] base::Fd release() { return file_->release(); }

 private:
  enum class Kind : uint16_t { kAnchor, kChannel, kDomain, kShown };
  // What a file that this class wrote has at most: RecordFile compacts it, and a current record is
  // at most twice as long as an obsolete one.
  static constexpr size_t kMostCurrent = 2 + 2 * SessionAnchors::kMost;
  static constexpr RecordFile::Limits kLimits{4, 3 * kMostCurrent + RecordFile::kMostSlack};
  explicit AnchorFile(std::unique_ptr<RecordFile> file) : file_(std::move(file)) {}
  [[nodiscard]] static base::Result<std::unique_ptr<AnchorFile>> of(
      base::Result<std::unique_ptr<RecordFile>> opened);
  void put(Kind kind, uint32_t number, const void* data, size_t size);
  void erase(Kind kind, uint32_t number);
  void put_anchor() { put(Kind::kAnchor, 0, &anchors_.of, sizeof anchors_.of); }

  std::unique_ptr<RecordFile> file_;
  SessionAnchors anchors_;
};

}  // namespace vrdma::vrdmad
