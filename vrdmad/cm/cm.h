// rdma_cm connections of all vdevices: connects the multiplexer of queue pair 1 to the daemon.
//
// Each vdevice has a CmDevice, which is one Endpoint. Programs connect to the rdma_cm socket of
// their namespace (core/ipc/cm_messages.h), one CmSession each. Routing: a connection uses the
// vdevice of the namespace whose fabric has the peer's address, or else one from which a network
// leads there, and of its addresses the one with the longest common prefix. Loopback addresses
// refer to the vdevices of the namespace.
//
// Belongs to the control thread.
#pragma once

#include <list>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/base/event_loop.h"
#include "provisioning/request_rate.h"
#include "qp1mux/cm_id.h"
#include "qp1mux/loopback.h"
#include "qp1mux/mux.h"
#include "vrdmad/broker/session_socket.h"
#include "vrdmad/cm/device.h"
#include "vrdmad/cm/share.h"
#include "vrdmad/records/cm_session_image.h"
#include "vrdmad/worker/vdevice.h"

namespace vrdma::vrdmad {

class Cm;
class CmSession;

// Leads to peers on other hosts.
class CmNetwork : public qp1mux::Wire {
 public:
  // Whether `remote` may be beyond it, seen from the vdevice.
  [[nodiscard]] virtual bool leads_to(const CmDevice& from, const verbs::Gid& remote) const = 0;
  // The address that the kernel of its namespace sends packets to `remote` from; empty: it is not
  // known, or there is none. `own`: an address of the vdevice.
  [[nodiscard]] virtual std::optional<verbs::Gid> source_to(const CmDevice& of,
                                                            const verbs::Gid& own,
                                                            const verbs::Gid& remote) = 0;
  // As qp1mux::Routes::look_up(); `route` begins at `from`.
  virtual std::shared_ptr<void> look_up(const CmDevice& from, const qp1mux::Route& route,
                                        const verbs::Gid& remote,
                                        qp1mux::Routes::Answer answer) = 0;
  // A process of the namespace uses rdma_cm: `first`, has begun to. True: Cm::callers_of() must
  // name it, and this must be called again when it asks for something later.
  [[nodiscard]] virtual bool arrived(uint64_t /*netns*/, const Caller& /*caller*/, bool /*first*/) {
    return false;
  }
  // One has ended.
  virtual void left(uint64_t /*netns*/) {}
};

// Never reset.
struct CmCounters {
  uint64_t sessions = 0;   // opened
  uint64_t malformed = 0;  // ended for a violation of the protocol
  uint64_t unproven = 0;   // refused: not used by the process or program that connected
  uint64_t unread = 0;     // ended because the program did not read its events
  uint64_t crowded = 0;    // sessions, channels and ids refused because of a limit
  uint64_t delayed = 0;    // how often reading paused because a user exceeded its request rate
};

// Shared by the processes of one user in a namespace.
struct CmUser {
  static constexpr uint32_t kMaxSessions = 1024;

  explicit CmUser(base::EventLoop& loop) : requests(loop) {}
  // Can be dropped and recreated without a difference.
  [[nodiscard]] bool is_at_rest(base::TimePoint now) {
    return sessions == 0 && arrivals.used(now) == 0 && requests.used() == 0;
  }
  base::TokenBucket arrivals;
  provisioning::RequestRate requests;
  uint32_t sessions = 0;
};

// Shared by the processes of a namespace: the socket and the limits. Lives as long as its socket or
// a session.
struct CmNamespace {
  static constexpr CmShare::Limits kSessions{2048, 64, 16384};
  static constexpr CmShare::Limits kChannels{16384, 256, 65536};  // a descriptor each
  // Besides the ids that its vdevices pay for; some 1,800 bytes each.
  static constexpr CmShare::Limits kIds{131072, 2048, 524288};
  // Unread events of ids that are not bound to a vdevice.
  static constexpr uint32_t kMaxEvents = 32768;

  struct Totals {  // of all namespaces
    uint32_t sessions = 0, channels = 0, ids = 0;
  };
  explicit CmNamespace(const std::shared_ptr<Totals>& all)
      : sessions(kSessions, {all, &all->sessions}),
        channels(kChannels, {all, &all->channels}),
        ids(kIds, {all, &all->ids}) {}

  uint64_t cookie = 0;
  Intake::AccountRef intake;
  std::shared_ptr<Entrance> entrance;
  std::map<uid_t, std::shared_ptr<CmUser>> users;
  std::weak_ptr<SessionSocket> socket;
  CmShare sessions, channels, ids;
  uint32_t events = 0;
  bool ending = false;  // an eviction is scheduled
};

class Cm final : qp1mux::Clock, qp1mux::Routes {
 public:
  // `settings` without a state directory: see keep_sessions(). `network` must outlive it; nullptr:
  // there is none.
  Cm(base::EventLoop& loop, SessionSettings settings, CmNetwork* network = nullptr);
  ~Cm() override;
  Cm(const Cm&) = delete;
  Cm& operator=(const Cm&) = delete;

