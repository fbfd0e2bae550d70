#include "client/rdmacm/link.h"

#include <dlfcn.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>

#include "client/device/session.h"
#include "core/ipc/socket.h"

namespace vrdma::client {

namespace {

#if defined(__x86_64__)
#define VRDMA_MULTIARCH "x86_64-linux-gnu"
#elif defined(__aarch64__)
#define VRDMA_MULTIARCH "aarch64-linux-gnu"
#endif

constexpr const char* kPaths[] = {
    "/usr/lib/" VRDMA_MULTIARCH "/librdmacm.so.1",
    "/lib/" VRDMA_MULTIARCH "/librdmacm.so.1",
    "/usr/lib64/librdmacm.so.1",
    "/lib64/librdmacm.so.1",
    "/usr/lib/librdmacm.so.1",
    "/lib/librdmacm.so.1",
};

void* load(const char* path) {
  Dl_info own{};
  struct stat theirs {
  }, mine{};
  ::dladdr(reinterpret_cast<void*>(&load), &own);
  if (::stat(path, &theirs) != 0 || ::stat(own.dli_fname, &mine) != 0) return nullptr;
  if (theirs.st_dev == mine.st_dev && theirs.st_ino == mine.st_ino) return nullptr;
  return ::dlopen(path, RTLD_LAZY | RTLD_LOCAL);
}

void* find() {
  if (const char* path = ::secure_getenv("VRDMA_REAL_LIBRDMACM"); path != nullptr)
    return load(path);
  for (const char* path : kPaths)
    if (void* handle = load(path); handle != nullptr) return handle;
  return nullptr;
}

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
  request.sequence = ++sequence_;
  if (!ipc::send_message(socket_.get(), &request, sizeof request)) return EIO;
  std::vector<base::Fd> fds;
  if (!ipc::receive_message(socket_.get(), reply, sizeof *reply, &fds)) return EIO;
  if (reply->magic != ipc::kCmMagic || reply->sequence != request.sequence) return EIO;
  if (beside != nullptr && !fds.empty()) *beside = std::move(fds[0]);
  return reply->error;
}

int CmLink::call(ipc::CmCall call, uint32_t handle) {
  ipc::CmRequest request;
  ipc::CmReply reply;
  request.call = call;
  request.handle = handle;
  return this->call(request, &reply);
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
    void* found = find();
    errno = saved;
    return found;
  }();
  return library != nullptr ? ::dlsym(library, name) : nullptr;
}

}  // namespace vrdma::client
