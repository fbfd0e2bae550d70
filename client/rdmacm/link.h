// The program's end of the rdma_cm socket of its network namespace (core/ipc/cm_messages.h), and
// whether there is one.
//
// When the daemon has died, another one has the session, or will: what was asked is asked again
// there, once. Calls wait for that until the grace period is over.
#pragma once

#include <sys/types.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <map>
#include <memory>

#include "client/dial/daemon_link.h"
#include "core/ipc/cm_messages.h"

namespace vrdma::client {

struct Id;

class CmLink final : public DaemonLink<ipc::CmRequest, ipc::CmReply> {
 public:
  // The process's, made if there is none, or only one of the process that forked this one, or one
  // whose daemon has died without another that has it. nullptr where the namespace has no vdevice.
  [[nodiscard]] static std::shared_ptr<CmLink> current();

  // One request and its answer: 0, or the errno that the daemon answered; EIO if it has gone, and
  // with it what it knew of this process. Any thread. `wait` false: EAGAIN where it would wait for
  // another daemon.
  int call(ipc::CmRequest& request, ipc::CmReply* reply, base::Fd* beside = nullptr,
           bool wait = true);
  // A request that cannot fail but by what an event tells: waits neither for an answer nor for a
  // daemon. 0 or EIO.
  int tell(ipc::CmCall call, uint32_t handle);
  // Something was told since the last answer, which a daemon may not have heard.
  [[nodiscard]] bool is_unanswered();
  // The same as call() for a request that is nothing but a handle.
  int call(ipc::CmCall call, uint32_t handle);

  // Asks for nothing, and waits like call() for a daemon that answers: 0, EIO.
  int await_daemon();

  // The handle of an id that the daemon makes with the first call() about it, whose error it is if
  // it cannot.
  [[nodiscard]] uint32_t create_id(uint32_t channel, uint32_t space, uint32_t qp_type);

  // For requests of other sessions about ids of this one; zeros before the first channel. Takes no
  // lock: a child asks that was forked at any moment.
  [[nodiscard]] std::array<uint8_t, ipc::kCmSecret> secret() const;
  // Of this process, and not of the one that forked it.
  [[nodiscard]] bool is_own() const;

  std::map<uint32_t, Id*> ids;  // by handle; under objects_mutex()

 private:
  void ask_to_resume(ipc::CmRequest* request) override;
  Taken on_taken(const ipc::CmReply& reply, base::Fd socket) override;

  std::array<std::atomic<uint64_t>, ipc::kCmSecret / sizeof(uint64_t)> secret_{};
  pid_t owner_ = 0;
  uint32_t last_handle_ = 0;
  struct Unmade {
    uint32_t channel, space, qp_type;
  };
  std::map<uint32_t, Unmade> unmade_;  // by handle
};

// Whether this process's rdma_cm is ours, or the system's library is to be asked. Decided by the
// first call that finds either, for good: objects of the two kinds are never mixed.
[[nodiscard]] bool ours();

// The function of the system's librdmacm, or nullptr. Found by absolute path in the loader's
// default directories, or in VRDMA_REAL_LIBRDMACM (ignored in set-uid programs).
[[nodiscard]] void* real_function(const char* name);

}  // namespace vrdma::client

// Leaves the function for the real one of that name unless the process's rdma_cm is ours.
#define VRDMA_PASS_ON(failure, name, ...)                            \
  if (!vrdma::client::ours()) {                                      \
    if (void* real = vrdma::client::real_function(#name))            \
      return reinterpret_cast<decltype(&::name)>(real)(__VA_ARGS__); \
    errno = ENODEV;                                                  \
    return failure;                                                  \
  }
