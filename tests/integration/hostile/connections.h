// A raw client of the rdma_cm protocol, at the rdma_cm socket beside a session socket.
#pragma once

#include <string>
#include <vector>

#include "core/base/fd.h"
#include "core/ipc/cm_messages.h"

namespace vrdma::hostile {

class CmClient {
 public:
  explicit CmClient(const std::string& session_socket);

  void send(const void* data, size_t size, const std::vector<int>& fds = {});
  // The errno, or -1: the daemon ended the session or does not answer.
  int call(ipc::CmRequest& request);
  // The halves of call(): several requests may be in flight, which are answered in their order.
  void ask(ipc::CmRequest& request);
  int answer();
  int call(ipc::CmCall call, uint32_t handle = 0, uint32_t value = 0);
  [[nodiscard]] bool ended(int timeout_ms = 5'000);  // by the daemon

  // Without a reply. False: the session has ended.
  bool tell(ipc::CmRequest& request);

  // A client's usual calls; each must succeed.
  uint32_t channel();
  uint32_t id(uint32_t channel, uint32_t qp_type = 2);
  int resolve(uint32_t id, const std::string& ipv4, uint16_t port);
  static ipc::CmRequest to_resolve(uint32_t id, const std::string& ipv4, uint16_t port);

  ipc::CmReply reply;
  std::vector<base::Fd> fds;  // of channels

 private:
  base::Fd socket_;
  uint32_t sequence_ = 0;
  uint32_t last_id_ = 0;
};

}  // namespace vrdma::hostile
