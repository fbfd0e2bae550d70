// A worker process, as the broker starts it.
//
// It executes the program `vrdmad-worker`, which is static and opens no file, with
//   0, 1  /dev/null                    2  the broker's, which is /dev/null too
//   3     a socket to control          4  a channel to the broker (broker_wire.h)
// and no other descriptor. Its root is an empty directory of root's: by chroot(2), or, where a
// container's seccomp profile forbids that, as the only mount of a mount namespace. Its network
// namespace is an empty one, which all workers share. It has no groups, no capabilities and no way
// to gain any, and no core file. It has a control group (worker_groups.h), and a user of its own:
// the kernel counts some things only for each user, such as the descriptors that are on their way
// in sockets (unix(7)) and the files that epoll watches (epoll(7)). It inherits the broker's filter
// of system calls, and replaces it by a narrower one (vrdmad/worker_system_calls.h).
//
// A thread of the broker forks each worker, serves its channel, and reaps it. The kernel kills the
// worker when that thread ends, and so with the broker. A worker can thus delay or end only its own
// channel. What its requests cost is bounded: beyond that they wait.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <set>

#include "core/base/error.h"
#include "core/base/fd.h"
#include "vrdmad/broker/broker.h"
#include "vrdmad/broker/broker_place.h"
#include "vrdmad/broker/broker_serve.h"
#include "vrdmad/broker/worker_groups.h"

namespace vrdma::vrdmad {

// The numbers, from 0, of workers that have not been reaped: no two have the same one. Any thread.
class WorkerPlaces {
 public:
  static constexpr unsigned kMost = BrokerPlace::kMostWorkers;
  // EAGAIN: all are taken.
  [[nodiscard]] base::Result<unsigned> take();
  void give_back(unsigned place);
  [[nodiscard]] bool empty();

 private:
  std::mutex mutex_;
  std::set<unsigned> taken_;
};

// What all workers of a broker share.
struct WorkerGround {
  // Makes the namespaces, finds the program, and removes groups that are left. Call before the
  // broker's system calls are confined. What fails is reported when a worker is started.
  explicit WorkerGround(const BrokerPlace& place);

  base::Result<base::Fd> program;  // O_PATH
  uint64_t netns_cookie = 0;       // 0: there is none; set while the next is made
  base::Result<base::Fd> netns;
  base::Result<base::Fd> mounts;  // a mount namespace with the empty root alone; none: chroot(2)
  // Each worker's user; none: they have the daemon's.
  struct User {
    uid_t uid;
    gid_t gid;
  };
  [[nodiscard]] User user_of(unsigned place) const;
  [[nodiscard]] bool has_users() const { return first_user_ != 0; }

  const uint64_t worker_time;  // see BrokerPlace
  WorkerGroups groups;
  WorkerPlaces places;

 private:
  const User daemon_;
  const uid_t first_user_;
};

// Any thread.
class WorkerChild {
 public:
  // Answers a request of the worker; runs on the worker's thread of the broker.
  using Serve = broker::AnswerTo;

  WorkerChild() = default;
  WorkerChild(const WorkerChild&) = delete;
  WorkerChild& operator=(const WorkerChild&) = delete;
  ~WorkerChild();  // kills it, and does not wait for its end

  // Returns when it has executed its program. `root`: the directory. `link`: its descriptor 3.
  // `report`: see Request::Op::kStartWorker. Call once.
  [[nodiscard]] base::Result<void> start(std::shared_ptr<WorkerGround> ground, base::Fd root,
                                         base::Fd link, base::Fd report, Serve serve);
  [[nodiscard]] bool lives() const { return life_ != nullptr && life_->lives; }
  [[nodiscard]] base::Result<base::Fd> pidfd() const;  // of a started one

 private:
  struct Life {
    std::atomic<bool> lives = false;
    base::Fd pidfd;  // set before it lives
  };
  struct Start;
  static void run(Start start);
  const std::shared_ptr<Life> life_ = std::make_shared<Life>();
};

}  // namespace vrdma::vrdmad
