// A client of the admin API: one connection to vrdmad, blocking calls, errors as sentences.
//
// Every error has the errno and the sentence of the daemon, unchanged; those of the connection
// itself are ours: ECONNREFUSED nothing listens, EACCES root is needed, ECONNRESET the daemon went
// away in between, ETIMEDOUT it did not answer.
//
// Thread-safe. The connection is made once; after ECONNRESET make a new Client.
#pragma once

#include <vrdma/v1/admin.pb.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/base/error.h"

namespace vrdma::api {

inline constexpr char kDefaultRunDir[] = "/run/vrdma";

// VRDMA_RUN_DIR from the environment, or kDefaultRunDir.
[[nodiscard]] std::string default_run_dir();

class Client {
 public:
  // Connects to `run_dir`/admin.sock.
  [[nodiscard]] static base::Result<Client> connect(const std::string& run_dir);
  Client(Client&&) noexcept;
  Client& operator=(Client&&) noexcept;
  ~Client();

  // `vdev`: a reference to a vdevice, NAME, NETNS/NAME or id:N; see vrdma/v1/admin.proto.
  [[nodiscard]] base::Result<v1::Vdev> create_vdev(const v1::CreateVdevRequest& request);
  [[nodiscard]] base::Result<void> delete_vdev(const std::string& vdev);
  // `show_sysfs`: its files are there to be mounted; see vrdma/v1/admin.proto.
  [[nodiscard]] base::Result<v1::Vdev> get_vdev(const std::string& vdev, bool show_sysfs = false);
  // Sorted by name, then by namespace.
  [[nodiscard]] base::Result<std::vector<v1::Vdev>> list_vdevs();
  [[nodiscard]] base::Result<v1::Vdev> set_quota(const v1::SetQuotaRequest& request);
  [[nodiscard]] base::Result<std::vector<v1::Parent>> list_parents();
  [[nodiscard]] base::Result<v1::Budget> set_budget(const v1::SetBudgetRequest& request);
  [[nodiscard]] base::Result<std::vector<v1::Budget>> list_budgets(v1::Scope scope);
  [[nodiscard]] base::Result<std::vector<v1::CgroupUse>> list_cgroups(const std::string& vdev);
  // `scope`: "daemon", "tenant/" and a name, a reference to a vdevice, or empty for all.
  [[nodiscard]] base::Result<std::vector<v1::Counter>> counters(const std::string& scope);
  // Of one vdevice, or of all if the reference is empty.
  [[nodiscard]] base::Result<std::vector<v1::Connection>> list_connections(const std::string& vdev);
  [[nodiscard]] base::Result<v1::VersionResponse> version();

  // Calls `on_event` on this thread for each event until it returns false (success) or the stream
  // ends (an error: it has no end of its own). `on_begun`, before that: what happens from now on is
  // told.
  using OnEvent = std::function<bool(const v1::WatchEvent&)>;
  [[nodiscard]] base::Result<void> watch_vdevs(const OnEvent& on_event,
                                               const std::function<void()>& on_begun = {});
  // Ends a watch in progress, and every one that is begun later: they succeed.
  void end_watch();

 private:
  struct Connection;
  explicit Client(std::unique_ptr<Connection> connection);
  std::unique_ptr<Connection> connection_;
};

}  // namespace vrdma::api
