// One process's use of rdma_cm: the daemon's end of a connection to the rdma_cm socket.
//
// Owns the process's event channels and ids. Events wait here while a channel's socket is full.
// Belongs to the control thread.
//
// The session ends with its connection, except when the daemon ends. Each change by a request or an
// event is written to the session's file before the program learns of it, and the next daemon
// continues from there until the program has reconnected or ended. (Not if the program uses an
// older version of the protocol.) A program that was written to disk continues in the same way, at
// the same daemon (park.cc).
#pragma once

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "core/base/event_loop.h"
#include "core/ipc/cm_messages.h"
#include "provisioning/request_rate.h"
#include "qp1mux/cm_id.h"
#include "vrdmad/broker/broker.h"
#include "vrdmad/broker/conversation.h"
#include "vrdmad/cm/events.h"
#include "vrdmad/records/cm_session_file.h"
#include "vrdmad/records/cm_session_image.h"

namespace vrdma::vrdmad {

class Cm;
class CmDevice;
struct CmNamespace;
struct CmUser;

class CmSession final : private provisioning::RequestRate::Reader {
 public:
  static constexpr uint32_t kMaxBacklog = CmSessionImage::kMostBacklog;

  // Calls `ended` once; the session may be destroyed after, but not inside the call.
  [[nodiscard]] static base::Result<std::unique_ptr<CmSession>> start(
      Cm& cm, std::shared_ptr<CmNamespace> space, Arrival arrival,
      std::function<void(CmSession*)> ended);
  // Adopts a previous daemon's session whose process lives. It has no connection until the client
  // reconnects (kResume). Errors: of Broker::find(); the caller then keeps `file`.
  [[nodiscard]] static base::Result<std::unique_ptr<CmSession>> adopt(
      Cm& cm, CmSessionFile&& file, std::function<void(CmSession*)> ended);
  // Of an image, in a process that has connected, which `pidfd` names: as adopt().
  [[nodiscard]] static base::Result<std::unique_ptr<CmSession>> import(
      Cm& cm, CmSessionFile&& file, base::Fd pidfd, std::function<void(CmSession*)> ended);
  ~CmSession() override;
  CmSession(const CmSession&) = delete;
  CmSession& operator=(const CmSession&) = delete;

  [[nodiscard]] uint64_t netns() const;
  // nullptr: it is not needed, or waits for a reconnection.
  [[nodiscard]] const std::shared_ptr<Caller>& caller() const { return talk_.caller(); }
  [[nodiscard]] bool has_secret(const uint8_t* secret) const;
  // Number of queued events.
  [[nodiscard]] uint32_t unread() const { return events_.size(); }
  // Of these, the events of ids bound to the vdevice.
  [[nodiscard]] size_t unread_of(const CmDevice& device) const;
  // Not from inside an event of its ids.
  void end();
  // After its end: ends some of its channels and ids, as many as other programs can wait for. True:
  // there are no more.
  [[nodiscard]] bool end_some();
  // Leaves the session to the next daemon, without a message to its peers; destroy it afterwards.
  void leave();
  // Whether it is an adopted session of `process` that waits for a reconnection.
  [[nodiscard]] bool is_left_by(const rdma::Peer& process) const;
  void device_added(qp1mux::Endpoint& endpoint);
  void device_removed(const qp1mux::Endpoint& endpoint);

  // park.cc: while its program is written to disk.
  [[nodiscard]] bool is_of(pid_t pid) const { return !over_ && who_.process.pid == pid; }
  [[nodiscard]] bool is_parked_as(const std::string& token) const {
    return !over_ && parked_ != Parked::kNot && token_ == token;
  }
  // It may go on elsewhere: its connections send nothing unasked (qp1mux::Connection::hold()), and
  // end without a word to peers on other hosts.
  [[nodiscard]] bool is_detached() const { return !over_ && parked_ == Parked::kDetached; }
  // ENOTSUP: it has no file. EALREADY: it is parked.
  [[nodiscard]] base::Result<void> park(const std::string& token);
  // The inodes of the program's ends of the sockets of its channels; without those that an earlier
  // vrdmad did not note.
  [[nodiscard]] std::vector<uint64_t> sockets() const;
  void detach();
  void go_on_parked();  // not if it is detached
  // The process that connected, if the connection has asked for nothing; else nullptr.
  [[nodiscard]] std::shared_ptr<Caller> newcomer(pid_t pid) const;
  // A detached session waits until the process reconnects, as one that was adopted.
  void attach(const rdma::Peer& process, base::Fd pidfd);

