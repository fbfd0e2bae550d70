// The claims of this node, between the API server, vrdmad and container engines.
//
//   API server ---- what the scheduler allocated ----+
//                                                    v
//   vrdmad <------- class and quota ------------- Claims ------>
//   /var/run/cdi/vrdma.io-claim-UID.json
//
// vrdmad has the record of a claim, which survives the plugin. Everything else is made from it: the
// CDI file again and again, and its end when the API server does not have the claim any more. A pod
// gets no device before the record is on vrdmad's disk and the file in its place.
//
// All calls block, and may come from any thread. The mutex is held for calls to vrdmad, which
// answers in milliseconds, and not for calls to the API server.
#pragma once

#include <kubelet/dra.pb.h>
#include <vrdma/v1/admin.pb.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "cli/kubernetes/dra/api_server.h"
#include "cli/kubernetes/dra/claim.h"

namespace vrdma::cli::kubernetes {

class Claims {
 public:
  struct Places {
    std::string run_dir;       // of vrdmad
    std::string cdi_dir;       // "/var/run/cdi"
    std::string driver, node;  // node: also the pool
  };
  // A device of the pool.
  struct Offered {
    std::string class_name;
    std::string unhealthy;  // why containers get no vdevice of it; empty: they do
  };
  struct Counts {
    std::atomic<uint64_t> prepared = 0, refused = 0;  // claims
    std::atomic<uint64_t> unprepared = 0, held = 0;   // held: failures to undo one
    std::atomic<uint64_t> rewritten = 0;              // CDI files
    std::atomic<uint64_t> undone = 0;  // claims that the API server did not have any more
  };

  // `server` must outlive the object.
  Claims(ApiServer& server, Places places) : server_(server), places_(std::move(places)) {}

  // The devices from now on, by name. `hook`: the program of CDI files; empty: it is not known.
  void offer(std::map<std::string, Offered> devices, std::string hook);

  // The kubelet's calls, one for each claim. Never without an answer; errors are in it.
  [[nodiscard]] kubelet::NodePrepareResourceResponse prepare(const ClaimName& name);
  [[nodiscard]] kubelet::NodeUnprepareResourceResponse unprepare(const ClaimName& name);

  // Writes the CDI files that are missing, and removes those of claims that vrdmad does not have.
  [[nodiscard]] base::Result<void> restore();
  // Undoes what the API server does not have any more. An error: the first reason why it is not
  // known of a claim, or why it could not be undone; others are not left out for it.
  [[nodiscard]] base::Result<void> reconcile();

  [[nodiscard]] const Counts& counts() const { return counts_; }

 private:
  [[nodiscard]] base::Result<std::vector<AllocatedDevice>> look_up(const ClaimName& name);
  [[nodiscard]] base::Result<v1::Claim> record_of(const ClaimName& name,
                                                  const std::vector<AllocatedDevice>& devices);
  [[nodiscard]] base::Result<void> put(const v1::Claim& claim);
  [[nodiscard]] base::Result<void> undo(const std::string& uid);
  [[nodiscard]] base::Result<void> reconcile(const v1::Claim& claim);
  [[nodiscard]] base::Result<bool> write_file(const v1::Claim& claim);
  [[nodiscard]] std::string file_of(const std::string& uid) const;
  void remove_strays(const std::vector<v1::Claim>& claims);

  ApiServer& server_;
  const Places places_;
  Counts counts_;

  std::mutex offered_mutex_;  // guards the two below
  std::map<std::string, Offered> offered_;
  std::string hook_;

  // Guards vrdmad's records together with the files.
  std::mutex mutex_;
  std::string doubted_;     // the claim that reconcile() asks the API server about
  bool confirmed_ = false;  // it was prepared meanwhile
};

}  // namespace vrdma::cli::kubernetes
