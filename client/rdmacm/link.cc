#include "client/rdmacm/link.h"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>

#include "client/dial/find_real.h"
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
  if (*known != nullptr && (*known)->is_own() && !(*known)->lost_) return *known;
  const std::string path = socket_directory() + "/" + ipc::kCmSocket;
  auto link = std::make_shared<CmLink>();
  auto socket = link->newcomer_.begin(path);
  if (!socket) return nullptr;
  link->path_ = path;
  link->socket_ = std::move(*socket);
  link->owner_ = ::getpid();
  *known = link;
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

bool CmLink::exchange(const ipc::CmRequest& request, ipc::CmReply* reply, base::Fd* beside) {
  std::vector<base::Fd> fds;
  fds.reserve(ipc::kMaxFds);  // nothing throws between a request and its answer
  if (!ipc::send_message(socket_.get(), &request, sizeof request)) return false;
  *reply = {};
  if (!ipc::receive_reply(socket_.get(), reply, &fds)) return false;
  if (reply->magic != ipc::kCmMagic || reply->sequence != request.sequence) return false;
  told_.clear();  // a daemon does one thing after the other
  newcomer_.answered();
  if (beside != nullptr && !fds.empty()) *beside = std::move(fds[0]);
  return true;
}

// Whether another daemon serves us now. Does not wait once there is a channel.
CmLink::Resumed CmLink::resume() {
  if (lost_) return Resumed::kNever;
  const auto now = std::chrono::steady_clock::now();
  if (!died_) died_ = now;
  ipc::CmRequest request;
  ipc::CmReply reply;
  request.call = ipc::CmCall::kResume;
  const auto known = secret();
  std::copy(known.begin(), known.end(), request.param.data);
  base::Fd socket;
  if (begun_) {
    if (grace_.count() != 0) socket = redial_.ask(path_, request, &reply);
  } else if (auto dialled = newcomer_.again(path_)) {
    socket = std::move(*dialled);  // nothing is known of us, and nothing need be
  }
  if ((!socket.valid() || reply.error == EAGAIN) && now < *died_ + grace_) return Resumed::kNotYet;
  if (!socket.valid() || reply.error != 0) {
    lost_ = true;
    redial_ = {};
    socket_.reset();
    return Resumed::kNever;
  }
  died_.reset();
  ++daemon_;
  socket_ = std::move(socket);
  if (begun_) grace_ = std::chrono::milliseconds(reply.grace_ms);
  for (const auto& told : told_)
    if (static_cast<int32_t>(told.sequence - reply.count) > 0)
      (void)ipc::send_message(socket_.get(), &told, sizeof told);
  return Resumed::kYes;
}

CmLink::Resumed CmLink::wait_for_daemon() {
  auto pause = std::chrono::milliseconds(2);
  for (;;) {
    const Resumed resumed = resume();
    if (resumed != Resumed::kNotYet) return resumed;
    redial_.wait(pause);
    pause = std::min(2 * pause, std::chrono::milliseconds(100));
  }
}

int CmLink::call(ipc::CmRequest& request, ipc::CmReply* reply, base::Fd* beside, bool wait) {
  std::unique_lock lock(mutex_, std::defer_lock);
  if (wait)
    lock.lock();
  else if (!lock.try_lock())
    return EAGAIN;  // another call is about it
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
  request.sequence = next_sequence();
  while (!exchange(request, reply, beside)) {
    const Resumed resumed = wait ? wait_for_daemon() : resume();
    if (resumed != Resumed::kYes) return resumed == Resumed::kNotYet ? EAGAIN : EIO;
  }
  if (unmade != unmade_.end() && reply->handle == request.handle) unmade_.erase(unmade);
  if (request.call == ipc::CmCall::kCreateChannel && reply->error == 0) {
    begun_ = true;
    grace_ = std::chrono::milliseconds(reply->grace_ms);
    for (size_t i = 0; i < secret_.size(); ++i) secret_[i] = reply->guids[i];
  }
  return reply->error;
}

int CmLink::tell(ipc::CmCall call, uint32_t handle) {
  constexpr size_t kMost = 64;
  std::unique_lock lock(mutex_);
  if (told_.size() == kMost) {
    lock.unlock();
    return this->call(call, handle) == EIO ? EIO : 0;
  }
  ipc::CmRequest request;
  request.call = call;
  request.handle = handle;
  request.quiet = 1;
  request.sequence = next_sequence();
  while (!ipc::send_message(socket_.get(), &request, sizeof request))
    if (wait_for_daemon() != Resumed::kYes) return EIO;
  told_.push_back(request);
  return 0;
}

bool CmLink::is_unanswered() {
  const std::lock_guard lock(mutex_);
  return !told_.empty();
}

// 0 would be none.
uint32_t CmLink::next_sequence() {
  if (++sequence_ == 0) ++sequence_;
  return sequence_;
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
