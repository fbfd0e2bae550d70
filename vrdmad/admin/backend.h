// The interface between the admin API and the daemon: plain structs, no gRPC.
//
// The gRPC service translates messages into these calls and back. Calls are thread-safe and block
// until the control thread has answered, so the control thread itself must not make them. Errors
// carry an errno (ENOENT unknown object, ENOTUNIQ several objects of that name, EEXIST duplicate,
// EINVAL bad value, EBUSY in use, ENODEV no such netdev/parent, EPERM) and one sentence for the
// operator.
//
// The name of an existing vdevice is NAME, NETNS/NAME or id:N, as vrdmad/control/directory.h
// resolves them.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/ipc/export_state.h"
#include "core/rdma/sender.h"
#include "gid/prefix.h"

namespace vrdma::vrdmad {

// Identifies a vdevice in a row.
struct VdevKey {
  uint64_t id = 0;  // 0: the row concerns no vdevice
  std::string name;
  std::string netns;  // as given at creation
};

struct QuotaRow {
  std::string kind;    // "qp", "mr", "mr_bytes", ...
  uint64_t used = 0;   // current use
  uint64_t limit = 0;  // at most
};

struct QuotaSetting {
  std::string kind;
  uint64_t limit = 0;
  bool operator==(const QuotaSetting&) const = default;
};

// The settings of a tenant or a parent for its vdevices (provisioning/budget.h).
struct BudgetSpec {
  enum class Scope { kTenant, kParent };
  Scope scope = Scope::kTenant;
  std::string name;
  std::vector<QuotaSetting> defaults;  // limits of a vdevice whose quota does not set them
  std::vector<QuotaSetting> ceilings;  // for all its vdevices together; the largest value: none
  uint32_t overcommit = 0;             // percent of the ceilings that may be promised; 0: no change
  std::vector<std::string> no_default = {};  // kinds whose default is removed; in a change alone
};

struct BudgetRow {
  std::string kind;
  std::optional<uint64_t> initial, ceiling;  // settings
  uint64_t given = 0, used = 0;
};

struct BudgetInfo {
  BudgetSpec::Scope scope = BudgetSpec::Scope::kTenant;
  std::string name;
  uint32_t overcommit = 100, vdevices = 0;
  std::vector<BudgetRow> rows;
};

// Which peers the members of a fabric may have: its members on this host, or also those to which
// only a network leads. kWire: these, and the network leads to its members in other network
// namespaces of this host, too.
enum class Reach { kHost, kNetwork, kWire };

// "host", "network", "wire"
[[nodiscard]] inline std::string text_of(Reach reach) {
  switch (reach) {
    case Reach::kHost:
      return "host";
    case Reach::kNetwork:
      return "network";
    case Reach::kWire:
      return "wire";
  }
  return {};
}
[[nodiscard]] inline std::optional<Reach> reach_of(const std::string& text) {
  for (const Reach reach : {Reach::kHost, Reach::kNetwork, Reach::kWire})
    if (text == text_of(reach)) return reach;
  return std::nullopt;
}

// The settings of a fabric.
struct FabricSpec {
  std::string name;
  Reach reach = Reach::kHost;
  // While it reaches the network: which addresses and multicast groups there its members may send
  // to and hear from, beside its members on this host. Empty: all.
  std::vector<gid::Prefix> peers{};
  bool operator==(const FabricSpec&) const = default;
};

// "all", or the prefixes.
[[nodiscard]] inline std::string text_of(const std::vector<gid::Prefix>& peers) {
  std::string text;
  for (const auto& prefix : peers) text += (text.empty() ? "" : ", ") + prefix.text();
  return text.empty() ? "all" : text;
}

// What is absent stays as it is.
struct FabricChange {
  std::string name;
  std::optional<Reach> reach{};
  std::optional<std::vector<gid::Prefix>> peers{};
};

struct FabricInfo {
  FabricSpec spec;
  uint32_t vdevices = 0, gids = 0;  // of all its vdevices
};

// Use of a vdevice by the processes of a cgroup; kinds without use are omitted.
struct CgroupRow {
  std::string cgroup;
  VdevKey vdev;
  std::vector<QuotaRow> use;  // without limits
};

// The process that owns a vdevice. A pid alone may have been reused.
struct Owner {
  uint32_t pid = 0;         // in the daemon's pid namespace; 0: the vdevice has no owner
  uint64_t start_time = 0;  // field 22 of /proc/PID/stat; 0 in a new spec: the current one
  std::string boot_id;      // the boot of start_time; empty in a new spec: the current one
  bool operator==(const Owner&) const = default;
};

// A container to which a hook gave a vdevice (vrdmad/hooks), by its first process.
struct Container {
  std::string id;  // as its runtime calls it
  Owner init;
  bool operator==(const Container&) const = default;
};

struct VdevSpec {
  std::string name;                    // unique in its network namespace
  std::string netns;                   // network namespace: a name, absolute path, or "pid:N"
  std::string netdev;                  // interface name in that netns
  std::string parent = "soft";         // see list_parents()
  std::string tenant;                  // empty: a private one
  std::string fabric;                  // empty: the tenant's own
  std::vector<QuotaSetting> quota;     // other kinds get their defaults
  std::vector<std::string> allow;      // permissions, see provisioning/permission.h
  bool no_direct = false;              // a worker executes all of its requests
  std::vector<std::string> addresses;  // prefixes that its GIDs must be in; see CreateVdevRequest
  Owner owner;
  bool end_with_owner = false;  // delete the vdevice when the owner has ended
  // Those that have it. It is deleted when the last of them has ended. Operators name none.
  std::vector<Container> containers;
  std::map<std::string, std::string> labels;  // see vrdmad/control/same_spec.h
  std::string gid_layout;                     // "dense", "mlx5"; empty: dense. See gid/layout.h
  bool operator==(const VdevSpec&) const = default;
};

struct GidRow {
  uint32_t index = 0;
  std::string gid;   // canonical IPv6 text
  std::string type;  // "RoCE v2"
};

struct VdevInfo {
  uint64_t id = 0;  // never reused
  std::string name, parent, tenant, fabric;
  Reach reach = Reach::kHost;        // of its fabric
  std::vector<gid::Prefix> peers{};  // as FabricSpec
  std::string netns;                 // as given at creation
  uint64_t netns_cookie = 0;         // names the directory of the session socket
  std::string netdev;
  uint32_t ifindex = 0;
  std::string node_guid;    // "0211:22ff:fe33:4455"
  uint32_t parked = 0;      // sessions that are parked
  std::string port_state;   // "ACTIVE", "DOWN", "LOST" or "PENDING"
  std::string lost;         // why it is lost or pending; then the fields below are empty
  std::string unserved;     // why its programs get no worker; empty: they do, or none has asked
  uint32_t active_mtu = 0;  // bytes
  std::string socket;       // path of the session socket
  uint32_t sessions = 0;    // processes that have it open
  std::vector<GidRow> gids;
  std::vector<QuotaRow> quota;
  std::vector<std::string> allowed;
  bool limited = false;                // rate-limited, so all its traffic is mediated
  bool no_direct = false;              // all its traffic is mediated at the operator's request
  std::vector<std::string> addresses;  // prefixes in force; empty: no limit
  bool addresses_given = false;        // by its VdevSpec
  std::string gid_layout;              // as VdevSpec
  uint64_t addresses_ignored = 0;      // addresses without a GID since it was created or restored
  // Memory regions reached instead of put in place, by reason.
  std::vector<std::pair<std::string, uint64_t>> reached;
  Owner owner;
  bool owner_ended = false;
  bool end_with_owner = false;
  std::vector<Container> containers;
  std::map<std::string, std::string> labels;
};

struct ParentInfo {
  std::string name;  // "soft"
  std::string kind;  // "built in" or "ibdev"
  uint32_t vdevices = 0;
  std::string detail;
  std::string state;                  // "ACTIVE", "DOWN"
  std::optional<uint32_t> numa_node;  // none: it belongs to none, or to all
};

// What an operator offers to containers (api/classes.h).
struct ClassInfo {
  std::string name;
  std::string error;  // why no container gets a vdevice of it; empty: they do
  std::string parent, parent_state;
  std::optional<uint32_t> numa_node;  // of its parent
  uint32_t devices = 0;               // that the class offers
  uint32_t given = 0;                 // vdevices that containers have of it
  uint32_t free = 0;                  // how many more fit; UINT32_MAX: no ceiling bounds them
  std::vector<QuotaSetting> quota, max_quota;
  std::string reach;  // as api::Class::reach
};

// What containers of pods may have, as an orchestrator promised it: vrdma.v1.Claim, which says what
// is valid.
struct ClaimShare {
  std::string id, device_class;
  std::vector<QuotaSetting> quota;  // replaces that of the class for these kinds
  bool operator==(const ClaimShare&) const = default;
};

struct ClaimSpec {
  std::string uid, pod_namespace, name;
  std::vector<ClaimShare> shares;
  std::map<std::string, std::string> labels;  // of its vdevices
  bool operator==(const ClaimSpec&) const = default;
};

struct ClaimInfo {
  ClaimSpec claim;
  std::vector<uint32_t> vdevices;  // that containers have by each share
};

// One value. Its display name is `name`, and "_" and the value of `label` if there is one: "qps"
// with {"state", "rts"} is qps_rts.
struct CounterRow {
  std::string scope;  // "daemon", a vdevice's name, or "tenant/" and a tenant's name
  std::string name;
  uint64_t value = 0;
  std::pair<std::string, std::string> label = {};
  bool gauge = false;       // may fall
  std::string tenant = {};  // the vdevice's tenant
  uint64_t vdev_id = 0;     // the vdevice's id, because `scope` need not be unique
  std::string netns = {};   // the vdevice's network namespace, as given at creation
  // What does not change with time; of the row vdevice_info alone.
  std::vector<std::pair<std::string, std::string>> facts = {};
  // Nothing that the vdevice may do now changes it: Prometheus does not get it while it is 0.
  bool fixed = false;
};

// What a vdevice does; fields as in vrdma.v1.Activity.
struct ActivityRow {
  struct Work {
    uint64_t requests = 0, bytes = 0;
  };
  uint64_t vdev_id = 0;
  uint32_t sessions = 0, queue_pairs = 0;
  Work direct, worker;
  std::vector<std::pair<std::string, uint64_t>> refused;
  std::vector<QuotaRow> usage;
};

struct ActivityInfo {
  std::vector<ActivityRow> vdevs;
  uint64_t vdevs_revision = 0, last_event = 0;
};

// An rdma_cm connection, or a listener (state "LISTEN"); fields as in vrdma.v1.Connection.
struct ConnectionRow {
  VdevKey vdev;
  std::string tenant, fabric;
  std::string transport, state, service;
  bool active = false;
  uint64_t service_id = 0;
  std::string local, remote;
  uint16_t local_port = 0, remote_port = 0;
  uint32_t local_qpn = 0, remote_qpn = 0;
  uint32_t local_id = 0, remote_id = 0;
  uint64_t age_ms = 0;
  uint32_t waiting = 0, backlog = 0;
};

struct QueuePairRow {
  VdevKey vdev;
  uint32_t qpn = 0;
  int32_t pid = 0;                              // of its program, in the daemon's pid namespace
  std::string type, state, transport, because;  // as in v1::QueuePair
  std::string local, remote;                    // GIDs; empty: it is not connected
  uint32_t remote_qpn = 0;
  rdma::Sender::OnNetwork network;
  struct Work {
    uint64_t requests = 0, bytes = 0;
  };
  Work by_program, by_worker;
};

// A virtual machine that a program shows the vdevice to.
struct ExportRow {
  VdevKey vdev;
  int32_t pid = 0;  // of the program, in the daemon's pid namespace
  ipc::Export is;   // as the program says; the path is printable
};

// By what the kernel knows the descriptors that a session shares with its program: inodes, of
// sockets those of the write ends; of an eventfd its id (proc(5), fdinfo) plus 1.
struct SharedFileIds {
  uint64_t arena = 0, bells = 0, memory = 0, doorbell = 0, events = 0;
  std::map<uint32_t, uint64_t> channels;  // by handle
};

struct ParkedSession {
  uint32_t number = 0;
  VdevKey vdev;
  std::string socket;  // path of the vdevice's session socket
  SharedFileIds files;
  // The process that has the files, in the daemon's pid namespace. That of its program,
  // or while it is away its worker.
  int32_t pid = 0;
  bool away = false;
  // Of a detached session: all that the daemon knows of it (vrdmad/records/session_image.h), as
  // bytes of anybody; empty: it cannot be had.
  std::vector<uint8_t> image = {};
  std::vector<std::string> gids = {};  // of its vdevice, by index
  uint32_t known_as = 0;               // the number by which its program knows it; 0: `number`
};

// A process's use of rdma_cm in a network namespace.
struct ParkedConnections {
  std::string socket;              // path of the namespace's socket of rdma_cm
  std::vector<uint64_t> channels;  // inodes of the sockets of its event channels
  // Of a detached process: all that the daemon knows of it (vrdmad/records/cm_session_image.h), as
  // bytes of anybody; empty: it cannot be had.
  std::vector<uint8_t> image = {};
};

// A process whose sessions are parked.
struct ParkedProcess {
  int32_t pid = 0;
  std::string token;  // 32 hexadecimal digits; names it, and whoever knows it may attach a process
  std::vector<ParkedSession> sessions;
  std::vector<ParkedConnections> connections = {};
  // Sessions of other processes with which these may have direct links: a superset.
  std::vector<ParkedSession> peers = {};
};

// The process in which detached sessions go on: as ParkedProcess, and of each session the number
// and the files. Of its connections only the images.
using AttachedProcess = ParkedProcess;

struct WatchEvent {
  enum class Type { kAdded, kChanged, kRemoved };
  Type type = Type::kAdded;
  VdevInfo vdev;
  std::string reason;  // for the operator: "created", "address added", "netdev deleted", ...
};

// Occurrences of an event (vrdmad/control/event_log.h); fields as in vrdma.v1.Event.
struct EventRow {
  using Time = std::chrono::system_clock::time_point;
  uint64_t number = 0;
  Time first{}, last{};
  uint64_t count = 1;
  std::string type;
  VdevKey vdev;
  std::string tenant, who;
  int32_t pid = 0;
  std::string program, reason, share;
};

// Of a vdevice; other labels stay.
struct LabelChange {
  std::map<std::string, std::string> set;
  std::vector<std::string> removed;  // keys
};

class AdminBackend {
 public:
  virtual ~AdminBackend() = default;

