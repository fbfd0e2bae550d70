// The broker itself, which needs the capabilities that privileges.cc lists.
#pragma once

#include <cerrno>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <variant>

#include "vrdmad/broker/bounded.h"
#include "vrdmad/broker/broker.h"
#include "vrdmad/broker/broker_place.h"
#include "vrdmad/broker/known_peers.h"
#include "vrdmad/broker/seats.h"

namespace vrdma::netns {
class RouteQueries;
}

namespace vrdma::vrdmad {

struct WorkerGround;
class WorkerChild;

class LocalBroker final : public Broker {
 public:
  static constexpr size_t kMostEntries = 65'536;
  // `ground`: of worker processes; nullptr: made when the first is started, which a filter of
  // system calls may forbid.
  explicit LocalBroker(BrokerPlace place = {}, std::shared_ptr<WorkerGround> ground = nullptr);
  ~LocalBroker() override;

  [[nodiscard]] Answer serve(const Request& request, Beside* beside) override;

  // Before the process ends; other threads may still use the broker. Kills the workers, closes the
  // listeners, so that programs try the next broker, and waits a moment until the workers have been
  // reaped and their control groups removed. See KnownPeers::end().
  void end();

  // Identifies the process of a connection, as listen() does after the accept. For tests.
  [[nodiscard]] base::Result<Arrival> admit(base::Fd socket);

 private:
  struct Listener {
    base::Fd socket;
    uint64_t netns = 0;
    ListenerName name;
  };
  struct Connection {
    rdma::Connected connected;
    ListenerName listener;
    Seats::Seat seat;
  };
  struct Process;
  using Entry = std::variant<std::shared_ptr<const Listener>, std::shared_ptr<Connection>,
                             std::shared_ptr<Process>, std::shared_ptr<WorkerChild>>;

  // Each sets the answer, or returns its error.
  [[nodiscard]] base::Result<void> listen(const Request& request, Answer* answer, Beside* beside);
  [[nodiscard]] base::Result<void> accept(const Request& request, Answer* answer, Beside* beside);
  // These look into a process, and are run by inspect().
  [[nodiscard]] base::Result<void> identify(const Request& request, Answer* answer, Beside* beside);
  [[nodiscard]] base::Result<void> check(const Request& request, Answer* answer, Beside* beside);
  [[nodiscard]] static base::Result<void> give(const rdma::PeerHandle& handle,
                                               rdma::MemoryFiles memory, Beside* beside);
  [[nodiscard]] base::Result<void> find(const Request& request, Answer* answer, Beside* beside);
  [[nodiscard]] base::Result<void> make_in_netns(uint32_t entry,
                                                 const std::function<base::Result<void>()>& make);
  [[nodiscard]] base::Result<void> packet_socket(const Request& request, Answer* answer,
                                                 Beside* beside);
  [[nodiscard]] base::Result<void> roce_sockets(const Request& request, Answer* answer,
                                                Beside* beside);
  [[nodiscard]] static base::Result<void> take_from(const Process& process, const Request& request,
                                                    Answer* answer, base::Fd* next);
  [[nodiscard]] static base::Result<void> take_held(const Process& process, const Request& request,
                                                    Answer* answer, base::Fd* next);
  [[nodiscard]] base::Result<void> netns(const Request& request, Answer* answer, Beside* beside);
  [[nodiscard]] base::Result<void> link(const Request& request, Answer* answer);
  [[nodiscard]] base::Result<void> start_worker(Answer* answer, Beside* beside);
  // What looks into a process, which may block it. Of its peer only `pid` and `netns_cookie` count.
  using Look = base::Result<void> (LocalBroker::*)(const Request& request, Answer* answer,
                                                   Beside* beside);
  [[nodiscard]] base::Result<void> inspect(const rdma::Peer& whom, Look look,
                                           const Request& request, Answer* answer, Beside* beside);
  // The process of the entry.
  [[nodiscard]] base::Result<void> inspect(Look look, const Request& request, Answer* answer,
                                           Beside* beside);
  // That of a connection, which becomes the entry of the process.
  [[nodiscard]] base::Result<void> inspect_connection(const Request& request, Answer* answer,
                                                      Beside* beside);
  [[nodiscard]] base::Result<void> dispatch(const Request& request, Answer* answer, Beside* beside);
  // `request` is from the channel of that worker.
  [[nodiscard]] Answer serve_worker(uint32_t worker, const Request& request, Beside* beside);
  [[nodiscard]] base::Result<void> dispatch_worker(uint32_t worker, const Request& request,
                                                   Answer* answer, Beside* beside);
  // That control names. ENXIO: the worker has ended.
  [[nodiscard]] base::Result<Recipient> recipient(const Request& request);
  [[nodiscard]] std::shared_ptr<WorkerGround> ground();
  [[nodiscard]] static Answer refusal(const base::Error& why);
  [[nodiscard]] base::Result<ListenerName> name(const Request& request) const;
  [[nodiscard]] base::Result<base::Fd> open_place(const std::string& path) const;
  void forget(uint32_t entry);
  [[nodiscard]] base::Result<void> prepare_queries();

  // ENFILE: there are too many.
  [[nodiscard]] base::Result<uint32_t> add(Entry entry);
  [[nodiscard]] base::Result<Seats::Seat> seat_for(uint64_t netns, uid_t user,
                                                   bool had_one = false);
  [[nodiscard]] bool is_daemon(const rdma::Peer& peer);
  [[nodiscard]] static tl::unexpected<base::Error> no_such_entry() {
    return base::fail(EINVAL, "there is no such entry");
  }
  template <class T>
  [[nodiscard]] base::Result<std::shared_ptr<T>> at(uint32_t entry);

  const BrokerPlace place_;
  const std::string& run_dir_ = place_.run_dir;
  Bounded bounded_;
  Seats seats_;
  std::once_flag alone_;  // the workers of an earlier broker have ended
  std::mutex mutex_;      // guards the entries and ground_
  std::shared_ptr<WorkerGround> ground_;
  std::map<uint32_t, Entry> entries_;
  uint32_t last_ = 0;
  KnownPeers known_;
  std::mutex queries_mutex_;
  std::unique_ptr<netns::RouteQueries> queries_;  // made when it is first used
  uint64_t own_netns_ = 0;
};

}  // namespace vrdma::vrdmad
