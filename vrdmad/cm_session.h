// One process's use of rdma_cm: the daemon's end of a connection to the rdma_cm socket.
//
// Holds the process's event channels and ids; all of them end with the connection. Events wait here
// when a channel's socket is full. Belongs to the control thread.
#pragma once

#include <array>
#include <deque>
#include <functional>
#include <map>
#include <memory>

#include "core/base/event_loop.h"
#include "core/ipc/cm_messages.h"
#include "qp1mux/cm_id.h"

namespace vrdma::vrdmad {

class Cm;
struct CmNamespace;

class CmSession {
 public:
  static constexpr uint32_t kMaxBacklog = 1024;

  // `ended` is called once; the session may be destroyed afterwards, not from inside.
  [[nodiscard]] static base::Result<std::unique_ptr<CmSession>> start(
      Cm& cm, std::shared_ptr<CmNamespace> space, base::Fd socket,
      std::function<void(CmSession*)> ended);
  ~CmSession();
  CmSession(const CmSession&) = delete;
  CmSession& operator=(const CmSession&) = delete;

  [[nodiscard]] uint64_t netns() const;
  [[nodiscard]] bool has_secret(const uint8_t* secret) const;
  // Events that wait here for the program to read others.
  [[nodiscard]] uint32_t unread() const { return unread_; }
  // Not from inside an event of its ids.
  void end();
  void device_added(qp1mux::Endpoint& endpoint);
  void device_removed(const qp1mux::Endpoint& endpoint);

 private:
  struct Channel {
    base::Fd socket;
    base::EventLoop::Watch watch;
    bool full = false;  // the queue waits for room
    std::deque<ipc::CmEventMessage> queue;
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

  CmSession(Cm& cm, std::shared_ptr<CmNamespace> space, base::Fd socket,
            std::function<void(CmSession*)> ended);

  void on_socket();
  void end_badly();  // because of what it sent
  [[nodiscard]] int dispatch(const ipc::CmRequest& request, ipc::CmReply* reply, base::Fd* beside);
  [[nodiscard]] int command(const ipc::CmRequest& request, Id& id, ipc::CmReply* reply);
  int create_channel(ipc::CmReply* reply, base::Fd* beside);
  int nudge(uint32_t channel);
  int migrate(Id& id, uint32_t channel);
  int take(const ipc::CmRequest& request, ipc::CmReply* reply);
  [[nodiscard]] uint32_t take_from(CmSession& other, uint32_t handle, uint32_t channel);
  void push(Channel& channel, const ipc::CmEventMessage& message);
  int create_id(const ipc::CmRequest& request, ipc::CmReply* reply);
  int set_option(const ipc::CmRequest& request, qp1mux::CmId& cm);
  [[nodiscard]] uint32_t new_handle();
  // null, and counted: there are too many. `handle`: 0, or one that is free.
  [[nodiscard]] Id* add_id(uint32_t channel, uint32_t handle = 0);
  void remove_id(uint32_t handle);
  void destroy_id(uint32_t handle);
  void remove_channel(uint32_t handle);
  void heard(const ipc::CmEventMessage& message);
  void tell(Id& id, qp1mux::CmEvent& event);
  void watch_channel(uint32_t handle, Channel& channel, uint32_t events);
  void flush(uint32_t handle);
  [[nodiscard]] static ipc::CmAttributes attributes(const qp1mux::CmId& cm,
                                                    const ipc::CmWhere& where);
  [[nodiscard]] ipc::CmWhere where(const qp1mux::CmId& cm) const;
  [[nodiscard]] qp1mux::Address address(const ipc::CmAddress& from) const;

  Cm& cm_;
  const std::shared_ptr<CmNamespace> space_;
  base::Fd socket_;
  std::function<void(CmSession*)> ended_;
  base::EventLoop::Watch watch_;
  std::array<uint64_t, ipc::kCmSecret / sizeof(uint64_t)> secret_;
  bool privileged_ = false;
  bool over_ = false;
  uint32_t next_handle_ = 0;  // the one before
  uint32_t unread_ = 0;
  std::map<uint32_t, Channel> channels_;
  std::map<uint32_t, std::unique_ptr<Id>> ids_;
};

}  // namespace vrdma::vrdmad
