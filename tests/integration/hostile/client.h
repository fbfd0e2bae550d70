// The session protocol spoken by hand, without the manners of the library: everything can be sent,
// and everything that a session maps can be written.
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

// Ends the attack: something was not as it must be.
[[noreturn]] void failed(const std::string& what);
void expect(bool holds, const std::string& what);

struct Answer {
  bool came = false;  // false: the session was ended, or nothing came in time
  int error = 0;
  ipc::Reply reply;
  std::vector<base::Fd> fds;
};

// Connects to the daemon's socket at `path`.
[[nodiscard]] base::Fd dial(const std::string& path);

class Client {
 public:
  explicit Client(const std::string& path);  // connects, no more
  uint32_t version = ipc::kVersion;          // of its requests, where they do not say another

  void send(const void* data, size_t size, const std::vector<int>& fds = {});     // as it is
  void send_raw_fds(const void* data, size_t size, const std::vector<int>& fds);  // any number
  void send(ipc::Request& request, const std::vector<int>& fds = {});
  Answer receive(int timeout_ms = 10'000);
  Answer call(ipc::Request& request, const std::vector<int>& fds = {});
  Answer call(ipc::Call call, uint32_t handle = 0);
  [[nodiscard]] bool ended(int timeout_ms = 5'000);  // by the daemon
  [[nodiscard]] int fd() const { return socket_.get(); }
  void hang_up() { socket_.reset(); }

  // kHello: the answer has the challenge, to be stored at `place` before kProve.
  Answer ask_challenge(const void* place, const std::vector<int>& present = {});
  // kHello and kProve as they should be; maps what came.
  Answer hello(const std::vector<int>& present = {});
  void open();  // hello that must succeed
  void map();   // what came of it; again in a forked child, where no mapping is
  // When the daemon has died and another one is there: kResume on a connection of its own, which is
  // the client's from then on.
  Answer resume(const std::string& path);
  // Of the last request; the next one's is greater.
  [[nodiscard]] uint32_t& sequence() { return sequence_; }
  void ring() const;

  base::Fd arena_fd, bell_fd, memory_fd, doorbell, events, events_end;
  base::Mapping arena, bells;

  [[nodiscard]] ipc::KeyEntry* keys() const { return arena.at<ipc::KeyEntry>(ipc::kKeyOffset); }
  [[nodiscard]] ipc::QpBlock* block(const ipc::CreateQpReply& qp) const {
    return arena.at<ipc::QpBlock>(qp.block);
  }

  // What a program would ask for; each must succeed.
  uint32_t alloc_pd();
  uint32_t create_cq(uint32_t channel = ipc::kNoObject);
  ipc::CreateQpReply create_qp(uint32_t pd, uint32_t cq, uint32_t srq = ipc::kNoObject,
                               verbs::QpType type = verbs::QpType::kRc);
  ipc::CreateSrqReply create_srq(uint32_t pd);
  ipc::RegMrReply reg_mr(uint32_t pd, uint64_t addr, uint64_t length, ipc::Way way,
                         uint32_t access = 15);
  // RESET -> RTS, with what of `attributes` belongs to each step.
  void to_rts(const ipc::CreateQpReply& qp, verbs::QpType type,
              const verbs::QpAttributes& attributes);
  // The same, joined to itself; a datagram's to RTS.
  void loop(const ipc::CreateQpReply& qp, verbs::QpType type = verbs::QpType::kRc);
  // After an error, or for a change of mind: RESET, and joined to itself.
  void loop_again(const ipc::CreateQpReply& qp);
  int modify(uint32_t qp, verbs::QpState to, uint32_t mask, verbs::QpAttributes attributes);
  // Publishes a work request and hands the queue to the worker.
  void post(const ipc::CreateQpReply& qp, const ipc::SendWqe& wqe,
            const std::vector<verbs::Sge>& sges);
  void post_receive(const ipc::CreateQpReply& qp, const std::vector<verbs::Sge>& sges);
  // True when sq_tail has come to the head.
  [[nodiscard]] bool executed(const ipc::CreateQpReply& qp, int timeout_ms = 5'000) const;
  // That, or the queue pair is in ERR, where nobody executes any more.
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