  // Call before there are sessions. Makes sessions survive this daemon, and finds those of the
  // previous one. `run_dir`: of the daemon (vrdmad/broker/listener_name.h); empty, for tests: that
  // of a LocalBroker without one.
  void keep_sessions(const std::string& state_dir, std::string run_dir = {});
  // Takes over the previous daemon's sessions. Its vdevices and verbs sessions must have been
  // restored, except those in the namespaces `later`: another call takes these over, and until then
  // their clients are told to wait. A namespace whose processes the broker cannot inspect is tried
  // again, for half of the clients' grace period.
  void adopt_sessions(std::set<uint64_t> later);
  [[nodiscard]] bool awaits_others(uint64_t netns) const {
    return later_.contains(netns) || unanswered_.contains(netns);
  }
  // Leaves the sessions to the next daemon: what follows ends none of them.
  void leave_sessions();

  [[nodiscard]] base::Result<std::unique_ptr<CmDevice>> attach(CmDeviceSetup setup);
  // The socket of the namespace in `directory`: made by the first call, removed with the last
  // reference.
  [[nodiscard]] base::Result<std::shared_ptr<SessionSocket>> socket(uint64_t netns,
                                                                    const std::string& directory);

  [[nodiscard]] std::shared_ptr<CmNamespace> space(uint64_t netns);
  // Made for the first process of the user.
  [[nodiscard]] std::shared_ptr<CmUser> user(CmNamespace& space, uid_t uid);
  // Starts a session for a process of the namespace; closes the connection if there are too many.
  void accept(std::shared_ptr<CmNamespace> space, Arrival arrival);

  [[nodiscard]] const qp1mux::Mux& mux() const { return mux_; }
  [[nodiscard]] const CmCounters& counters() const { return counters_; }

  // Hands over a MAD that came from a network.
  void receive(const qp1mux::Packet& packet) { mux_.receive(packet); }
  // Whether a process of the namespace uses rdma_cm.
  [[nodiscard]] bool is_used(uint64_t netns) const;
  // Of these processes, those that CmNetwork::arrived() wanted to be named.
  [[nodiscard]] std::vector<std::shared_ptr<Caller>> callers_of(uint64_t netns) const;

  // park.cc: all sessions of a process that is written to disk. `token` names them from then on.
  struct ParkedSession {
    std::string socket;              // path of the namespace's socket
    std::vector<uint64_t> channels;  // inodes of the program's ends of their sockets
  };
  // Nothing is read from the process or told to it. Peers are served: their requests and ends wait
  // as events that the program has not read. Errors: none is parked.
  [[nodiscard]] base::Result<std::vector<ParkedSession>> park(pid_t pid, const std::string& token);
  [[nodiscard]] bool has_parked(const std::string& token) const;
  // Neither the end of the process nor that of its connection ends them.
  void detach(const std::string& token);
  void resume_parked(const std::string& token);
  void end_parked(const std::string& token);
  // They go on in a process that is connected to the sockets of their namespaces (ENOTCONN), as
  // after a takeover: it reconnects, and opens its channels again. All, or none.
  [[nodiscard]] base::Result<void> attach(const std::string& token, pid_t pid);

  // images.cc: sessions of a program that comes from elsewhere.
  //
  // Of the detached sessions, in the order of park().
  [[nodiscard]] base::Result<std::vector<CmSessionImage>> images(const std::string& token) const;
  // Why ids of the image cannot go on with `device` in the place of the vdevice with this GUID, as
  // a sentence about `device`; empty: they can.
  [[nodiscard]] static std::string obstacle(const CmSessionImage& image, uint64_t node_guid,
                                            const CmDevice& device);
  struct Coming {
    CmSessionImage image;
    std::map<uint64_t, CmDevice*> vdevices;  // in whose place, by its GUID in the image
  };
  // Whether ports, ids and limits permit them.
  [[nodiscard]] base::Result<void> may_import(uint64_t netns, const std::vector<Coming>& all) const;
  // They go on in the process of `caller`, as after a takeover. Its queue pairs must be there. All,
  // or none.
  [[nodiscard]] base::Result<void> import(uint64_t netns, std::shared_ptr<Caller> caller,
                                          const std::vector<Coming>& all);
  // A process that is connected to the socket of the namespace, and has asked for nothing; nullptr:
  // there is none.
  [[nodiscard]] std::shared_ptr<Caller> newcomer(uint64_t netns, pid_t pid) const;
  // What comes to the vdevices of the namespace for a session that is about to be imported is not
  // refused, until the result is destroyed.
  [[nodiscard]] std::shared_ptr<void> expect(uint64_t netns);
  // Detached sessions whose vdevices have gone: they can go on of their images alone.
  [[nodiscard]] bool is_away(const std::string& token) const {
    return away_.contains(token) && parked_as(token).empty();
  }
  void put_away(const std::string& token);     // what is left of them
  void forget_away(const std::string& token);  // they have gone on, or never will

