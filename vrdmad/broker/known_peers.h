// The processes that a broker has checked, for the next broker.
//
//   R/broker/       0700, of root
//   R/broker/root/  0555  empty: the root of worker processes
//   R/broker/peers  0600  a version, then each rdma::Peer with the listener to which it connected
//
// A broker finds a process for a takeover only if an earlier one has checked it at the accept of
// its connection to the same listener. Nothing else tells that the process gave that vdevice access
// to its memory. Control can write to R, but not to a directory of root in it.
//
// A list without a version is of an earlier vrdmad, which recorded no listeners: its processes are
// known for any, to this broker alone.
//
// A process stays known until it ends, as it was at its last kMostOfProcess changes of program, ids
// or capabilities. Thread-safe.
#pragma once

#include <mutex>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/base/fd.h"
#include "core/rdma/peer.h"
#include "vrdmad/broker/listener_name.h"

namespace vrdma::vrdmad {

class KnownPeers {
 public:
  // `run_dir`: R, which must exist when one of the others is called. Empty: all are known.
  explicit KnownPeers(std::string run_dir) : run_dir_(std::move(run_dir)) {}
  ~KnownPeers() = default;
  KnownPeers(const KnownPeers&) = delete;
  KnownPeers& operator=(const KnownPeers&) = delete;

  void add(const rdma::Peer& peer, const ListenerName& listener);
  // EPERM: it is not known, or has connected to other listeners only.
  [[nodiscard]] base::Result<void> find(const rdma::Peer& peer, const ListenerName& listener);
  // A directory without content, R/broker/root, 0555, as the root of worker processes. No other
  // user than root can change it. Without R: one that is in no other directory any more.
  [[nodiscard]] base::Result<base::Fd> empty_root();
  [[nodiscard]] static std::string path_of_root(const std::string& run_dir) {
    return run_dir + "/broker/root";
  }
  // Removes the file if no process in it is alive.
  void end();

 private:
  struct Known {
    rdma::Peer peer;
    ListenerName listener;
    bool operator==(const Known&) const = default;
  };
  static_assert(sizeof(Known) == sizeof(rdma::Peer) + 16);
  static constexpr long kMostOfProcess = 8;  // by listener

  [[nodiscard]] base::Result<void> open();
  [[nodiscard]] base::Result<base::Fd> open_root(int directory, const std::string& path);
  void read();
  void read_file();
  void write_all();
  void leave_out_the_dead();
  void leave_out_earlier(const Known& now);

  const std::string run_dir_;
  std::mutex mutex_;
  bool opened_ = false;
  base::Fd directory_;               // none: it could not be opened
  base::Fd file_;                    // to append to; none: the whole list must be written
  std::string trouble_;              // why there is no directory
  std::vector<Known> known_;         // what the file contains
  std::vector<rdma::Peer> earlier_;  // known for any listener
  size_t written_ = 0;               // records in the file
  size_t sweep_at_ = 64;             // of them
};

}  // namespace vrdma::vrdmad
