// What needs privilege, and the processes that connect to the daemon's session and rdma_cm sockets.
//
// Only accept(2) on a listener of the broker proves which process is at the other end, so the
// broker binds the listeners and accepts the connections. It identifies each process at the accept
// and keeps descriptors that stay bound to it (core/rdma/peer.h). It hands out only files of that
// process, after it has compared the process with its state at the accept. It also finds network
// namespaces for control, reads their links and makes packet sockets there.
//
// All goes through serve(): one struct of fixed size each way, and descriptors beside the answer.
// Nothing in a request is trusted. The broker is a process of its own (broker_process.h), or a part
// of this one in tests (local_broker.h). Any thread may call.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/base/event_loop.h"
#include "core/base/fd.h"
#include "core/ipc/socket.h"
#include "core/rdma/peer.h"
#include "core/serve/acceptor.h"
#include "netns/link.h"
#include "netns/netns.h"
#include "vrdmad/broker/broker_wire.h"
#include "vrdmad/broker/entrance.h"
#include "vrdmad/broker/intake.h"
#include "vrdmad/broker/roce_sockets.h"

namespace vrdma::vrdmad {

class Broker;
class Caller;

namespace broker {
// The descriptors beside an answer.
using Beside = std::array<base::Fd, Request::kMemoryFiles + Request::kMostWanted>;
static_assert(std::tuple_size_v<Beside> <= ipc::kMaxFds);
// Sends the answer to a request with the valid descriptors, on the broker's side.
[[nodiscard]] base::Result<void> send_answer(const base::Fd& socket, const Answer& answer,
                                             const Beside& beside);
}  // namespace broker

struct Arrival {
  base::Fd socket;  // non-blocking
  std::shared_ptr<Caller> caller;
  Intake::AccountRef account = nullptr;          // the listener's
  std::shared_ptr<Entrance> entrance = nullptr;  // the listener's; empty in tests
};

// The worker process that a connection is for.
struct Recipient {
  uint32_t worker = 0;  // its entry (WorkerProcess); 0: none
  uint32_t rights = 0;  // broker::Request::Rights, in addition to check() and open()
};

// A worker process, of which the broker is the parent. When this is destroyed, the broker kills it.
// The worker may ask the broker only about the entries that are for it (Recipient).
class WorkerProcess {
 public:
  WorkerProcess(std::shared_ptr<Broker> broker, uint32_t entry, base::Fd socket, base::Fd process,
                base::Fd its_report)
      : worker(entry),
        link(std::move(socket)),
        pidfd(std::move(process)),
        report(std::move(its_report)),
        broker_(std::move(broker)) {}
  WorkerProcess(WorkerProcess&&) noexcept = default;
  WorkerProcess& operator=(WorkerProcess&&) = delete;
  ~WorkerProcess();

  const uint32_t worker;  // its entry
  base::Fd link;          // SOCK_SEQPACKET, blocking; its other end is the worker's descriptor 3
  base::Fd pidfd;         // readable when the worker has ended, unless a thread of it hangs
  // Ends when the worker was reaped. A message before that is the memory limit that it exceeded
  // (broker::Request::Op).
  base::Fd report;

 private:
  std::shared_ptr<Broker> broker_;  // none: moved from
};

// The callbacks of a listener; all run on its loop. Those that get a socket own it and close it.
struct Reception {
  std::function<base::Duration()> closed_for;  // as for serve::Acceptor::start()
  std::function<void()> arrived;               // a connection from the namespace
  // Called before the process is identified, which is the slowest step; empty: all are wanted.
  std::function<bool(uid_t uid)> wants;
  // Asked before each accept; empty: no connection is for a worker process. A connection waits
  // while the worker that is named has ended.
  std::function<Recipient()> recipient = {};
  std::function<void(Arrival)> accepted;
  std::function<void(base::Fd)> foreign;  // from another namespace
  // It is not wanted, or its process could not be identified.
  std::function<void(base::Fd)> lost;
};

class Broker : public std::enable_shared_from_this<Broker> {
 public:
  using Request = broker::Request;
  using Answer = broker::Answer;
  using Beside = broker::Beside;

  Broker() = default;
  virtual ~Broker() = default;
  Broker(const Broker&) = delete;
  Broker& operator=(const Broker&) = delete;

  // `beside` gets the descriptors.
  [[nodiscard]] virtual Answer serve(const Request& request, Beside* beside) = 0;
  // The same; the error is the answer's.
  [[nodiscard]] base::Result<Answer> ask(const Request& request, Beside* beside);

