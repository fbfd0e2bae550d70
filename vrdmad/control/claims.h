// The claims that an orchestrator has put (vrdma.v1.Claim): the daemon's copy of what is on disk.
//
// Belongs to the control thread. A change has a begin and an end, because its caller waits for the
// disk in between. Meanwhile no container gets a vdevice by the claim, so that what is granted is
// always on disk. There is one change at a time.
#pragma once

#include <map>
#include <string>
#include <utility>

#include "core/base/error.h"
#include "vrdmad/admin/backend.h"

namespace vrdma::vrdmad {

class Claims {
 public:
  static constexpr size_t kMost = 4096, kMostShares = 8;

  // In the form that is stored and compared: sorted. EINVAL: a sentence that names the claim and
  // what is wrong with it.
  [[nodiscard]] static base::Result<ClaimSpec> canonical(const ClaimSpec& claim);

  void restore(ClaimSpec claim) { all_.insert_or_assign(claim.uid, std::move(claim)); }

  // By uid.
  [[nodiscard]] const std::map<std::string, ClaimSpec>& all() const { return all_; }
  [[nodiscard]] bool contains(const std::string& uid) const { return all_.contains(uid); }
  // The same claim is there.
  [[nodiscard]] bool contains(const ClaimSpec& claim) const;
  // For a container. ENOENT; EAGAIN: it is being changed.
  [[nodiscard]] base::Result<ClaimSpec> find(const std::string& uid) const;

  void begin(const std::string& uid) { changing_ = uid; }
  // One of these follows begin().
  void end_put(const ClaimSpec& claim);
  void end_delete();
  void cancel() { changing_.clear(); }

 private:
  std::map<std::string, ClaimSpec> all_;
  std::string changing_;  // a uid; empty: none
};

}  // namespace vrdma::vrdmad
