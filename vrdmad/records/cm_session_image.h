// The portable image of a CmSession: its channels, ids with their connections, unread events and
// its last answer. A value: no descriptor, path, process or namespace is in it.
//
//   image  := Header, Record*
//   Record := RecordHeader, data, padded to 8 bytes
//
// decode() takes bytes from anybody. The checksum finds damage, not malice. What decode() accepts
// has distinct handles, and values in the ranges that the code which continues a session relies on
// (qp1mux/record.h); whether addresses, ports, numbers and limits permit it is checked where it
// goes on (vrdmad/cm/images.cc). encode() gives equal images equal bytes.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "vrdmad/records/cm_session_file.h"

namespace vrdma::vrdmad {

struct CmSessionImage {
  static constexpr size_t kMostBytes = 2u << 20;
  static constexpr uint32_t kMostBacklog = 1024;
  static constexpr size_t kMostVdevices = 64;

  struct Id {
    CmSessionFile::IdRecord record{};
    uint32_t sgid_index = 0;  // of its local GID, if it has a vdevice
  };
  // One that an id has, or that the program knows.
  struct Vdevice {
    CmSessionFile::VdeviceRecord is{};
    std::string name;
  };

  std::array<uint64_t, ipc::kCmSecret / sizeof(uint64_t)> secret{};
  CmSessionFile::Numbers numbers;
  std::vector<uint32_t> channels;  // handles
  std::map<uint32_t, Id> ids;      // by handle
  std::vector<ipc::CmEventMessage> events;
  std::vector<Vdevice> vdevices;
  ipc::CmReply answer;  // sequence 0: none

  // What a session's file, which must be active, says. The caller adds names and sgid_index.
  [[nodiscard]] static base::Result<CmSessionImage> of(CmSessionFile& file);
  // EINVAL: it is damaged. EPROTO: of another version.
  [[nodiscard]] static base::Result<CmSessionImage> decode(std::span<const uint8_t> bytes);
  [[nodiscard]] std::vector<uint8_t> encode() const;
  // Puts all of it into a new file.
  void write_to(CmSessionFile* file) const;
};

}  // namespace vrdma::vrdmad
