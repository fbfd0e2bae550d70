// The thread that keeps claims and their CDI files as they should be: at its start, whenever the
// CDI directory changes, and every ten minutes; after a failure sooner.
#pragma once

#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

#include "cli/kubernetes/dra/claims.h"

namespace vrdma::cli::kubernetes {

class ClaimKeeper {
 public:
  explicit ClaimKeeper(Claims& claims);
  ClaimKeeper(const ClaimKeeper&) = delete;
  ClaimKeeper& operator=(const ClaimKeeper&) = delete;
  ~ClaimKeeper();  // waits for a call to the API server: stop() that one first

  // Any thread. Files of the CDI directory may be missing.
  void files_changed();
  // Any thread. While another instance serves the node, it looks after claims.
  void yield(bool yields);
  // Why claims are not as they should be; empty: they are.
  [[nodiscard]] std::string trouble();

 private:
  void run();
  void told(std::string& before, const base::Result<void>& result);

  Claims& claims_;
  std::mutex mutex_;  // guards all below but the thread
  std::condition_variable changed_;
  bool stop_ = false, files_due_ = true, yields_ = false;
  std::string files_trouble_ = "the claims have not been looked at", claims_trouble_;
  std::thread thread_;  // last: uses all members above
};

}  // namespace vrdma::cli::kubernetes
