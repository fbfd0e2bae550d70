// Identifies the processes that connect to the daemon's session and rdma_cm sockets.
//
// Only accept(2) on a listener of this class proves which process is at the other end, so the class
// binds the listeners and accepts the connections. It identifies each process at the accept and
// keeps descriptors that stay bound to it (core/rdma/peer.h). It hands out only the process's
// memory files, after it has compared the process with its state at the accept. Threads with a time
// limit do all of this (bounded.h), so a process cannot block a caller for long.
//
// All but listen() goes through serve(): one struct of fixed size each way, without pointers, and
// descriptors beside the answer. Nothing in a request is trusted. Any thread may call.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "core/base/event_loop.h"
#include "core/base/fd.h"
#include "core/ipc/socket.h"
#include "core/rdma/peer.h"
#include "vrdmad/broker/acceptor.h"
#include "vrdmad/broker/bounded.h"
#include "vrdmad/broker/entrance.h"
#include "vrdmad/broker/intake.h"

namespace vrdma::vrdmad {

class Caller;

struct IdentityRequest {
  enum class Op : uint32_t {
    kCheck = 1,  // entry, sender: EPERM unless the sender is the process of the entry, unchanged;
                 // EACCES if the process may not have a session
    kOpen,    // entry, writable: checks as kCheck, but no sender; beside the answer: memory, maps,
              // pidfd
    kFind,    // peer -> entry, peer: the process of a session that another daemon served; ESRCH
    kForget,  // entry
    // All but kForget: EAGAIN if no process of the network namespace can be inspected now.
  };
  Op op{};
  uint32_t entry = 0;
  ipc::Sender sender;
  uint32_t writable = 0;
  rdma::Peer peer;
};
static_assert(sizeof(IdentityRequest) == 24 + sizeof(rdma::Peer));

struct IdentityAnswer {
  int32_t error = 0;  // errno
  uint32_t entry = 0;
  rdma::Peer peer;
  char reason[160]{};  // a sentence, if there is an error
};
static_assert(sizeof(IdentityAnswer) == 168 + sizeof(rdma::Peer));

struct Arrival {
  base::Fd socket;  // non-blocking
  std::shared_ptr<Caller> caller;
  Intake::AccountRef account = nullptr;          // the listener's
  std::shared_ptr<Entrance> entrance = nullptr;  // the listener's; empty in tests
};

// The callbacks of a listener; all run on its loop.
struct Reception {
  uint64_t netns = 0;  // cookie of the namespace whose processes may connect
  std::function<base::Duration()> closed_for;  // as for Acceptor::start()
  // Called before the process is identified, which is the slowest step. False: the connection is
  // not wanted; the callee owns it and closes it.
  std::function<bool(base::Fd& socket)> wants;
  std::function<void(Arrival)> accepted;
  std::function<void(base::Fd)> lost;  // a connection whose process could not be identified
};

class Identity : public std::enable_shared_from_this<Identity> {
 public:
  // Does not unlink `path`.
  [[nodiscard]] base::Result<std::unique_ptr<Acceptor>> listen(base::EventLoop& loop,
                                                               const std::string& path,
                                                               Reception reception);

  using Beside = std::array<base::Fd, 3>;
  [[nodiscard]] IdentityAnswer serve(const IdentityRequest& request, Beside* beside);

  // Runs another inspection that a process of the namespace may block; see Bounded::run().
  [[nodiscard]] bool look(uint64_t netns, std::function<void()> job) {
    return bounded_.run(netns, std::move(job));
  }

  // Identifies the process of a connection, as listen() does after the accept.
  [[nodiscard]] base::Result<Arrival> admit(base::Fd socket);
  // The process of a session that another daemon served.
  [[nodiscard]] base::Result<std::shared_ptr<Caller>> find(const rdma::Peer& peer);

 private:
  // The process at the other end of a socket that was just accepted.
  [[nodiscard]] base::Result<std::shared_ptr<Caller>> identify(int socket);
  [[nodiscard]] IdentityAnswer answer(const IdentityRequest& request, Beside* beside);
  uint32_t add(rdma::PeerHandle handle);
  std::shared_ptr<const rdma::PeerHandle> at(uint32_t entry);
  [[nodiscard]] static base::Result<void> compare(const rdma::PeerHandle& handle,
                                                  const ipc::Sender* sender);

  Bounded bounded_;
  std::mutex mutex_;
  std::map<uint32_t, std::shared_ptr<const rdma::PeerHandle>> entries_;
  uint32_t last_ = 0;
};

// An entry of an Identity: the process of one connection. Any thread.
class Caller {
 public:
  Caller(std::shared_ptr<Identity> identity, uint32_t entry, const rdma::Peer& peer)
      : identity_(std::move(identity)), entry_(entry), peer_(peer) {}
  ~Caller();
  Caller(const Caller&) = delete;
  Caller& operator=(const Caller&) = delete;

  [[nodiscard]] const rdma::Peer& peer() const { return peer_; }  // at the accept
  // Errors: see IdentityRequest::Op.
  [[nodiscard]] base::Result<void> check(const ipc::Sender& sender) const;
  struct Opened {
    rdma::MemoryFiles memory;
    base::Fd pidfd;
  };
  [[nodiscard]] base::Result<Opened> open(bool writable) const;

 private:
  IdentityRequest request(IdentityRequest::Op op) const;
  const std::shared_ptr<Identity> identity_;
  const uint32_t entry_;
  const rdma::Peer peer_;
};

}  // namespace vrdma::vrdmad
