// What the next daemon needs of a session: written while it lives, and read by the next one, which
// makes it from that.
//
// Of each object that was made there are the request and its answer, of queue pairs their
// attributes and links besides, and how each memory window is bound; all of it before the program
// learns of it. What identifies files and descriptors is among the anchors. The next daemon decodes
// the image, and serves the requests again, by the code that serves all, with the numbers that
// their answers gave. Links
// are made again when all sessions of a fabric are there. Progress is where it always is, in the
// shared rings; that of queue pairs with a peer on another host is in their notes.
//
// Belongs to a Session and its worker's thread.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "vrdmad/records/session_files.h"
#include "vrdmad/worker/messages.h"
#include "vrdmad/worker/session_objects.h"

namespace vrdma::vrdmad {

class SessionJournal : private rdma::Notes {
 public:
  using Answer = SessionObjects::Answer;

  SessionJournal(SessionFiles files, SessionObjects& objects)
      : anchors_(std::move(files.anchors)), file_(std::move(files.journal)), objects_(objects) {}
  ~SessionJournal() override;  // nobody takes the session over any more
  SessionJournal(const SessionJournal&) = delete;
  SessionJournal& operator=(const SessionJournal&) = delete;

  // Of a session that is open from now on.
  void begin(base::TimePoint now) {
    file_->begin();
    worked(now);
    write_down_changes();
  }
  // The session works; see SessionFile::last_work().
  void worked(base::TimePoint now) { file_->worked(now); }
  // The id by which its program knows the session.
  [[nodiscard]] uint32_t known_as() const;
  // Around each request: before it is served, and before a program learns that it was.
  void will_serve(const ipc::Request& request);
  void remember(const ipc::Request& request, const ipc::Reply& reply);

  // session_park.cc
  // All memory in place is reached from now on.
  void make_reached();
  // The session goes on in another process, or with other descriptors; the program may repeat its
  // last request, whose answer it may not have got.
  void attach(const rdma::Peer& process, const AttachSession& found, const SessionKit& kit);

  // session_adopt.cc
  // Makes the objects of a dead daemon's session, and begins the epoch. `channels`: the write ends
  // of its completion channels that were found, by handle.
  [[nodiscard]] base::Result<void> take_over(SessionImage image,
                                             std::map<uint32_t, base::Fd> channels, uint32_t epoch);
  // When all sessions of a fabric are there, each is called of all, one after the other.
  void restore_pairs();
  void restore_links();
  void go_on();
  // A request that the dead daemon had served, or had begun to serve. False: it is none.
  [[nodiscard]] bool serve_repeated(const ipc::Request& request, Answer* answer);

 private:
  [[nodiscard]] rdma::Context& context() const { return objects_.context(); }
  [[nodiscard]] static uint64_t inode_of(const base::Fd& fd);
  void keep(Stored kind, const ipc::Request& request, const ipc::Reply& reply,
            uint32_t sequence = 0);
  void keep_made(const ipc::Request& request, const ipc::Reply& reply);
  void keep_region(const rdma::Mr& mr);
  void keep_changed(Stored kind, const ipc::Request& request, const ipc::Reply& reply);
  void erase(Stored kind, uint32_t handle);
  void keep_state(const rdma::Qp& qp, uint32_t handle);
  void keep_binding(const rdma::Mw& mw);
  // rdma::Notes.
  void put(const rdma::Qp& qp, uint32_t number, std::span<const uint8_t> bytes) override;
  void commit() override { file_->commit(); }
  [[nodiscard]] std::vector<uint8_t> find(const rdma::Qp& qp, uint32_t number) const override;
  void has_notes(uint32_t handle);
  void erase_notes(uint32_t handle);
  void keep_claim(const rdma::Srq& srq, uint32_t slot, const rdma::Qp* receiver);
  void write_down_changes();
  // Of queue pairs with a remote peer, or of all others.
  void restore_claims(bool remote);
  // 0 or an errno.
  [[nodiscard]] int make_again();
  [[nodiscard]] int make_again(Stored kind);
  [[nodiscard]] int serve_again(Stored kind, const SessionImage::Served& made);
  [[nodiscard]] int restore_xrcd(uint32_t handle, const XrcdRecord& record);
  [[nodiscard]] int restore_binding(rdma::Mw& mw, const BindingRecord& bound);
  [[nodiscard]] int restore_state(rdma::Qp& qp, uint32_t handle,
                                  const SessionImage::QpState& known);
  void restore_channels(std::map<uint32_t, base::Fd> channels);
  void remove_unanswered();
  void restore_target_links();
  void go_on(rdma::Qp& qp);

  std::unique_ptr<AnchorFile> anchors_;  // removed after the journal
  std::unique_ptr<SessionFile> file_;
  SessionObjects& objects_;
  SessionImage image_;       // of the dead daemon, until the work goes on
  SessionFile::Last last_;   // of the dead daemon
  std::vector<bool> noted_;  // by handle of a queue pair
  // What is known of the link of a queue pair until it is restored; by handle.
  struct Linked {
    bool out = false, in = false;
    uint64_t peer_outbox = 0;
    uint32_t changes = 0;
  };
  std::unordered_map<uint32_t, Linked> was_linked_;
};

}  // namespace vrdma::vrdmad
