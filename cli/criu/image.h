// What the plugin keeps of a process beside CRIU's own images: vrdma-PID.img in the directory of
// the images, where PID is the number of the process in its innermost pid namespace.
//
// The file is JSON. It is decoded like the bytes of a stranger, because an image may have been
// changed on its way: what it contains decides only about descriptors of the process that is being
// restored, and vrdmad attaches that process only if it knows the token.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/base/error.h"

namespace vrdma::cli::criu {

// A socket pair for the events of a session, or of a completion channel. Both ends may have several
// numbers (dup(2)).
struct EndPair {
  uint32_t session = 0;
  uint32_t channel = 0;  // handle; 0: events of the session
  std::vector<int> reads, writes;
  int read_flags = 0, write_flags = 0;  // F_GETFL
  int room = 0;                         // SO_SNDBUF of the write end
  std::vector<std::string> messages;    // that were not read yet, the oldest first
  bool operator==(const EndPair&) const = default;
};

// An event channel of rdma_cm: one end of a socket pair. vrdmad had the other end, which is closed
// afterwards.
struct Channel {
  std::vector<int> numbers;
  int flags = 0;                      // F_GETFL
  std::vector<std::string> messages;  // that were not read yet, the oldest first
  bool operator==(const Channel&) const = default;
};

// What an epoll descriptor watches.
struct EpollEntry {
  int epoll = -1, number = -1;
  uint32_t events = 0;
  uint64_t data = 0;
  bool operator==(const EpollEntry&) const = default;
};

// What the process has of another one's session, because they have direct links: mappings of that
// session's files, and descriptors.
struct OfPeer {
  struct View {
    enum class What : uint8_t { kArena, kBells, kMemory };
    What what{};
    uint64_t address = 0, length = 0, offset = 0;  // bytes
    int protection = 0;                            // mmap(2)
    bool operator==(const View&) const = default;
  };
  uint32_t session = 0;
  uint64_t memory_inode = 0;  // of the memory arena that it maps
  std::vector<View> views;
  std::vector<int> memory;                    // numbers of that memory arena
  std::map<uint32_t, std::vector<int>> ends;  // numbers of the channels' write ends, by handle
  bool operator==(const OfPeer&) const = default;
};

struct Image {
  static constexpr size_t kMostBytes = 16u << 20;
  static constexpr size_t kMostEach = 65'536;   // elements of a list
  static constexpr size_t kMostMessage = 4096;  // bytes

  // One process's use of one vdevice.
  struct Session {
    uint32_t number = 0;
    std::string socket;                          // path of the session socket
    int queues = -1, bells = -1, doorbell = -1;  // numbers of descriptors
    // What another vrdmad makes the session of, as `place` and `attach` of cli/criu/vrdmad.h take
    // it (JSON); empty: only the one that parked it knows it.
    std::string portable = {};
    bool operator==(const Session&) const = default;
  };
  std::string token;
  std::vector<Session> sessions;
  std::vector<std::string> connections;  // paths of the sockets of rdma_cm that it uses
  // Of each of these, as Session::portable; or empty: only the vrdmad that parked them knows them.
  std::vector<std::string> carried = {};
  std::vector<int> memory;  // numbers of the memory arena, which all sessions share
  std::vector<EndPair> ends;
  std::vector<Channel> channels;
  std::vector<EpollEntry> epolls;
  bool had_peers = false;  // with which it may have had direct links
  std::vector<OfPeer> peers;
  bool operator==(const Image&) const = default;

  [[nodiscard]] std::string encode() const;
  [[nodiscard]] static base::Result<Image> decode(const std::string& bytes);
};

}  // namespace vrdma::cli::criu