  // `if_absent`: returns an existing vdevice of that name that was created with the same spec.
  // EEXIST with a sentence that names the difference if it was created with another one.
  virtual base::Result<VdevInfo> create_vdev(const VdevSpec& spec, bool if_absent) = 0;
  // Returns the key of the deleted vdevice.
  virtual base::Result<VdevKey> delete_vdev(const std::string& name) = 0;
  // `show_sysfs`: GetVdevRequest.show_sysfs.
  virtual base::Result<VdevInfo> get_vdev(const std::string& name, bool show_sysfs = false) = 0;
  virtual std::vector<VdevInfo> list_vdevs() = 0;
  // All or nothing: if one limit is below its use, none changes.
  virtual base::Result<VdevInfo> set_quota(const std::string& name,
                                           const std::vector<QuotaSetting>& quota) = 0;
  // All or nothing. EPERM: a label of a hook; see SetLabels in admin.proto.
  virtual base::Result<VdevInfo> set_labels(const std::string& name, const LabelChange& change) = 0;
  // All or nothing. EBUSY: less than was promised or is in use; ENODEV: no such parent.
  virtual base::Result<BudgetInfo> set_budget(const BudgetSpec& spec) = 0;
  // By name. A tenant or parent without vdevices and settings has none.
  virtual std::vector<BudgetInfo> list_budgets(BudgetSpec::Scope scope) = 0;
  // EADDRINUSE: two vdevices of a namespace would have the same address on the network.
  virtual base::Result<FabricInfo> set_fabric(const FabricChange& change) = 0;
  // By name. A fabric without vdevices and settings is not listed.
  virtual std::vector<FabricInfo> list_fabrics() = 0;
  // Of one vdevice, or of all if the name is empty.
  virtual base::Result<std::vector<CgroupRow>> list_cgroups(const std::string& vdev) = 0;
  // By vdevice, then by number.
  virtual base::Result<std::vector<QueuePairRow>> list_queue_pairs(const std::string& vdev) = 0;
  // By vdevice, then by session.
  virtual base::Result<std::vector<ExportRow>> list_exports(const std::string& vdev) = 0;
  virtual std::vector<ParentInfo> list_parents() = 0;
  // By name. The error of the file as a whole.
  virtual base::Result<std::vector<ClassInfo>> list_classes() = 0;
  // Has it on disk; success if it is there already. EBUSY: containers have vdevices by another
  // claim of that uid. ENOSPC: there are too many claims.
  virtual base::Result<ClaimInfo> put_claim(const ClaimSpec& claim) = 0;
  // EBUSY: containers have vdevices by it; `force`: these are deleted first. Success if there is no
  // such claim.
  virtual base::Result<void> delete_claim(const std::string& uid, bool force) = 0;
  // By uid, and in each by the id of its shares.
  virtual std::vector<ClaimInfo> list_claims() = 0;
  // Of "daemon", "tenant/NAME" or one vdevice, or of all if `scope` is empty.
  virtual base::Result<std::vector<CounterRow>> counters(const std::string& scope) = 0;
  // By the vdevices' ids.
  virtual ActivityInfo activity() = 0;
  // Of one vdevice, or of all if the name is empty.
  virtual base::Result<std::vector<ConnectionRow>> list_connections(const std::string& vdev) = 0;