  // For CmSession.
  [[nodiscard]] CmNetwork* network() const { return network_; }
  [[nodiscard]] const SessionSettings& settings() const { return settings_; }
  [[nodiscard]] std::string new_file();                                    // an unused path
  [[nodiscard]] uint64_t count_without_file() { return ++without_file_; }  // sessions
  // The path of the namespace's socket.
  [[nodiscard]] std::string socket_path(uint64_t netns) const;
  // Ends adopted sessions of a process that has started a new session instead.
  void end_left_by(uint64_t netns, const rdma::Peer& process);
  [[nodiscard]] CmCounters& counters() { return counters_; }
  // The session of the namespace with that secret, or nullptr.
  [[nodiscard]] CmSession* session(uint64_t netns, const uint8_t* secret) const;
  [[nodiscard]] uint64_t secret() const;  // one word of a secret
  // Ends the session of the namespace with the most unread events of the vdevice (nullptr: of all),
  // after the current callback. Further calls until then have no effect.
  void end_the_unread(const std::shared_ptr<CmNamespace>& space, CmDevice* device);
  [[nodiscard]] base::EventLoop& loop() { return loop_; }
  [[nodiscard]] qp1mux::CmHost& host() { return host_; }
  [[nodiscard]] CmDevice* device(const qp1mux::Endpoint* endpoint) const;
  // The vdevice of the namespace with that GUID (big-endian), or nullptr.
  [[nodiscard]] CmDevice* device(uint64_t netns, uint64_t node_guid) const;
  [[nodiscard]] std::vector<uint64_t> guids(uint64_t netns) const;
  // The vdevice of the namespace whose session socket has that number, or nullptr.
  [[nodiscard]] const CmDevice* numbered(uint64_t netns, uint32_t number) const;
  // Replaces 127.0.0.0/8 and ::1 by an address of a vdevice of the namespace, if it has one.
  [[nodiscard]] verbs::Gid meant(uint64_t netns, const verbs::Gid& gid) const;

 private:
  friend class CmDevice;
  [[nodiscard]] base::TimePoint now() const override { return loop_.now(); }
  void wake_at(base::TimePoint when) override;
  base::Result<Found> find(uint64_t netns, const verbs::Gid& local,
                           const verbs::Gid& remote) override;
  std::shared_ptr<void> look_up(const qp1mux::Route& route, const verbs::Gid& remote,
                                Answer answer) override;
  base::Result<qp1mux::Endpoint*> owner(uint64_t netns, const verbs::Gid& local) override;
  std::vector<qp1mux::Endpoint*> all(uint64_t netns) override;
  base::Result<std::shared_ptr<void>> charge(const qp1mux::Endpoint& endpoint) override;
  void gone(CmDevice& device);
  [[nodiscard]] const std::vector<CmDevice*>& in(uint64_t netns) const;
  // nullptr: no socket and no session has it.
  [[nodiscard]] std::shared_ptr<CmNamespace> known_space(uint64_t netns) const;
  // Sets the rates of the namespace's users after a change of a vdevice's limits.
  void set_rates(uint64_t netns);
  [[nodiscard]] uint64_t rate_of(uint64_t netns, provisioning::Kind kind) const;
  void forget(CmSession* over);
  [[nodiscard]] std::vector<CmSession*> parked_as(const std::string& token) const;
  // `gids`: to which its peers send.
  void put_away(CmSession& session, const std::vector<verbs::Gid>& gids);
  [[nodiscard]] base::Result<std::unique_ptr<CmSession>> imported(uint64_t netns,
                                                                  const Caller& caller,
                                                                  const Coming& coming);

  SessionSettings settings_;
  base::EventLoop& loop_;
  CmNetwork* const network_;
  base::EventLoop::Timer timer_;
  qp1mux::Loopback loopback_;
  qp1mux::Mux mux_;
  qp1mux::PortTable ports_;
  qp1mux::CmHost host_;
  std::unordered_map<uint64_t, std::vector<CmDevice*>> devices_;  // by namespace
  std::unordered_map<const qp1mux::Endpoint*, CmDevice*> by_endpoint_;
  const std::shared_ptr<CmNamespace::Totals> totals_ = std::make_shared<CmNamespace::Totals>();
  std::map<uint64_t, std::weak_ptr<CmNamespace>> spaces_;
  CmCounters counters_;
  std::list<std::unique_ptr<CmSession>> sessions_;
  std::string run_dir_;
  std::list<std::pair<uint64_t, CmSessionFile>> found_;  // by namespace; not taken over yet
  std::set<uint64_t> later_;
  std::map<uint64_t, base::TimePoint> unanswered_;  // namespaces, since when
  base::EventLoop::Timer adopt_again_;
  // Whose vdevices have gone: the ids of their connections, by token.
  struct Away {
    std::set<uint32_t> ids;
    std::vector<std::shared_ptr<void>> patience;
  };
  std::map<std::string, Away> away_;
  uint32_t last_file_ = 0;
  uint64_t without_file_ = 0;
  std::shared_ptr<int> alive_ = std::make_shared<int>(0);
};

}  // namespace vrdma::vrdmad
