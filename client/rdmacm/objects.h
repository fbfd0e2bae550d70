// What stands behind the program's rdma_cm_id, rdma_event_channel and rdma_cm_event.
//
// Each begins with the structure that the program sees. objects_mutex() guards the tables of them
// and the counts of events; all else of an object belongs to the threads that use it, as
// rdma_cm(7) has it.
#pragma once

#include <rdma/rdma_cma.h>

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "client/rdmacm/link.h"

namespace vrdma::client {

// What a thread that waits for events keeps when the program destroys the channel meanwhile: it
// goes on waiting, as in the kernel. rping ends so.
//
// When the daemon dies its socket ends, after what was in it. The next daemon's then takes its
// place, as soon as somebody reads; who polls meanwhile is woken now and then to do so.
struct EventSource {
  ~EventSource();
  std::shared_ptr<CmLink> link;
  base::Fd ready;   // channel->fd: an epoll descriptor over the others
  base::Fd socket;  // keeps its number
  base::Fd timer;   // valid while there is no daemon; under renewal
  std::mutex renewal;
  uint32_t handle = 0;  // the daemon's
  // Under objects_mutex(). Events that were taken from a socket already and come before what is in
  // this one; see migrate.cc.
  std::deque<ipc::CmEventMessage> kept;
  bool nudged = false;  // a nudge is in the socket, or on its way
};

struct Channel {
  rdma_event_channel base{};
  std::shared_ptr<EventSource> source;
  static Channel* of(rdma_event_channel* channel) { return reinterpret_cast<Channel*>(channel); }
};

// A vdevice in use: open from then on. Its default protection domain lives as long as ids are
// bound to it.
struct CmDevice {
  uint64_t guid = 0;  // big-endian
  pid_t owner = 0;    // a child has inherited it, but cannot use it
  ibv_context* verbs = nullptr;
  ibv_pd* pd = nullptr;
  ibv_xrcd* xrcd = nullptr;
  uint32_t ids = 0;
  uint8_t max_responder_resources = 0;
  uint8_t max_initiator_depth = 0;
};

// A multicast group that an id has joined, or is joining.
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
  bool sync = false;  // it has a channel of its own, and calls wait for their event
  CmDevice* device = nullptr;
  ipc::CmWhere where{};
  // What the daemon does not refuse in this state need not be waited for.
  bool resolved = false;      // the address, not yet the route
  bool established = false;   // also if it is over since
  ipc::CmAttributes known{};  // of its queue pair, from an event, if no option was set since
  uint8_t initiator_depth = 0;
  uint8_t responder_resources = 0;
  uint32_t reported = 0, acknowledged = 0;  // events
  uint32_t last_event = 0;                  // its sequence; under objects_mutex()
  ibv_sa_path_rec path{};
  std::unique_ptr<ibv_qp_init_attr> wanted;  // by rdma_create_ep, for the ids of its requests
  std::vector<uint8_t> connect_data;         // of rdma_create_ep
  std::vector<Group> groups;                 // under objects_mutex()
  uint32_t joins = 0;                        // likewise; so far
  bool resolving_info = false;               // likewise; rdma_resolve_addrinfo, not yet queried
  std::unique_ptr<rdma_addrinfo, decltype(&::rdma_freeaddrinfo)> info{
      nullptr, &::rdma_freeaddrinfo};  // likewise; what it found
  static Id* of(rdma_cm_id* id) { return reinterpret_cast<Id*>(id); }
  [[nodiscard]] bool is_datagram() const { return base.qp_type == IBV_QPT_UD; }
};

struct CmEvent {
  rdma_cm_event base{};
  Id* counted = nullptr;  // whose event it is
  uint8_t data[ipc::kCmPrivateData]{};
};

[[nodiscard]] std::mutex& objects_mutex();
[[nodiscard]] std::condition_variable& acknowledgement();

// -1 and errno, or 0.
inline int answer(int error) {
  if (error == 0) return 0;
  errno = error;
  return -1;
}

// devices.cc. The vdevice of that GUID, opened if it was not; nullptr and errno. A daemon that dies
// meanwhile is waited for as in CmLink::call().
[[nodiscard]] CmDevice* use_device(CmLink& link, uint64_t guid);
// Makes `where` the id's: addresses, and its device if it has one by now. 0 or an errno.
int settle(Id* id, const ipc::CmWhere& where);
void leave_device(Id* id);
// Of IPv4 or IPv6; false: of another family.
[[nodiscard]] bool to_address(const sockaddr* from, ipc::CmAddress* to);

// ids.cc
[[nodiscard]] Id* make_id(std::shared_ptr<CmLink> link, uint32_t handle,
                          rdma_event_channel* channel, void* context, rdma_port_space space,
                          ibv_qp_type type);
int create_id(rdma_event_channel* channel, rdma_cm_id** id, void* context, rdma_port_space space,
              ibv_qp_type type);
void free_id(Id* id);
// `succeeds`: it cannot be refused, so it is not waited for.
int simple_call(Id* id, ipc::CmCall call, bool succeeds = false);

// migrate.cc
// To be called, without a lock, when the source may have events that are kept.
void nudge(EventSource& source);
int migrate(Id* id, rdma_event_channel* channel);

// events.cc
// Under objects_mutex(): the next message, without waiting. As recv(2); 0: the daemon has gone.
ssize_t receive(EventSource& source, ipc::CmEventMessage* message);
[[nodiscard]] rdma_event_channel* create_channel();
void destroy_channel(rdma_event_channel* channel);
int next_event(rdma_event_channel* channel, rdma_cm_event** event);
void acknowledge(rdma_cm_event* event);
// Of an id with a channel of its own: waits for the event of the call that was just made.
int complete(Id* id);

// multicast.cc
void on_joined(Id* id, const ipc::CmEventMessage& message, CmEvent* event);

// queue_pair.cc
int queue_pair_attributes(Id* id, ibv_qp_attr* attr, int* mask);
// INIT, RTR and RTS. Limits of reads and atomics: RDMA_MAX_RESP_RES as negotiated.
int connect_queue_pair(Id* id, uint8_t responder_resources, uint8_t initiator_depth);
int fail_queue_pair(Id* id);

}  // namespace vrdma::client
