// A client of the admin API: one connection to vrdmad, blocking calls, errors with a sentence.
//
// Errors carry the daemon's errno and sentence, unchanged. Errors of the connection itself:
// ECONNREFUSED: nothing listens; EACCES: not root; ECONNRESET: the daemon went away; ETIMEDOUT: it
// did not answer.
//
// Thread-safe. A Client connects once; after ECONNRESET create a new one.
#pragma once

#include <vrdma/v1/admin.pb.h>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
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
  [[nodiscard]] base::Result<v1::Vdev> set_labels(const v1::SetLabelsRequest& request);
  [[nodiscard]] base::Result<std::vector<v1::Parent>> list_parents();
  [[nodiscard]] base::Result<v1::Budget> set_budget(const v1::SetBudgetRequest& request);
  [[nodiscard]] base::Result<std::vector<v1::Budget>> list_budgets(v1::Scope scope);
  [[nodiscard]] base::Result<v1::Fabric> set_fabric(const v1::SetFabricRequest& request);
  [[nodiscard]] base::Result<std::vector<v1::Fabric>> list_fabrics();
  [[nodiscard]] base::Result<std::vector<v1::CgroupUse>> list_cgroups(const std::string& vdev);
  // `scope`: "daemon", "tenant/" and a name, a reference to a vdevice, or empty for all.
  [[nodiscard]] base::Result<std::vector<v1::Counter>> counters(const std::string& scope);
  // By the vdevices' ids.
  [[nodiscard]] base::Result<v1::ListActivityResponse> list_activity();
  // The connections of one vdevice, or of all if the reference is empty.
  [[nodiscard]] base::Result<std::vector<v1::Connection>> list_connections(const std::string& vdev);
  [[nodiscard]] base::Result<std::vector<v1::QueuePair>> list_queue_pairs(const std::string& vdev);
  [[nodiscard]] base::Result<std::vector<v1::Export>> list_exports(const std::string& vdev);
  // Without `error`.
  [[nodiscard]] base::Result<std::vector<v1::Class>> list_classes();
  [[nodiscard]] base::Result<v1::Claim> put_claim(const v1::Claim& claim);
  // `force`: deletes the vdevices that containers have by it, too.
  [[nodiscard]] base::Result<v1::ParkedProcess> park_process(int32_t pid);
  // `process`: the token of a parked one, or its number.
  [[nodiscard]] base::Result<v1::ParkedProcess> parked_process(const std::string& process);
  [[nodiscard]] base::Result<void> detach_process(const std::string& process);
  [[nodiscard]] base::Result<void> resume_process(const std::string& process);
  [[nodiscard]] base::Result<void> abandon_process(const std::string& process);
  [[nodiscard]] base::Result<v1::ParkedProcess> place_process(const v1::ParkedProcess& process);
  [[nodiscard]] base::Result<void> attach_process(const v1::ParkedProcess& process);
  [[nodiscard]] base::Result<void> delete_claim(const std::string& uid, bool force = false);
  // By uid.
  [[nodiscard]] base::Result<std::vector<v1::Claim>> list_claims();
  [[nodiscard]] base::Result<v1::VersionResponse> version();

  // Calls `on_event` on this thread for each event until it returns false (success) or the stream
  // ends (an error, because the stream has no regular end). Calls `on_begun` first: the stream
  // reports everything that happens from then on.
  // ETIMEDOUT: the deadline has come first.
  using OnEvent = std::function<bool(const v1::WatchEvent&)>;
  using Deadline = std::optional<std::chrono::system_clock::time_point>;
  [[nodiscard]] base::Result<void> watch_vdevs(const OnEvent& on_event,
                                               const std::function<void()>& on_begun = {},
                                               Deadline deadline = {});
  // Those that occurred at this Unix time in milliseconds or later; `most`: the newest alone, 0:
  // all.
  [[nodiscard]] base::Result<std::vector<v1::Event>> list_events(int64_t since_ms,
                                                                 uint32_t most = 0);
  // These, and then new ones, as watch_vdevs().
  [[nodiscard]] base::Result<void> watch_events(
      int64_t since_ms, const std::function<bool(const v1::Event&)>& on_event);
  // The same for the classes: `on_classes` gets all of them, at once and then twice a second.
  using OnClasses = std::function<bool(const v1::ListClassesResponse&)>;
  [[nodiscard]] base::Result<void> watch_classes(const OnClasses& on_classes);
  // Ends the current watches and every later one; they return success.
  void end_watch();

 private:
  struct Connection;
  template <class Message, class Start>
  base::Result<void> watch(const Start& start,
                           const std::function<bool(const Message&)>& on_message,
                           const std::function<void()>& on_begun, Deadline deadline = {});
  explicit Client(std::unique_ptr<Connection> connection);
  std::unique_ptr<Connection> connection_;
};

}  // namespace vrdma::api
