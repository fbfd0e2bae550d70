// One process's use of rdma_cm: the daemon's end of a connection to the rdma_cm socket.
//
// Holds the process's event channels and ids. Events wait here when a channel's socket is full.
// Belongs to the control thread.
//
// It ends with the connection, unless that ends with the daemon: what a request or an event changes
// is in the session's file before the program learns of it, and the next daemon goes on with that
// until the program has connected again, or died. (Not if the program speaks an older version of
// the protocol.)
#pragma once

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/base/event_loop.h"
#include "core/ipc/cm_messages.h"
#include "provisioning/request_rate.h"
#include "qp1mux/cm_id.h"
#include "vrdmad/broker/conversation.h"
#include "vrdmad/broker/identity.h"
#include "vrdmad/cm/events.h"
#include "vrdmad/records/cm_session_file.h"

namespace vrdma::vrdmad {

class Cm;
class CmDevice;
struct CmNamespace;
struct CmUser;

class CmSession final : private provisioning::RequestRate::Reader {
 public:
  static constexpr uint32_t kMaxBacklog = 1024;

  // `ended` is called once; the session may be destroyed afterwards, not from inside.
  [[nodiscard]] static base::Result<std::unique_ptr<CmSession>> start(
      Cm& cm, std::shared_ptr<CmNamespace> space, Arrival arrival,
      std::function<void(CmSession*)> ended);
  // The session of a dead daemon, whose process lives: one without a connection, until its program
  // has one (kResume).
  [[nodiscard]] static base::Result<std::unique_ptr<CmSession>> adopt(
      Cm& cm, CmSessionFile file, std::function<void(CmSession*)> ended);
  ~CmSession() override;
  CmSession(const CmSession&) = delete;
  CmSession& operator=(const CmSession&) = delete;

  [[nodiscard]] uint64_t netns() const;
  [[nodiscard]] bool has_secret(const uint8_t* secret) const;
  // Events that wait here for the program to read others.
  [[nodiscard]] uint32_t unread() const { return events_.size(); }
  // Of these, the events about ids that are bound to the vdevice.
  [[nodiscard]] size_t unread_of(const CmDevice& device) const;
  // Not from inside an event of its ids.
  void end();
  // For another daemon: to be destroyed then, without an end of what it has.
  void leave() {
    if (!over_) file_.leave();
  }
  // Of a process that does not go on with it, if it is of that process.
  [[nodiscard]] bool is_left_by(const rdma::Peer& process) const;
  void device_added(qp1mux::Endpoint& endpoint);
  void device_removed(const qp1mux::Endpoint& endpoint);

 private:
  struct Channel {
    base::Fd socket;  // none: it was a dead daemon's, and the program has not asked for another
    base::EventLoop::Watch watch;
    bool full = false;  // its events wait for room
  };
  // A connection request is unheard until its event has gone to the program: as with sockets, a
  // listener has at most its backlog of them.
  struct Id : qp1mux::CmIdHandler {
    Id(CmSession& its, uint32_t its_handle, uint32_t its_channel)
        : session(its), handle(its_handle), channel(its_channel) {}
    void on_event(qp1mux::CmId& id, qp1mux::CmEvent& event) override;
    CmSession& session;
    uint32_t handle;
    uint32_t channel;
    std::unique_ptr<qp1mux::CmId> cm;
    uint32_t backlog = 0, unheard = 0;
  };

  using Talk = Conversation<ipc::CmRequest, ipc::CmReply>;

  CmSession(Cm& cm, std::shared_ptr<CmNamespace> space, const CmSessionFile::Who& who,
            base::Fd socket, std::shared_ptr<Caller> caller, std::function<void(CmSession*)> ended);

  void on_socket();
  void admitted() override;
  void set_counted(bool counted);
  void serve(const ipc::CmRequest& request, ipc::CmReply* reply, base::Fd* beside);
  void answer(ipc::CmReply* reply, const base::Fd& beside);
  void end_badly();  // because of what it sent
  [[nodiscard]] int identify();
  [[nodiscard]] std::string name() const { return "rdma_cm in netns " + std::to_string(netns()); }
  [[nodiscard]] int dispatch(const ipc::CmRequest& request, ipc::CmReply* reply, base::Fd* beside);
  [[nodiscard]] int command(const ipc::CmRequest& request, Id& id, ipc::CmReply* reply);
  int take(const ipc::CmRequest& request, ipc::CmReply* reply);
  [[nodiscard]] uint32_t take_from(CmSession& other, uint32_t handle, uint32_t channel);
  int create_id(const ipc::CmRequest& request, ipc::CmReply* reply);
  int set_option(const ipc::CmRequest& request, qp1mux::CmId& cm);
  [[nodiscard]] uint32_t new_handle();
  // null, and counted: there are too many. `handle`: 0, or one that is free.
  [[nodiscard]] Id* add_id(uint32_t channel, uint32_t handle = 0);
  void remove_id(uint32_t handle);
  void destroy_id(uint32_t handle);
  void forget_request(uint32_t handle);

  // cm_session_events.cc
  int create_channel(const ipc::CmRequest& request, ipc::CmReply* reply, base::Fd* beside);
  int open_channel(uint32_t handle, ipc::CmReply* reply, base::Fd* beside);
  int nudge(uint32_t channel);
  int migrate(Id& id, uint32_t channel);
  void remove_channel(uint32_t handle);
  void tell(Id& id, qp1mux::CmEvent& event);
  void push(uint32_t channel, ipc::CmEventMessage message);
  // The event has left its queue.
  void heard(const CmEvents::Unread& event);
  // Charges the event to the vdevice of its id; without one, to the namespace.
  [[nodiscard]] CmEvents::Unread charged(const ipc::CmEventMessage& message);
  void watch_channel(uint32_t handle, Channel& channel, uint32_t events);
  void flush(uint32_t handle);
  // What was changed takes effect, and then the program is told of it.
  void settle();

  // cm_session_adopt.cc
  void begin_file();
  void keep(const Id& id);
  void take_over();
  int resume(const ipc::CmRequest& request);
  void go_on_at(Talk* fresh);

  [[nodiscard]] static ipc::CmAttributes attributes(const qp1mux::CmId& cm,
                                                    const ipc::CmWhere& where);
  [[nodiscard]] ipc::CmWhere where(const qp1mux::CmId& cm) const;
  [[nodiscard]] static ipc::CmAddress address_of(const qp1mux::Address& from);
  [[nodiscard]] qp1mux::Address address(const ipc::CmAddress& from) const;

  Cm& cm_;
  const std::shared_ptr<CmNamespace> space_;
  const std::shared_ptr<CmUser> user_;
  const std::function<void(CmSession*)> ended_;
  Talk talk_;
  CmSessionFile file_;
  CmSessionFile::Who who_{};
  base::EventLoop::Watch death_watch_;  // without a connection
  base::Fd pidfd_;                      // likewise
  ipc::CmReply last_;                   // of the dead daemon
  bool over_ = false;
  CmSession* taken_from_ = nullptr;  // an id, by the request that is being served
  bool counted_ = false;             // among the connections of the namespace and its user
  bool serving_ = false;             // a request, with whose answer what it changes takes effect
  std::vector<uint32_t> touched_;    // channels with something to tell, then
  CmEvents events_;
  std::map<uint32_t, Channel> channels_;
  std::map<uint32_t, std::unique_ptr<Id>> ids_;
};

}  // namespace vrdma::vrdmad
