// Makes the descriptors and state files of sessions. At a takeover, finds the descriptors that an
// earlier daemon sent to programs.
//
// A worker opens no files, so it gets a SessionKit. The Furnisher keeps the caller of each
// connection, because a kit's anchors name the process, and removes the files of ended sessions.
//
// Owned by one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "vrdmad/broker/broker.h"
#include "vrdmad/broker/entrance.h"
#include "vrdmad/records/owners.h"
#include "vrdmad/records/session_files.h"
#include "vrdmad/records/session_kit.h"

namespace vrdma::vrdmad {

class Furnisher {
 public:
  // What a program opens.
  struct Opened {
    std::string name;  // of the vdevice
    uint64_t node_guid = 0;
    uint64_t netns = 0;  // cookie of the vdevice's namespace
    bool userfaultfd = false;
  };
  // A session of a daemon that has ended. It is taken over with the connection's number.
  struct Found {
    uint64_t vdevice = 0;
    std::string label;  // what the log calls the vdevice
    SessionFiles files;
    Intake::AccountRef account;  // of the vdevice
    std::string socket = {};     // path of the vdevice's session socket
    Recipient recipient = {};    // the worker that will serve it
  };
  struct Adopted {
    uint64_t connection = 0, vdevice = 0;
    std::shared_ptr<Caller> caller;
    Caller::Opened opened;
    SessionKit kit;
    uint32_t epoch = 0;  // in which the worker serves it; 0: its own
  };
  struct TakenOver {
    std::vector<Adopted> sessions;                // that were not delivered
    std::vector<SessionFiles> unanswered;         // to be tried again
    base::Duration again_after{};                 // if there are any
    std::map<uint64_t, base::Duration> searched;  // processor time that each vdevice pays
  };

  // Before the first kit. `directory`: of the sessions' files; empty: there are none. `arenas`: the
  // file of Owners. `epoch`: see SessionSettings. The next session has a greater number than
  // `last`. `patience`: for how long take_over() is tried again.
  void begin(std::string directory, std::string arenas, uint32_t epoch, uint32_t last,
             base::Duration patience);