  // A listening session socket at `path`, which must not exist, for the processes of one network
  // namespace. The serve::Acceptor must not outlive the broker's user.
  [[nodiscard]] base::Result<std::unique_ptr<serve::Acceptor>> listen(base::EventLoop& loop,
                                                                      const std::string& path,
                                                                      uint64_t netns_cookie,
                                                                      Reception reception);
  // Starts a worker process, and waits until it has executed its program.
  [[nodiscard]] base::Result<WorkerProcess> start_worker();
  // The process of a session that another daemon served, its memory for reading, and descriptors of
  // it. `path`: of the listener to which it connected. Errors: see broker::Request::Op.
  struct Search;
  struct Found;
  [[nodiscard]] base::Result<Found> find(const rdma::Peer& peer, const std::string& path,
                                         Recipient recipient, const Search& search);
  // An entry that control owns and has given to this process, which is the worker that it is for.
  // The Caller does not forget it.
  [[nodiscard]] std::shared_ptr<Caller> borrowed(uint32_t entry, const rdma::Peer& peer);
  // netns::resolve(). The namespace has an nsid in the daemon's from then on.
  [[nodiscard]] base::Result<netns::Netns> netns(const std::string& spec);
  // netns::RouteQueries::link()
  [[nodiscard]] base::Result<netns::Link> link(int nsid, const std::string& name, uint32_t ifindex);

 protected:
  // The caller's end of an entry.
  [[nodiscard]] std::shared_ptr<Caller> caller(uint32_t entry, const rdma::Peer& peer);

 private:
  struct Listener;
};

// An entry of a Broker: the process of one connection. Any thread.
class Caller {
 public:
  using Request = broker::Request;
  // `owned`: it forgets the entry at the end.
  Caller(std::shared_ptr<Broker> broker, uint32_t entry, const rdma::Peer& peer, bool owned = true)
      : broker_(std::move(broker)), entry_(entry), peer_(peer), owned_(owned) {}
  ~Caller();
  Caller(const Caller&) = delete;
  Caller& operator=(const Caller&) = delete;

  // The broker's number of it, by which control names it to a worker.
  [[nodiscard]] uint32_t entry() const { return entry_; }
  [[nodiscard]] const rdma::Peer& peer() const { return peer_; }  // at the accept
  // Errors: see broker::Request::Op.
  [[nodiscard]] base::Result<void> check(const ipc::Sender& sender) const;
  struct Opened {
    rdma::MemoryFiles memory;
    base::Fd pidfd;
  };
  // `sender`: as for check(); nullptr: there is no message.
  [[nodiscard]] base::Result<Opened> open(bool writable, const ipc::Sender* sender = nullptr) const;
  // Lets a process without privilege make a userfaultfd (ioctl_userfaultfd(2)); ENOENT before 6.1.
  [[nodiscard]] base::Result<base::Fd> userfaultfd() const;
  [[nodiscard]] base::Result<base::Fd> packet_socket(uint32_t ifindex) const;
  // make_group_socket() in the namespace from which the process connected; only for control, as are
  // the next two.
  [[nodiscard]] base::Result<base::Fd> group_socket(const verbs::Gid& group,
                                                    uint32_t ifindex) const;
  // make_roce_sockets() in the same.
  [[nodiscard]] base::Result<RoceSockets> roce_sockets(const verbs::Gid& address,
                                                       uint32_t ifindex) const;
  // make_source_sockets() in the same.
  [[nodiscard]] base::Result<std::vector<base::Fd>> source_sockets(const verbs::Gid& address,
                                                                   uint32_t ifindex,
                                                                   uint32_t count) const;
  // Descriptors that the process has, in the order of `wanted`; those that it does not have are
  // invalid. Searches the process at the first call. Makes no further request when `time` is over.
  // Adds the processor time of both processes to `used`. EMFILE: some were not found in that time.
  using Wanted = Request::Wanted;
  [[nodiscard]] base::Result<std::vector<base::Fd>> take(const std::vector<Wanted>& wanted,
                                                         base::Duration time,
                                                         base::Duration* used) const;

 private:
  [[nodiscard]] Request request(Request::Op op) const;
  // In its network namespace, of a netdev there. `count`: of source sockets.
  [[nodiscard]] base::Result<Broker::Answer> sockets(Request::Op op, const verbs::Gid& address,
                                                     uint32_t ifindex, Broker::Beside* beside,
                                                     uint32_t count = 0) const;
  const std::shared_ptr<Broker> broker_;
  const uint32_t entry_;
  const rdma::Peer peer_;
  const bool owned_;
};

// What to search for in a process that find() finds: as for Caller::take().
struct Broker::Search {
  std::vector<Caller::Wanted> wanted;
  base::Duration time{};
  base::Duration* used = nullptr;
  // One that was found earlier. If it is the same process, it is not searched again; nullptr: none.
  const Caller* earlier = nullptr;
};

struct Broker::Found {
  std::shared_ptr<Caller> caller;
  Caller::Opened opened;
  std::vector<base::Fd> files;  // as of Caller::take()
};

}  // namespace vrdma::vrdmad
