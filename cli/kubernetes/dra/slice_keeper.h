// The thread that keeps the node's ResourceSlices in the API server as they should be.
//
// It lists them and writes what differs, until nothing does; then it watches, and any event leads
// to another look. A kubelet deletes all slices of its node when it starts. Looks are 0.5 s apart,
// and up to 8 s after failures, or while each look finds something to write.
#pragma once

#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "cli/kubernetes/dra/api_server.h"
#include "cli/kubernetes/dra/slices.h"

namespace vrdma::cli::kubernetes {

class SliceKeeper {
 public:
  // `server` must outlive the object. Without the devices of want() it does nothing.
  SliceKeeper(ApiServer& server, std::string driver, std::string node);
  SliceKeeper(const SliceKeeper&) = delete;
  SliceKeeper& operator=(const SliceKeeper&) = delete;
  ~SliceKeeper();  // waits for a call to the API server: stop() that one first

  // Any thread. The devices from now on; written within about a second.
  void want(std::vector<PoolDevice> devices);
  // Any thread. While another instance serves the node, it writes the slices.
  void yield(bool yields);

  struct Status {
    std::string trouble;  // why the slices are not as they should be; empty: they are
    uint64_t generation = 0;
    uint64_t writes = 0;  // of slices
    uint64_t failures = 0;
  };
  [[nodiscard]] Status status();

 private:
  void run();
  [[nodiscard]] base::Result<bool> keep(const std::vector<PoolDevice>& wanted);
  [[nodiscard]] base::Result<void> wait_for_event(uint64_t change);
  [[nodiscard]] base::Result<void> find_node();
  [[nodiscard]] base::Result<void> write(const SliceWrite& write);
  [[nodiscard]] bool is_written(const std::vector<PoolDevice>& wanted,
                                const std::vector<Slice>& existing) const;
  [[nodiscard]] std::string query() const;
  void tell(const std::string& trouble);

  ApiServer& server_;
  // Of the thread.
  SliceOwner owner_;
  std::string version_;  // of the last list
  // What it wrote, as the API server has it since: that may have left out fields that it does not
  // know.
  std::vector<PoolDevice> written_;
  std::map<std::string, std::string> versions_;  // by the name of the slice

  std::mutex mutex_;  // guards all below but the thread
  std::condition_variable changed_;
  bool stop_ = false, yields_ = false;
  std::optional<std::vector<PoolDevice>> wanted_;
  uint64_t change_ = 0;  // grows with each change of the two above
  Status status_{"the slices have not been looked at", 0, 0, 0};
  std::thread thread_;  // last: uses all members above
};

}  // namespace vrdma::cli::kubernetes
