#include "vrdmad/broker/known_peers.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace vrdma::vrdmad {

using base::fail;
using base::fail_errno;
using base::Fd;
using base::Result;

namespace {
constexpr const char* kFile = "peers";
constexpr const char* kNext = "peers.new";
}  // namespace

void KnownPeers::end() {
  const std::lock_guard lock(mutex_);
  if (!directory_.valid()) return;
  leave_out_the_dead();
  if (!peers_.empty()) return;
  ::unlinkat(directory_.get(), kFile, 0);
  ::rmdir((run_dir_ + "/broker").c_str());
}

// The owner of the run directory may have put another directory there.
Result<void> KnownPeers::open() {
  const std::string path = run_dir_ + "/broker";
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) return fail_errno("make " + path);
  Fd directory(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct stat status {};
  if (!directory.valid() || ::fstat(directory.get(), &status) != 0)
    return fail_errno("open " + path);
  if (status.st_uid != ::geteuid() || (status.st_mode & (S_IRWXG | S_IRWXO)) != 0)
    return fail(EPERM, path + " can be used by another user");
  directory_ = std::move(directory);
  file_ = Fd(::openat(directory_.get(), kFile, O_RDWR | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC,
                      0600));
  if (!file_.valid()) return fail_errno("open " + path + "/" + kFile);
  return {};
}

void KnownPeers::read() {
  if (std::exchange(opened_, true)) return;
  if (auto done = open(); !done) {
    trouble_ = ": " + done.error().message();
    return;
  }
  rdma::Peer peer;
  for (off_t at = 0; ::pread(file_.get(), &peer, sizeof peer, at) == sizeof peer; at += sizeof peer)
    peers_.push_back(peer);
  leave_out_the_dead();
  (void)write_all();
}

void KnownPeers::leave_out_the_dead() {
  std::erase_if(peers_, [](const rdma::Peer& peer) { return !rdma::exists(peer.pid); });
  sweep_at_ = std::max<size_t>(64, 2 * peers_.size());
}

Result<void> KnownPeers::write_all() {
  Fd next(::openat(directory_.get(), kNext,
                   O_RDWR | O_CREAT | O_TRUNC | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!next.valid()) return fail_errno("make a list of processes");
  const size_t size = peers_.size() * sizeof(rdma::Peer);
  if (::write(next.get(), peers_.data(), size) != static_cast<ssize_t>(size) ||
      ::renameat(directory_.get(), kNext, directory_.get(), kFile) != 0)
    return fail_errno("write a list of processes");
  file_ = std::move(next);
  return {};
}

void KnownPeers::add(const rdma::Peer& peer) {
  if (run_dir_.empty()) return;
  const std::lock_guard lock(mutex_);
  read();
  if (std::find(peers_.begin(), peers_.end(), peer) != peers_.end()) return;
  peers_.push_back(peer);
  if (!file_.valid()) return;
  if (peers_.size() >= sweep_at_) {
    leave_out_the_dead();
    (void)write_all();
  } else {
    (void)::write(file_.get(), &peer, sizeof peer);
  }
}

Result<void> KnownPeers::find(const rdma::Peer& peer) {
  if (run_dir_.empty()) return {};
  const std::lock_guard lock(mutex_);
  read();
  if (std::find(peers_.begin(), peers_.end(), peer) != peers_.end()) return {};
  return fail(EPERM, "no broker has checked process " + std::to_string(peer.pid) + trouble_);
}

}  // namespace vrdma::vrdmad
