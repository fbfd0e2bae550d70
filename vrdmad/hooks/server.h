// The socket of container runtimes' hooks: api/hook_wire.h. A thread of the control process serves
// it, because a creation waits for the disk.
//
// Anybody on the host may connect. The intake process receives every message, since descriptors of
// strangers may hang whoever closes them. Connections are limited in total, and for each user but
// root, and each has kPatience from the accept to its end. If it ends before kDone, the container
// has its vdevice no more.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "api/classes.h"
#include "core/base/event_loop.h"
#include "core/base/fd.h"
#include "core/base/token_bucket.h"
#include "core/serve/acceptor.h"
#include "vrdmad/broker/broker.h"
#include "vrdmad/broker/intake.h"
#include "vrdmad/hooks/backend.h"
#include "vrdmad/hooks/policy.h"
#include "vrdmad/hooks/request.h"

namespace vrdma::vrdmad {

class HookServer {
 public:
  static constexpr size_t kMost = 512;         // connections
  static constexpr size_t kMostOfUser = 32;    // of them, of a user that is not root
  static constexpr size_t kMostOfUsers = 384;  // of all that are not root
  // When half of those are taken: of a user below 65,536, or of all users of one range of 65,536
  // above, because they may be one person's (subuid(5)).
  static constexpr size_t kMostOfPerson = 64;
  static constexpr size_t kMostAccounts = 64;  // of the intake, of persons who use it
  static constexpr std::chrono::seconds kPatience{30};
  static constexpr std::chrono::seconds kPatienceOfUsers{2};  // with the first message

  struct Settings {
    std::string run_dir;
    std::string path;  // of the socket, which must not exist
    std::shared_ptr<api::ClassFile> classes;
    Intake* intake = nullptr;
    std::shared_ptr<Broker> broker;
  };
  // On the control thread, like stop(). `backend` must outlive the server.
  [[nodiscard]] static base::Result<std::unique_ptr<HookServer>> start(HookBackend& backend,
                                                                       Settings settings);
  HookServer(const HookServer&) = delete;
  HookServer& operator=(const HookServer&) = delete;
  ~HookServer();

  // Ends all connections, and calls `done` on `loop`, which must run until then, when no call of
  // the backend is left.
  void stop(base::EventLoop& loop, std::function<void()> done);

 private:
  struct Connection;

  HookServer(HookBackend& backend, Settings settings, std::unique_ptr<base::EventLoop> loop);
  void welcome(base::Fd socket);
  template <class Is>
  [[nodiscard]] size_t count(Is is) const;  // connections of users for whom is(uid)
  [[nodiscard]] bool has_its_share(uid_t uid) const;
  [[nodiscard]] bool make_room();
  static void refuse_crowd(const Connection& connection);
  void receive(uint64_t id);
  void on_message(uint64_t id, Intake::Received received);
  [[nodiscard]] base::Result<hook::Answer> serve(Connection& connection, const HookRequest& request,
                                                 const Intake::Received& received);
  [[nodiscard]] base::Result<hook::Answer> set_up(Connection& connection,
                                                  const HookRequest& request,
                                                  const Intake::Received& received);
  void log_refusal(const Connection& connection, const base::Error& why);
  void end(uint64_t id);
  void end_all();
  [[nodiscard]] Intake::AccountRef account_of(uid_t uid);
  [[nodiscard]] base::Result<api::Class> find_class(const std::string& name);
  // What the class of the request grants, or its claim.
  struct Granted {
    VdevSpec spec;
    HookBackend::Terms terms;
    bool memory_reached = false;
  };
  [[nodiscard]] base::Result<Granted> grant_to(const HookRequest& request,
                                               const HookCaller& caller);

  HookBackend& backend_;
  const Settings settings_;
  const std::unique_ptr<base::EventLoop> loop_;               // of thread_, like all below
  std::map<uid_t, std::weak_ptr<Intake::Account>> accounts_;  // by person
  std::map<uint64_t, std::unique_ptr<Connection>> connections_;
  uint64_t next_id_ = 1;
  base::TokenBucket refusals_;  // that are logged, of users
  std::unique_ptr<serve::Acceptor> acceptor_;
  std::thread thread_;
};

}  // namespace vrdma::vrdmad
