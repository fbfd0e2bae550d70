// A vdevice as its worker runs it: the verbs device, what it may use, and who uses it.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "core/base/token_bucket.h"
#include "core/rdma/device.h"
#include "core/rdma/reach_threads.h"
#include "gid/prefix.h"
#include "provisioning/ledger.h"
#include "provisioning/permission.h"
#include "provisioning/request_rate.h"
#include "transport/backlog.h"
#include "transport/roce/network.h"
#include "transport/runner.h"
#include "transport/selector.h"
#include "vrdmad/broker/broker.h"
#include "vrdmad/stopper/stopper.h"
#include "vrdmad/worker/cpu_pace.h"
#include "vrdmad/worker/descriptors.h"
#include "vrdmad/worker/pacer.h"
#include "vrdmad/worker/vdevice_page.h"

namespace vrdma::vrdmad {

class RawGsi;

// What the workers share: nothing but how the daemon was started.
struct SessionSettings {
  uint32_t grace_ms = 30'000;  // for which clients wait for the next daemon
  // How long a session waits to be taken over: half of the grace period of its client.
  [[nodiscard]] base::Duration patience() const { return std::chrono::milliseconds(grace_ms / 2); }
  base::Duration park_grace = std::chrono::seconds(60);  // of parked sessions; 0: forever
  uint32_t source_ports = 0;       // that packets of RoCE v2 leave from; 0: all from port 4791
  std::string state_dir;           // of the sessions' files, for control; empty: there are none
  uint32_t epoch = 1;              // of this daemon, at random, in [1, ipc::kEpochs)
  std::shared_ptr<Broker> broker;  // nullptr: in a test without connections from other processes
  Intake* intake = nullptr;        // outlives all sessions; nullptr: in a test
  Stopper* stopper = nullptr;      // the same
};

// Lives on one worker, which owns its sessions. They hold it, so that it outlives its own deletion
// as long as programs have it open; `gone` is then set and all that is left to them is to destroy
// their objects.
struct Vdevice {
  const std::shared_ptr<VdevicePage> page;  // never null; what all below counts in
  uint64_t id = 0;
  std::string label;  // what the log calls it
  rdma::Device device;
  provisioning::Ledger ledger;
  provisioning::Permissions permissions;
  std::unique_ptr<RawGsi> gsi;         // null: not allowed
  uint64_t netns = 0;                  // cookie of the namespace that it belongs to
  std::unique_ptr<Pacer> pacer;        // never null; it is the device's pace while that is limited
  rdma::Buffers buffers;               // worker_memory
  base::TokenBucket registrations;     // mr_rate
  provisioning::RequestRate requests;  // req_rate
  // What its users have, by control group, as long as they have something.
  std::map<std::string, std::weak_ptr<provisioning::Pool>> cgroups;
  SessionCounters& counters;
  std::shared_ptr<CpuPace> cpu;  // never null; pays for the lane and the reach threads
  // Of all its sessions, and of those that have ended and whose memory still hangs.
  std::shared_ptr<rdma::ReachThreads> reach_threads;
  Intake::AccountRef intake;  // never null
  Stopper::AccountRef stops;  // never null
  // Whether its tenant may have `count` more descriptors of this process.
  std::function<bool(size_t count)> may_have_descriptors = has_descriptors_for;
  bool gone = false;
  // Queue pairs may have peers to which only a network leads, not on this host alone; of those
  // that do not belong to the fabric, only these, or all if there are none.
  bool reaches_network = false;
  std::vector<gid::Prefix> peers;
  // Some of its sessions of a dead daemon are not taken over yet: they will come, or are kept back.
  bool awaits_others = false, keeps_back = false;
  transport::Selector transports;
  transport::Lane lane;
  std::unique_ptr<transport::roce::Network> network;  // null: see reach_network()
  transport::Backlog backlog{lane};  // connections to be accepted, sessions that have ended

  // `limits` counts in the quota of `shown`.
  Vdevice(transport::Runner& runner, const std::string& tenant, provisioning::Ledger limits,
          const Rates& rates, std::shared_ptr<VdevicePage> shown = std::make_shared<VdevicePage>());
  ~Vdevice();
  // Those of this process that its sessions have.
  [[nodiscard]] size_t descriptors() const;
  // After the ledger's limits changed. `limited`: a worker executes all, at the pacer's pace.
  void apply_limits(bool limited);
  // From now on `reaches_network`, has these peers, and is in its multicast groups there. Queue
  // pairs with others go to ERR.
  void reach_network(const std::vector<gid::Prefix>& with,
                     std::shared_ptr<transport::roce::Incoming> incoming,
                     transport::roce::Network::Host host);
  // The opposite. Its queue pairs with peers on other hosts go to ERR.
  void leave_network();
  // If `qp` receives datagrams, and the vdevice reaches the network, they arrive from there too.
  void receive_datagrams(const rdma::Qp& qp);
  // Whether the network leads to this address or multicast group, and from it.
  [[nodiscard]] bool is_peer(const verbs::Gid& address) const;
  // Whether the peer of a queue pair that is about to be RTR is on another host.
  [[nodiscard]] bool is_beyond(const rdma::Qp& qp) const;
  [[nodiscard]] std::shared_ptr<provisioning::Pool> cgroup(const std::string& path);
  Vdevice(const Vdevice&) = delete;
  Vdevice& operator=(const Vdevice&) = delete;
};

}  // namespace vrdma::vrdmad
