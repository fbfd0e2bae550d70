#include "client/rdmacm/link.h"

#include <dlfcn.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>

#include "client/device/session.h"
#include "client/verbs/find_real.h"
#include "core/ipc/socket.h"

namespace vrdma::client {

namespace {

enum class Whose : int { kOpen, kOurs, kReal };
constinit std::atomic<Whose> whose{Whose::kOpen};

}  // namespace

std::shared_ptr<CmLink> CmLink::current() {
  static auto* const mutex = new std::mutex;
  static auto* const known = new std::shared_ptr<CmLink>;
  const std::lock_guard lock(*mutex);
  if (*known != nullptr && (*known)->owner_ == ::getpid()) return *known;
  const std::string directory = Session::directory();
  auto socket = Session::dial(directory + "/" + ipc::kCmSocket);
  if (!socket) return nullptr;
  auto link = std::make_shared<CmLink>();
  link->socket_ = std::move(*socket);
  link->owner_ = ::getpid();
  *known = link;
  return link;
}

int CmLink::call(ipc::CmRequest& request, ipc::CmReply* reply, base::Fd* beside) {
  const std::lock_guard lock(mutex_);
  const auto unmade = unmade_.find(request.handle);
  if (unmade != unmade_.end()) {
    if (request.call == ipc::CmCall::kDestroyId) {
      unmade_.erase(unmade);
      return 0;
    }
    if (request.call == ipc::CmCall::kMigrateId) {
      unmade->second.channel = request.channel;
      return 0;
    }
    request.channel = unmade->second.channel;
    request.space = unmade->second.space;
    request.qp_type = unmade->second.qp_type;
  }
  request.sequence = ++sequence_;
  if (!ipc::send_message(socket_.get(), &request, sizeof request)) return EIO;
  std::vector<base::Fd> fds;
  if (!ipc::receive_message(socket_.get(), reply, sizeof *reply, &fds)) return EIO;
  if (reply->magic != ipc::kCmMagic || reply->sequence != request.sequence) return EIO;
  if (unmade != unmade_.end() && reply->handle == request.handle) unmade_.erase(unmade);
  if (beside != nullptr && !fds.empty()) *beside = std::move(fds[0]);
  return reply->error;
}

int CmLink::tell(ipc::CmCall call, uint32_t handle) {
  ipc::CmRequest request;
  request.call = call;
  request.handle = handle;
  request.quiet = 1;
  const std::lock_guard lock(mutex_);
  request.sequence = ++sequence_;
  return ipc::send_message(socket_.get(), &request, sizeof request) ? 0 : EIO;
}

int CmLink::call(ipc::CmCall call, uint32_t handle) {
  ipc::CmRequest request;
  ipc::CmReply reply;
  request.call = call;
  request.handle = handle;
  return this->call(request, &reply);
}

uint32_t CmLink::create_id(uint32_t channel, uint32_t space, uint32_t qp_type) {
  const std::lock_guard lock(mutex_);
  const uint32_t handle = ++last_handle_ | ipc::kCmOwnHandle;
  unmade_[handle] = {channel, space, qp_type};
  return handle;
}

bool ours() {
  const Whose known = whose.load(std::memory_order_acquire);
  if (known != Whose::kOpen) return known == Whose::kOurs;
  const int saved = errno;
  Whose found = Whose::kOpen;
  if (CmLink::current() != nullptr)
    found = Whose::kOurs;
  else if (::access("/dev/infiniband/rdma_cm", F_OK) == 0)
    found = Whose::kReal;
  errno = saved;
  Whose open = Whose::kOpen;
  if (found != Whose::kOpen && !whose.compare_exchange_strong(open, found)) found = open;
  return found == Whose::kOurs;
}

void* real_function(const char* name) {
  static void* const library = [] {
    const int saved = errno;
    void* found = find_real("librdmacm.so.1", "VRDMA_REAL_LIBRDMACM");
    errno = saved;
    return found;
  }();
  return library != nullptr ? ::dlsym(library, name) : nullptr;
}

}  // namespace vrdma::client