  // images.cc. Its file must be active, or it has no channels.
  [[nodiscard]] base::Result<CmSessionImage> image();
  [[nodiscard]] bool has_ids_of(const qp1mux::Endpoint& endpoint) const;
  // The ids of its connections.
  [[nodiscard]] std::set<uint32_t> local_ids() const;
  // Whether it has each id of the image, and none is kGone but those that were.
  [[nodiscard]] bool has_all_of(const CmSessionImage& image) const;
  // Ends at once, without a message: it goes on elsewhere.
  void leave_quietly();
  // In the connections of the namespace and its user.
  void set_counted(bool counted);
  [[nodiscard]] const std::string& token() const { return token_; }

 private:
  enum class Parked : uint8_t { kNot, kParked, kDetached };
  struct Channel {
    base::Fd socket;       // invalid: adopted, and the program has not reopened it yet
    uint64_t its_end = 0;  // inode of the program's end of the socket; 0: unknown
    base::EventLoop::Watch watch;
    bool full = false;  // events wait for space in the socket
  };
  // A connection request is unheard until its event was sent to the program. A listener has at most
  // its backlog of them, as with sockets.
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
  // The GUID by which the program knows the vdevice with this one, from now on.
  [[nodiscard]] uint64_t known_as(uint64_t node_guid);
  void serve(const ipc::CmRequest& request, ipc::CmReply* reply, base::Fd* beside);
  void answer(ipc::CmReply* reply, const base::Fd& beside);
  void end_badly();  // for a violation of the protocol
  [[nodiscard]] int identify();
  [[nodiscard]] std::string name() const { return "rdma_cm in netns " + std::to_string(netns()); }
  [[nodiscard]] int dispatch(const ipc::CmRequest& request, ipc::CmReply* reply, base::Fd* beside);
  [[nodiscard]] int command(const ipc::CmRequest& request, Id& id, ipc::CmReply* reply);
  int take(const ipc::CmRequest& request, ipc::CmReply* reply);
  [[nodiscard]] uint32_t take_from(CmSession& other, uint32_t handle, uint32_t channel);
  int create_id(const ipc::CmRequest& request, ipc::CmReply* reply);
  int set_option(const ipc::CmRequest& request, qp1mux::CmId& cm);
  [[nodiscard]] uint32_t new_handle();
  // nullptr, and counted: there are too many. `handle`: 0, or one that is free.
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
  // Releases an event that has left its queue.
  void heard(const CmEvents::Unread& event);
  // Charges the event to the vdevice of its id, or without one to the namespace.
  [[nodiscard]] CmEvents::Unread charged(const ipc::CmEventMessage& message);
  void watch_channel(uint32_t handle, Channel& channel, uint32_t events);
  void flush(uint32_t handle);
  // Commits the changes, then sends the program its events.
  void settle();

  // cm_session_adopt.cc
  void begin_file();
  void keep(const Id& id);
  void take_over();
  int resume(const ipc::CmRequest& request);
  void go_on_at(Talk* fresh);
  [[nodiscard]] base::Result<void> await_process(base::Fd pidfd);

  // park.cc
  void watch_end();

  [[nodiscard]] static ipc::CmAttributes attributes(const qp1mux::CmId& cm,
                                                    const ipc::CmWhere& where);
  [[nodiscard]] ipc::CmWhere where(const qp1mux::CmId& cm);
  [[nodiscard]] static ipc::CmAddress address_of(const qp1mux::Address& from);
  [[nodiscard]] qp1mux::Address address(const ipc::CmAddress& from) const;

  Cm& cm_;
  const std::shared_ptr<CmNamespace> space_;
  const std::shared_ptr<CmUser> user_;
  const std::function<void(CmSession*)> ended_;
  Talk talk_;
  CmSessionFile file_;
  CmSessionFile::Who who_{};
  base::EventLoop::Watch death_watch_;  // while there is no connection
  base::Fd pidfd_;                      // while there is no connection
  base::TimePoint arrives_again_{};     // may tell CmNetwork again of its process
  ipc::CmReply last_;                   // the previous daemon's last reply
  bool over_ = false;
  Parked parked_ = Parked::kNot;
  std::string token_;                    // of its parked process
  base::EventLoop::Watch parked_watch_;  // of the connection's end, while parked
  CmSession* taken_from_ = nullptr;      // the owner of an id that the current request takes
  bool counted_ = false;                 // see set_counted()
  bool serving_ = false;                 // a request, whose reply commits its changes
  std::vector<uint32_t> touched_;        // channels with new events
  CmEvents events_;
  std::map<uint32_t, Channel> channels_;
  std::map<uint32_t, std::unique_ptr<Id>> ids_;
  std::map<uint64_t, uint64_t> known_as_;  // see known_as()
};

}  // namespace vrdma::vrdmad