  // Parks all sessions of a process: nothing of them is executed until they are resumed. ENOENT: it
  // has none. EBUSY: it has something that cannot be parked. ETIMEDOUT: it does not come to rest.
  // All or nothing.
  virtual base::Result<ParkedProcess> park_process(int32_t pid) = 0;
  // One that is parked, with its peers as they are now. `process`: the token, or the number of the
  // process, also below.
  virtual base::Result<ParkedProcess> parked_process(const std::string& process) = 0;
  // The process may end, or lose its descriptors, without an end of its sessions.
  virtual base::Result<void> detach_process(const std::string& process) = 0;
  // A process that comes from elsewhere, by its number and the images of its sessions: with the
  // vdevices of its network namespace on which they can go on. ENOENT: there is none. EEXIST: it
  // was restored before.
  virtual base::Result<ParkedProcess> place_process(const AttachedProcess& process) = 0;
  // The process, which is connected to the session sockets again, goes on with the sessions. Once.
  // They are made of their images if the token is not known.
  virtual base::Result<void> attach_process(const AttachedProcess& process) = 0;
  // A process that is parked and not detached goes on.
  virtual base::Result<void> resume_process(const std::string& process) = 0;
  // The sessions end, and peers learn of it as if the process had been killed.
  virtual base::Result<void> abandon_process(const std::string& process) = 0;

  // Calls `callback` on the control thread, where it must not block: first with kAdded for each
  // existing vdevice, then for each change, until the returned token is destroyed. When the token's
  // destructor has returned, the callback is not running and never runs again.
  using WatchCallback = std::function<void(const WatchEvent&)>;
  [[nodiscard]] virtual std::shared_ptr<void> watch(WatchCallback callback) = 0;

  // Those that occurred then or later, by their last times; of these the `most` newest.
  virtual std::vector<EventRow> list_events(EventRow::Time since, size_t most = SIZE_MAX) = 0;
  // As watch(): these first, then what EventLog::watch() tells.
  using EventCallback = std::function<void(const EventRow&)>;
  [[nodiscard]] virtual std::shared_ptr<void> watch_events(EventRow::Time since,
                                                           EventCallback callback) = 0;
};

}  // namespace vrdma::vrdmad
