// The objects behind the program's rdma_cm_id, rdma_event_channel and rdma_cm_event.
//
// Each begins with the structure that the program sees. objects_mutex() guards their tables and the
// counts of events. A fork(3) waits for it, so its holder opens no vdevice and asks no daemon. As
// in rdma_cm(7), the program must serialize all other use of an object.
#pragma once

#include <rdma/rdma_cma.h>

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <vector>

#include "client/rdmacm/link.h"

namespace vrdma::client {

// State of a channel that outlives it: a thread that waits for an event keeps it when the program
// destroys the channel, and goes on waiting, as in the kernel. rping relies on that.
//
// When the daemon dies, its socket ends after the last event in it. The next thread that reads
// replaces it with the next daemon's socket. While no daemon is up, a timer wakes pollers so that
// they read.
struct EventSource {
  ~EventSource();
  std::shared_ptr<CmLink> link;
  base::Fd ready;   // channel->fd: an epoll descriptor over the others
  base::Fd socket;  // replaced in place by dup3(2)
  base::Fd timer;   // valid while there is no daemon; guarded by renewal
  std::mutex renewal;
  uint32_t handle = 0;  // the daemon's handle of the channel
  // Under objects_mutex(). Events that were read from a socket already; they precede those still in
  // this socket. See migrate.cc.
  std::deque<ipc::CmEventMessage> kept;
  bool nudged = false;  // a nudge is in the socket or under way
};

struct Channel {
  rdma_event_channel base{};
  std::shared_ptr<EventSource> source;
  static Channel* of(rdma_event_channel* channel) { return reinterpret_cast<Channel*>(channel); }
};

// A vdevice that an id uses or used. It stays open. Its default protection domain lives while ids
// are bound to it.
struct CmDevice {
  uint64_t guid = 0;  // big-endian
  pid_t owner = 0;    // the process that opened it; a forked child cannot use it
  ibv_context* verbs = nullptr;
  ibv_pd* pd = nullptr;
  ibv_xrcd* xrcd = nullptr;
  uint32_t ids = 0;
  uint8_t max_responder_resources = 0;
  uint8_t max_initiator_depth = 0;
};

// A multicast group that an id has joined or is joining.
struct Group {
  uint32_t token = 0;  // unique in the id
  ipc::CmAddress address{};
  bool receives = true;
  bool attached = false;
  void* context = nullptr;
};

struct Id {
  rdma_cm_id base{};
  std::shared_ptr<CmLink> link;
  uint32_t handle = 0;
  bool sync = false;  // the id has a private channel; its calls wait for their event
  CmDevice* device = nullptr;
  ipc::CmWhere where{};
  // In these states the daemon cannot refuse some requests, so calls do not wait for the reply.
  bool resolved = false;      // the address is resolved, the route is not
  bool established = false;   // stays true after a disconnect
  ipc::CmAttributes known{};  // of its queue pair, from an event; cleared if an option is set
  uint8_t initiator_depth = 0;
  uint8_t responder_resources = 0;
  uint32_t reported = 0, acknowledged = 0;  // numbers of events
  uint32_t last_event = 0;  // sequence number of the last event; under objects_mutex()
  ibv_sa_path_rec path{};
  std::unique_ptr<ibv_qp_init_attr> wanted;  // from rdma_create_ep, for the ids of its requests
  std::vector<uint8_t> connect_data;         // from rdma_create_ep
  std::vector<Group> groups;                 // under objects_mutex()
  uint32_t joins = 0;                        // number of joins so far; under objects_mutex()
  bool resolving_info = false;               // rdma_resolve_addrinfo, not yet queried; likewise
  std::unique_ptr<rdma_addrinfo, decltype(&::rdma_freeaddrinfo)> info{
      nullptr, &::rdma_freeaddrinfo};  // the result of it; likewise
  static Id* of(rdma_cm_id* id) { return reinterpret_cast<Id*>(id); }
  [[nodiscard]] bool is_datagram() const { return base.qp_type == IBV_QPT_UD; }
};

struct CmEvent {
  rdma_cm_event base{};
  Id* counted = nullptr;  // the id whose `reported` counts this event
  uint8_t data[ipc::kCmPrivateData]{};
};

[[nodiscard]] std::mutex& objects_mutex();
[[nodiscard]] std::condition_variable& acknowledgement();

// Sets errno and returns -1, or returns 0.
inline int answer(int error) {
  if (error == 0) return 0;
  errno = error;
  return -1;
}

// devices.cc. Held while a device is opened, or its domains are made or end; precedes
// objects_mutex(). Free in a forked child.
[[nodiscard]] std::shared_mutex& opening();
// The vdevice with this GUID; opens it if necessary. nullptr and errno. Waits for a
// daemon as CmLink::call() does.
[[nodiscard]] CmDevice* use_device(CmLink& link, uint64_t guid);
// Stores `where` in the id: its addresses, and its device if it has one. 0 or an errno.
int settle(Id* id, const ipc::CmWhere& where);
void leave_device(Id* id);
// False: the address is neither IPv4 nor IPv6.
[[nodiscard]] bool to_address(const sockaddr* from, ipc::CmAddress* to);

// ids.cc
[[nodiscard]] Id* make_id(std::shared_ptr<CmLink> link, uint32_t handle,
                          rdma_event_channel* channel, void* context, rdma_port_space space,
                          ibv_qp_type type);
int create_id(rdma_event_channel* channel, rdma_cm_id** id, void* context, rdma_port_space space,
              ibv_qp_type type);
void free_id(Id* id);
// `succeeds`: the daemon cannot refuse the call, so it does not wait for the reply.
int simple_call(Id* id, ipc::CmCall call, bool succeeds = false);

// migrate.cc
// Makes a channel readable that has kept events. The caller holds no lock.
void nudge(EventSource& source);
// Removes the unread events of an id that the daemon has destroyed. The ids of connection requests
// among them, which the program has never seen, are destroyed too.
void drop_events(EventSource& source, uint32_t id);
int migrate(Id* id, rdma_event_channel* channel);

// events.cc
// Under objects_mutex(): the next message, without waiting. Result as of recv(2); 0: the daemon
// ended.
ssize_t receive(EventSource& source, ipc::CmEventMessage* message);
[[nodiscard]] rdma_event_channel* create_channel();
void destroy_channel(rdma_event_channel* channel);
int next_event(rdma_event_channel* channel, rdma_cm_event** event);
void acknowledge(rdma_cm_event* event);
// For an id with a private channel: waits for the event of the last call.
int complete(Id* id);

// multicast.cc
void on_joined(Id* id, const ipc::CmEventMessage& message, CmEvent* event);

// queue_pair.cc
int queue_pair_attributes(Id* id, ibv_qp_attr* attr, int* mask);
// To INIT, RTR and RTS. RDMA_MAX_RESP_RES, RDMA_MAX_INIT_DEPTH: the negotiated limits of reads and
// atomics.
int connect_queue_pair(Id* id, uint8_t responder_resources, uint8_t initiator_depth);
int fail_queue_pair(Id* id);

}  // namespace vrdma::client
