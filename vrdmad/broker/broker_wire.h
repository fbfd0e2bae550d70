// Requests to the broker and its answers: one struct of fixed size each way, without pointers, and
// descriptors beside the answer. Only the daemon's own processes speak this protocol, and only
// those of one build.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "core/ipc/socket.h"
#include "core/rdma/peer.h"
#include "vrdmad/broker/held_files.h"

namespace vrdma::vrdmad::broker {

// Text in a message: shorter than the array, and padded with zeros.
template <size_t kSize>
[[nodiscard]] bool put(std::string_view text, char (&to)[kSize]) {
  if (text.size() >= kSize || text.find('\0') != std::string_view::npos) return false;
  text.copy(to, text.size());
  return true;
}
template <size_t kSize>
[[nodiscard]] std::string_view get(const char (&from)[kSize]) {
  const std::string_view all(from, kSize);
  return all.substr(0, all.find('\0'));
}

struct Request {
  // Each with what it needs, and -> what the answer has. All that inspect a process: EAGAIN if none
  // of its network namespace can be inspected now.
  enum class Op : uint32_t {
    // A worker's channel serves only kCheck, without kUserfaultfd and kHeld, and kPacketSocket, for
    // entries that are for this worker; EPERM otherwise.

    // text: path, number: cookie of the netns whose processes may connect -> entry; beside: the
    // listener, to poll. EPERM: the path is not in the run directory.
    kListen = 1,
    // entry: a listener, or a connection that was accepted with which 0 -> entry. Of a listener:
    // peer (pid, ids, cookie); beside: the connection, if there is one. EXDEV: it came from another
    // namespace. EAGAIN without a connection: there is none, or for `number` ns processes of the
    // namespace cannot be inspected. Of a connection, or with which 1 of a listener: first: the
    // worker that it is for, or 0, files: Rights of the worker -> peer, identified. ENXIO: there is
    // no such worker, or it has ended; then none is accepted.
    kAccept,
    // entry, first, sender, files: EPERM unless the process of the entry is unchanged and, if
    // `first` is 1, is the sender; EACCES if it may not have a session; beside: what `files` says.
    kCheck,
    // peer, text: path of a listener, as of kListen, first, files: as of kAccept, wanted, which,
    // time_ns: as of kHeld, entry: an earlier one, whose search serves this one too if it has the
    // same process, or 0 -> entry, peer: the process of a session that another daemon served,
    // number, found: as of kHeld; beside: as for kCheck with kMemory, then as with kHeld. ENXIO: as
    // for kAccept. ESRCH: it has ended. EPERM: no broker has checked it, or it has not connected
    // to that listener. EACCES: as for kCheck. EMFILE: as for kHeld.
    kFind,
    // entry: of any kind; a worker is killed
    kForget,
    // text: a namespace (netns/netns.h) -> number: its cookie; beside: its file. It has an nsid in
    // the daemon's namespace from then on.
    kNetns,
    // number: nsid, text: name or empty, which: index, first: of the addresses -> link, number:
    // how many addresses there are
    kLink,
    // entry, which: index of a netdev; beside: a packet socket of no protocol in the namespace from
    // which the process of the entry connected
    kPacketSocket,
    // entry, address, which: index of a netdev, first -> found; beside: UDP sockets for RoCE v2
    // (roce_sockets.h) in the namespace from which the process of the entry connected. Of a
    // multicast group: a member of it. Of an address of the netdev: those of RoceSockets, or if
    // `first` is not 0, the first so many that only send, and found: bit i: the port of socket i is
    // free. EADDRINUSE: the port is taken. EADDRNOTAVAIL: the namespace does not have the address.
    kRoceSockets,
    // -> entry: a worker process that has executed its program; beside: a socket whose other end is
    // its descriptor 3, its pidfd, and a socket that ends when it was reaped. A message there, a
    // uint64_t, is the memory limit of its control group, if the kernel killed it because of that.
    // EAGAIN: there are too many.
    kStartWorker,
  };
  // Beside the answer to kCheck.
  enum Files : uint32_t {
    kNone,
    kMemory,          // for reading: kMemoryFiles: memory, maps, pidfd
    kWritableMemory,  // the same
    kUserfaultfd,     // /dev/userfaultfd
    // wanted, which: how many, time_ns: for the search, if it is the first of the entry -> number:
    // processor time of the request, in ns, found: bit i: the process has wanted[i]; beside: those,
    // in this order. EMFILE: the time is over, and the process may have more of them.
    kHeld,
  };
  static constexpr size_t kMemoryFiles = 3;
  // What a worker may ask about an entry in addition to kCheck.
  enum Rights : uint32_t {
    kMayPacketSocket = 1,  // kPacketSocket
  };
  // A descriptor that a process has.
  struct Wanted {
    uint64_t id = 0;  // HeldFiles::take()
    WantedFile kind{};
    uint32_t reserved = 0;
  };
  // As many as each session has without event channels.
  static constexpr size_t kMostWanted = 5;
  Op op{};
  uint32_t entry = 0;
  ipc::Sender sender;
  uint32_t files = kNone;
  rdma::Peer peer;
  uint64_t number = 0, time_ns = 0;
  uint32_t which = 0, first = 0;
  std::array<uint8_t, 16> address{};  // a GID
  std::array<Wanted, kMostWanted> wanted{};
  char text[1024]{};
};
static_assert(sizeof(Request) == 24 + sizeof(rdma::Peer) + 40 + size_t{5} * 16 + 1024);

struct Answer {
  // netns/link.h, with some of the addresses.
  struct Link {
    static constexpr uint32_t kAddresses = 32;
    char name[16]{};
    uint32_t ifindex = 0, mtu = 0, addresses = 0;  // of them below
    uint8_t up = 0, loopback = 0, has_mac = 0, has_more = 0;
    std::array<uint8_t, 6> mac{};
    uint8_t padding[6]{};
    uint32_t tentative = 0;  // a bit for each of the addresses
    std::array<std::array<uint8_t, 16>, kAddresses> address{};
  };
  int32_t error = 0;  // errno
  uint32_t entry = 0;
  rdma::Peer peer;
  uint64_t number = 0;
  uint32_t found = 0, reserved = 0;
  Link link;
  char reason[512]{};  // a sentence, if there is an error
};
static_assert(sizeof(Answer) == 24 + sizeof(rdma::Peer) + 48 + 512 + 512);

}  // namespace vrdma::vrdmad::broker