  // A program has connected. Returns the number of the connection, by which all below name it.
  // `waiting`: counted until accepted(); nullptr: it is not counted.
  uint64_t add(uint64_t vdevice, std::shared_ptr<Caller> caller,
               std::unique_ptr<Entrance::Waiting> waiting = nullptr);
  // The worker has taken the connection from its queue.
  void accepted(uint64_t connection);
  // 0: there is no such connection.
  [[nodiscard]] uint64_t vdevice_of(uint64_t connection) const;
  // That of a session with files; 0: there is none.
  [[nodiscard]] uint64_t connection_of(uint32_t session) const;
  // Its process; nullptr: there is no such connection.
  [[nodiscard]] const rdma::Peer* peer_of(uint64_t connection) const;
  // The processes that use the vdevice, the latest first.
  [[nodiscard]] std::vector<std::shared_ptr<Caller>> callers_of(uint64_t vdevice) const;
  // The sessions with files of the process with that number in the daemon's pid namespace.
  struct Open {
    uint64_t connection = 0, vdevice = 0;
    uint32_t session = 0;
  };
  [[nodiscard]] std::vector<Open> sessions_of(pid_t pid) const;
  // Those of other processes of that process's user.
  [[nodiscard]] std::vector<Open> sessions_beside(pid_t pid) const;
  // A process with that number that is connected to the vdevice and has no session of it by that
  // connection; nullptr: there is none.
  [[nodiscard]] std::shared_ptr<Caller> newcomer_of(uint64_t vdevice, pid_t pid) const;
  // A session goes on in the process of `caller`, where its descriptors are those of `now`.
  // `used`: processor time of the search.
  [[nodiscard]] base::Result<Adopted> attach(uint64_t connection, const SessionAnchors& now,
                                             std::shared_ptr<Caller> caller,
                                             Intake::AccountRef account, base::Duration* used);
  // A session that was made elsewhere, or before, begins anew in the process of `caller`: makes its
  // files. The worker adopts it.
  struct Imported {
    uint32_t number = 0;             // that it had
    uint32_t known_as = 0;           // Anchor::known_as
    std::span<const uint8_t> image;  // that SessionImage::decode() accepts
    const SessionAnchors& now;       // its descriptors in that process
  };
  static constexpr uint32_t kMostImported = INT32_MAX;  // numbers
  [[nodiscard]] base::Result<Adopted> import(uint64_t vdevice, const Opened& opened,
                                             const Imported& session,
                                             std::shared_ptr<Caller> caller,
                                             Intake::AccountRef account, base::Duration* used);
  // `shown`: the memory arena that the program presented; zero: none. EPERM: it is another's.
  [[nodiscard]] base::Result<SessionKit> furnish(uint64_t connection, const Opened& opened,
                                                 const FileId& shown);
  // Searches each process once. Logs why a session is left out, and removes its files; they remain
  // if the broker has ended, because then this daemon ends and the next one takes the session over.
  // A session is unanswered while the broker cannot inspect its process (EAGAIN), or while the
  // recipient has ended (ENXIO): for `patience` after the first attempt, if the process lives.
  // Begins with the sessions that worked last. `deliver` gets the first kFirstBatch of them when
  // they are found, and then twice as many each time; empty: all are in the result.
  static constexpr size_t kFirstBatch = 8;
  using Deliver = std::function<void(std::vector<Adopted>)>;
  [[nodiscard]] TakenOver take_over(Broker& broker, std::vector<Found> all,
                                    const Deliver& deliver = {});
  // The worker that had the connection is lost. Returns its session, whose files remain, if it had
  // one.
  struct Lost {
    uint32_t session = 0;
    uint64_t vdevice = 0;
    rdma::Peer peer;
  };
  [[nodiscard]] std::optional<Lost> lost(uint64_t connection);
  // Whether the connection may get one more kit: a program has a few attempts to prove itself.
  [[nodiscard]] bool may_want(uint64_t connection);
  // Of new sessions from now on: see begin().
  void set_epoch(uint32_t epoch) { epoch_ = epoch; }
  void remove_files(uint32_t session);
  // The worker has ended the connection. Removes the files of its session.
  void ended(uint64_t connection);
  // Before the end: sessions of the vdevices for which `stays` remain for another daemon.
  void leave(const std::function<bool(uint64_t vdevice)>& stays);

 private:
  struct Connection {
    uint64_t vdevice = 0;
    std::shared_ptr<Caller> caller;
    std::unique_ptr<Entrance::Waiting> waiting;
    uint32_t session = 0;  // a session with files; 0: none
    unsigned kits = 0;     // so far
  };
  static void leave_out(Found& one, const base::Error& why);
  // Whether a session that was first tried at `since` is tried again.
  [[nodiscard]] bool may_answer(const Found& one, const base::Error& why,
                                base::TimePoint since) const;
  [[nodiscard]] static base::Result<SessionKit> kit_of(const SessionAnchors& anchors,
                                                       ProcessFiles& files);
  [[nodiscard]] static Anchor anchor_of(const Opened& opened, uint64_t vdevice,
                                        const rdma::Peer& process, const SessionKit& kit);
  [[nodiscard]] uint32_t number_for(uint32_t imported);
  [[nodiscard]] base::Result<Adopted> adopt(Found& found, const std::vector<Caller::Wanted>& wanted,
                                            base::Result<Broker::Found> process);

  std::string directory_;
  uint32_t epoch_ = 1;
  uint32_t last_session_ = 0;
  base::Duration patience_{};
  std::map<uint32_t, base::TimePoint> unanswered_;  // by session, since when
  uint64_t last_connection_ = 0;
  std::map<uint64_t, Connection> connections_;
  Owners owners_;
};

}  // namespace vrdma::vrdmad
