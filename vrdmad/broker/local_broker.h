// The broker itself, which needs the capabilities that privileges.cc lists.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <variant>

#include "vrdmad/broker/bounded.h"
#include "vrdmad/broker/broker.h"
#include "vrdmad/broker/known_peers.h"

namespace vrdma::netns {
class RouteQueries;
}

namespace vrdma::vrdmad {

// Where a broker works, and for whom.
struct BrokerPlace {
  // Listeners are below its netns/, and the processes that were checked are written down in its
  // broker/. Empty, for tests: listeners are anywhere, and each process counts as checked.
  std::string run_dir;
  // The daemon's uid. Processes of the daemon get no entry, because an entry gives access to what
  // they cannot open. They are in the broker's network namespace and cannot leave it; a tenant with
  // this uid is in another namespace. 0: root, for which there is no such check.
  uid_t daemon = 0;
};

class LocalBroker final : public Broker {
 public:
  static constexpr size_t kMostEntries = 65'536;
  explicit LocalBroker(BrokerPlace place = {});
  ~LocalBroker() override;

  [[nodiscard]] Answer serve(const Request& request, Beside* beside) override;

  // Before the process ends; other threads may still use the broker. See KnownPeers::end().
  void end() { known_.end(); }

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
  };
  struct Process;
  using Entry = std::variant<std::shared_ptr<const Listener>, std::shared_ptr<Connection>,
                             std::shared_ptr<Process>>;

  // Each sets the answer, or returns its error. Some are run by bounded_.
  [[nodiscard]] base::Result<void> listen(const Request& request, Answer* answer, Beside* beside);
  [[nodiscard]] base::Result<void> accept(const Request& request, Answer* answer, Beside* beside);
  [[nodiscard]] base::Result<void> identify(const Request& request, Answer* answer);
  [[nodiscard]] base::Result<void> check(const Request& request, Beside* beside);
  [[nodiscard]] base::Result<void> find(const Request& request, Answer* answer);
  [[nodiscard]] base::Result<void> netns(const Request& request, Answer* answer, Beside* beside);
  [[nodiscard]] base::Result<void> link(const Request& request, Answer* answer);
  [[nodiscard]] base::Result<void> packet_socket(const Request& request, Beside* beside);
  [[nodiscard]] base::Result<void> take(const Request& request, Answer* answer, Beside* beside);
  [[nodiscard]] base::Result<void> inspect(const Request& request, Answer* answer, Beside* beside);
  [[nodiscard]] base::Result<void> dispatch(const Request& request, Answer* answer, Beside* beside);
  [[nodiscard]] base::Result<ListenerName> name(const Request& request) const;
  [[nodiscard]] base::Result<base::Fd> open_place(const std::string& path) const;
  void forget(uint32_t entry);
  [[nodiscard]] base::Result<void> prepare_queries();

  // ENFILE: there are too many.
  [[nodiscard]] base::Result<uint32_t> add(Entry entry);
  [[nodiscard]] bool is_daemon(const rdma::Peer& peer) const;
  template <class T>
  [[nodiscard]] base::Result<std::shared_ptr<T>> at(uint32_t entry);

  const std::string run_dir_;
  const uid_t daemon_;
  Bounded bounded_;
  std::mutex mutex_;  // guards the entries
  std::map<uint32_t, Entry> entries_;
  uint32_t last_ = 0;
  KnownPeers known_;
  std::mutex queries_mutex_;
  std::unique_ptr<netns::RouteQueries> queries_;  // made when it is first used
  uint64_t own_netns_ = 0;
};

}  // namespace vrdma::vrdmad
