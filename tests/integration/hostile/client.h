// A raw client of the session protocol: it can send anything, and write to everything that a
// session maps.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/fd.h"
#include "core/base/mapping.h"
#include "core/ipc/layout.h"
#include "core/ipc/messages.h"

namespace vrdma::hostile {

// Ends the attack with a failure.
[[noreturn]] void failed(const std::string& what);
void expect(bool holds, const std::string& what);

struct Answer {
  bool came = false;  // false: the session ended or no reply came in time
  int error = 0;
  ipc::Reply reply;
  std::vector<base::Fd> fds;
};

// Connects to the daemon's socket at `path`.
[[nodiscard]] base::Fd dial(const std::string& path);

class Client {
 public:
  explicit Client(const std::string& path);  // only connects
  uint32_t version = ipc::kVersion;          // of requests that do not set one

  void send(const void* data, size_t size, const std::vector<int>& fds = {});     // unchanged
  void send_raw_fds(const void* data, size_t size, const std::vector<int>& fds);  // any number
  void send(ipc::Request& request, const std::vector<int>& fds = {});
  Answer receive(int timeout_ms = 10'000);
  Answer call(ipc::Request& request, const std::vector<int>& fds = {});
  Answer call(ipc::Call call, uint32_t handle = 0);
  [[nodiscard]] bool ended(int timeout_ms = 5'000);  // by the daemon
  [[nodiscard]] int fd() const { return socket_.get(); }
  void hang_up() { socket_.reset(); }

  // kHello: the reply contains the challenge, which must be stored at `place` before kProve.
  Answer ask_challenge(const void* place, const std::vector<int>& present = {});
  // A valid kHello and kProve; maps the arenas.
  Answer hello(const std::vector<int>& present = {});
  void open();  // hello() that must succeed
  void map();   // maps the arenas; call again in a forked child, which inherits no mappings
  // Resumes the session with the next daemon: kResume on a new connection, which the client uses
  // from then on.
  Answer resume(const std::string& path);
  // The sequence of the last request; the next one's is greater.
  [[nodiscard]] uint32_t& sequence() { return sequence_; }
  void ring() const;

  base::Fd arena_fd, bell_fd, memory_fd, doorbell, events, events_end;
  base::Mapping arena, bells;

  [[nodiscard]] ipc::KeyEntry* keys() const { return arena.at<ipc::KeyEntry>(ipc::kKeyOffset); }
  [[nodiscard]] ipc::QpBlock* block(const ipc::CreateQpReply& qp) const {
    return arena.at<ipc::QpBlock>(qp.block);
  }

  // A client's usual calls; each must succeed.
  uint32_t alloc_pd();
  uint32_t create_cq(uint32_t channel = ipc::kNoObject);
  ipc::CreateQpReply create_qp(uint32_t pd, uint32_t cq, uint32_t srq = ipc::kNoObject,
                               verbs::QpType type = verbs::QpType::kRc);
  ipc::CreateSrqReply create_srq(uint32_t pd);
  ipc::RegMrReply reg_mr(uint32_t pd, uint64_t addr, uint64_t length, ipc::Way way,
                         uint32_t access = 15);
  // RESET -> RTS; each step takes its part of `attributes`.
  void to_rts(const ipc::CreateQpReply& qp, verbs::QpType type,
              const verbs::QpAttributes& attributes);
  // The same, connected to itself; a datagram QP only to RTS.
  void loop(const ipc::CreateQpReply& qp, verbs::QpType type = verbs::QpType::kRc);
  // Returns to RESET, after an error for example, and connects to itself again.
  void loop_again(const ipc::CreateQpReply& qp);
  int modify(uint32_t qp, verbs::QpState to, uint32_t mask, verbs::QpAttributes attributes);
  // Publishes a work request and hands the queue to the worker.
  void post(const ipc::CreateQpReply& qp, const ipc::SendWqe& wqe,
            const std::vector<verbs::Sge>& sges);
  void post_receive(const ipc::CreateQpReply& qp, const std::vector<verbs::Sge>& sges);
  // True when sq_tail reaches the head.
  [[nodiscard]] bool executed(const ipc::CreateQpReply& qp, int timeout_ms = 5'000) const;
  // As executed(), or the queue pair is in ERR, where nothing is executed.
  [[nodiscard]] bool settled(const ipc::CreateQpReply& qp, int timeout_ms = 10'000) const;
  [[nodiscard]] ipc::SendResult last_result(const ipc::CreateQpReply& qp) const;

 private:
  base::Fd socket_;
  uint32_t sequence_ = 0;
  volatile uint64_t challenge_ = 0;
  uint32_t session_ = 0;
};

ipc::Request request_of(ipc::Call call);

}  // namespace vrdma::hostile
