#include "client/rdmacm/link.h"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>

#include "client/dial/across_fork.h"
#include "client/dial/find_real.h"
#include "core/ipc/socket.h"

namespace vrdma::client {

namespace {

enum class Whose : int { kOpen, kOurs, kReal };
constinit std::atomic<Whose> whose{Whose::kOpen};

}  // namespace

std::shared_ptr<CmLink> CmLink::current() {
  // A forked child makes another one.
  auto& all = AcrossFork<std::shared_ptr<CmLink>, false>::instance();
  const std::lock_guard lock(all.mutex);
  std::shared_ptr<CmLink>& known = all.content;
  if (known != nullptr && known->is_own() && !known->is_lost()) return known;
  const std::string directory = socket_directory();
  auto link = std::make_shared<CmLink>();
  const int error = directory.empty() ? errno : link->open(directory + "/" + ipc::kCmSocket);
  if (error != 0) {
    errno = error == EMFILE ? EMFILE : ENODEV;
    return nullptr;
  }
  link->owner_ = ::getpid();
  known = link;
  return link;
}

bool CmLink::is_own() const { return owner_ == ::getpid(); }

std::array<uint8_t, ipc::kCmSecret> CmLink::secret() const {
  std::array<uint8_t, ipc::kCmSecret> bytes{};
  for (size_t i = 0; i < secret_.size(); ++i) {
    const uint64_t word = secret_[i].load();
    std::memcpy(bytes.data() + i * sizeof word, &word, sizeof word);
  }
  return bytes;
}

void CmLink::ask_to_resume(ipc::CmRequest* request) {
  request->call = ipc::CmCall::kResume;
  const auto known = secret();
  std::copy(known.begin(), known.end(), request->param.data);
}

CmLink::Taken CmLink::on_taken(const ipc::CmReply& reply, base::Fd socket) {
  socket_ = std::move(socket);
  return {std::chrono::milliseconds(reply.grace_ms), reply.count};
}

int CmLink::call(ipc::CmRequest& request, ipc::CmReply* reply, base::Fd* beside, bool wait) {
  std::unique_lock lock(mutex_, std::defer_lock);
  if (wait)
    lock.lock();
  else if (!lock.try_lock())
    return EAGAIN;  // another thread's call is in progress
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
  std::vector<base::Fd> fds;
  const int error = converse(request, reply, {}, &fds, wait);
  if (beside != nullptr && !fds.empty()) *beside = std::move(fds[0]);
  if (unmade != unmade_.end() && reply->handle == request.handle) unmade_.erase(unmade);
  if (request.call == ipc::CmCall::kCreateChannel && error == 0) {
    known(std::chrono::milliseconds(reply->grace_ms));
    for (size_t i = 0; i < secret_.size(); ++i) secret_[i] = reply->guids[i];
  }
  return error;
}

int CmLink::tell(ipc::CmCall call, uint32_t handle) {
  ipc::CmRequest request;
  request.call = call;
  request.handle = handle;
  request.quiet = 1;
  {
    const std::lock_guard lock(mutex_);
    if (const int error = tell_now(request, true); error != EAGAIN) {
      if (error == 0) pass_on_told();
      return error;
    }
  }
  return this->call(call, handle) == EIO ? EIO : 0;
}

bool CmLink::is_unanswered() {
  const std::lock_guard lock(mutex_);
  return !told_.empty();
}

int CmLink::call(ipc::CmCall call, uint32_t handle) {
  ipc::CmRequest request;
  ipc::CmReply reply;
  request.call = call;
  request.handle = handle;
  return this->call(request, &reply);
}

int CmLink::await_daemon() {
  ipc::CmRequest request;
  ipc::CmReply reply;
  request.call = ipc::CmCall::kDevices;
  return call(request, &reply);
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
  bool mine = false;
  if (CmLink::current() != nullptr)
    found = Whose::kOurs;
  else if (errno == EMFILE)
    mine = true;  // nobody knows; the call fails with the same
  else if (::access("/dev/infiniband/rdma_cm", F_OK) == 0)
    found = Whose::kReal;
  errno = saved;
  Whose open = Whose::kOpen;
  if (found != Whose::kOpen && !whose.compare_exchange_strong(open, found)) found = open;
  return mine || found == Whose::kOurs;
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
