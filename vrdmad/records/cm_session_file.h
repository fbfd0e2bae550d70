// The state of a CmSession for the next daemon: R/state/<n>.cm, beside the files of verbs sessions.
//
// commit() applies all changes or none (vrdmad/records/record_file.h). Without a file all functions
// do nothing. Without a file, or after it was forbidden, the next daemon does not take the session
// over.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/ipc/cm_messages.h"
#include "core/rdma/process.h"
#include "qp1mux/cm_id.h"
#include "vrdmad/records/record_file.h"

namespace vrdma::vrdmad {

class CmSessionFile {
 public:
  struct Who {
    uint64_t netns;
    rdma::Peer process;
    std::array<uint64_t, ipc::kCmSecret / sizeof(uint64_t)> secret;
    bool privileged;
  };
  struct IdRecord {
    uint32_t channel;
    uint32_t backlog;
    uint64_t node_guid;  // of its vdevice, big-endian; 0: none
    qp1mux::CmIdRecord id;
  };
  // A vdevice as its program knows it: by the GUID that it had when the program came to know it.
  // Another one may have taken its place since (cm_session_image.h).
  struct VdeviceRecord {
    uint64_t known_as;   // big-endian
    uint64_t node_guid;  // of the present one
  };
  // The last handle and the last event sequence in use.
  struct Numbers {
    uint32_t handle = 0;
    uint32_t event = 0;
  };

  CmSessionFile() = default;
  [[nodiscard]] static base::Result<CmSessionFile> create(const std::string& path, const Who& who);
  [[nodiscard]] static base::Result<CmSessionFile> open(const std::string& path);
  void put_who(const Who& who);

  [[nodiscard]] bool active() const { return file_ != nullptr && file_->forbidden().empty(); }
  // Changes take effect at once.
  [[nodiscard]] Numbers& numbers() {
    return file_ ? *reinterpret_cast<Numbers*>(file_->area()) : numbers_;
  }

  // `socket`: the inode of the program's end of it.
  void put_channel(uint32_t handle, uint64_t socket);
  void erase_channel(uint32_t handle);
  void put_id(uint32_t handle, const IdRecord& record);
  void erase_id(uint32_t handle);
  void put_vdevice(uint32_t number, const VdeviceRecord& record);
  void put_event(const ipc::CmEventMessage& message);  // by its sequence
  void erase_event(uint32_t sequence);
  // The last request that changed something: its reply without attributes and GUIDs.
  void put_answer(const ipc::CmReply& reply);
  void commit();

  // The file must be active.
  [[nodiscard]] base::Result<Who> who() const;
  // With their sockets; 0: an earlier vrdmad did not note it.
  [[nodiscard]] std::vector<std::pair<uint32_t, uint64_t>> channels() const;
  [[nodiscard]] std::vector<std::pair<uint32_t, IdRecord>> ids() const;
  [[nodiscard]] std::vector<VdeviceRecord> vdevices() const;
  [[nodiscard]] std::vector<ipc::CmEventMessage> events() const;  // in order
  [[nodiscard]] ipc::CmReply answer() const;                      // sequence 0: none

  // Keeps the file for the next daemon.
  void leave();

 private:
  explicit CmSessionFile(std::unique_ptr<RecordFile> file) : file_(std::move(file)) {}
  enum class Kind : uint16_t { kWho, kChannel, kId, kEvent, kAnswer, kVdevice };
  [[nodiscard]] std::vector<RecordFile::Record> all(Kind kind) const {
    return file_->all(static_cast<uint16_t>(kind));
  }
  void put(Kind kind, uint32_t number, const void* data, size_t size);
  void erase(Kind kind, uint32_t number);

  std::unique_ptr<RecordFile> file_;
  Numbers numbers_;  // without a file
};

}  // namespace vrdma::vrdmad
