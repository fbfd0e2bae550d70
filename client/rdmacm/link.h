// The program's connection to the rdma_cm socket of its network namespace (core/ipc/cm_messages.h),
// and the choice between it and the system's library.
//
// After a daemon dies, calls wait until the next daemon takes over the session or the grace period
// ends. A pending request is repeated there and executed once.
#pragma once

#include <sys/types.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <map>
#include <memory>
#include <string>

#include "client/dial/daemon_link.h"
#include "core/ipc/cm_messages.h"

namespace vrdma::client {

struct Id;

class CmLink final : public DaemonLink<ipc::CmRequest, ipc::CmReply> {
 public:
  // The link of this process. Creates one if there is none, if the existing one belongs to the
  // parent of a fork, or if it is lost. nullptr if the namespace has no vdevice.
  [[nodiscard]] static std::shared_ptr<CmLink> current();

  // Sends a request and receives its reply. 0; the errno that the daemon answered; EIO if the
  // daemon ended and none took over, so that its state of this process is lost; EAGAIN if `wait` is
  // false and the call would wait for the next daemon. Any thread.
  int call(ipc::CmRequest& request, ipc::CmReply* reply, base::Fd* beside = nullptr,
           bool wait = true);
  // A one-way request, for calls whose result the program learns by an event. Waits neither for a
  // reply nor for a daemon. 0 or EIO.
  int tell(ipc::CmCall call, uint32_t handle);
  // True if a daemon may not have received a one-way request since the last reply.
  [[nodiscard]] bool is_unanswered();
  // call() for a request that consists of a handle.
  int call(ipc::CmCall call, uint32_t handle);

  // Like call() with a request that changes nothing: waits for a daemon. 0, EIO.
  int await_daemon();

  // Reserves the handle of a new id. The daemon creates the id in the first call() that names it,
  // and that call() returns the error.
  [[nodiscard]] uint32_t create_id(uint32_t channel, uint32_t space, uint32_t qp_type);

  // The secret that authorizes requests of other sessions about ids of this one; zeros before the
  // first channel. Takes no lock, because a child calls it that may have been forked at any moment.
  [[nodiscard]] std::array<uint8_t, ipc::kCmSecret> secret() const;
  // True if this process created the link; false in a forked child.
  [[nodiscard]] bool is_own() const;

  std::map<uint32_t, Id*> ids;  // by handle; under objects_mutex()

 private:
  void ask_to_resume(ipc::CmRequest* request) override;
  Taken on_taken(const ipc::CmReply& reply, base::Fd socket) override;
  std::string path_now(const std::string& path) override {
    return is_where_it_was(path) ? path : socket_directory() + "/" + ipc::kCmSocket;
  }

  std::array<std::atomic<uint64_t>, ipc::kCmSecret / sizeof(uint64_t)> secret_{};
  pid_t owner_ = 0;
  uint32_t last_handle_ = 0;
  struct Unmade {
    uint32_t channel, space, qp_type;
  };
  std::map<uint32_t, Unmade> unmade_;  // by handle
};

// True if the process uses vdevices; false if calls go to the system's library. The first call that
// finds either one decides permanently, because objects of both must not be mixed.
[[nodiscard]] bool ours();

// The function of the system's librdmacm, or nullptr. The library is found by absolute path in the
// loader's default directories, or in VRDMA_REAL_LIBRDMACM (ignored in set-uid programs).
[[nodiscard]] void* real_function(const char* name);

}  // namespace vrdma::client

// Returns from the function by a call of the real one, unless the process uses vdevices.
#define VRDMA_PASS_ON(failure, name, ...)                            \
  if (!vrdma::client::ours()) {                                      \
    if (void* real = vrdma::client::real_function(#name))            \
      return reinterpret_cast<decltype(&::name)>(real)(__VA_ARGS__); \
    errno = ENODEV;                                                  \
    return failure;                                                  \
  }
