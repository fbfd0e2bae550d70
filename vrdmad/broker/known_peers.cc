#include "vrdmad/broker/known_peers.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
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
constexpr const char* kEmptyRoot = "root";
// At the beginning of the file. That of a list without a version is a pid, of which none is so
// great.
constexpr std::array<char, 8> kVersion{'v', 'r', 'd', 'm', 'a', '-', '2', '\0'};

template <class Record>
void read_records(const Fd& file, off_t at, std::vector<Record>* to) {
  Record record;
  for (; ::pread(file.get(), &record, sizeof record, at) == sizeof record; at += sizeof record)
    to->push_back(record);
}

}  // namespace

void KnownPeers::end() {
  const std::lock_guard lock(mutex_);
  if (!directory_.valid()) return;
  leave_out_the_dead();
  if (!known_.empty() || !earlier_.empty()) return;
  ::unlinkat(directory_.get(), kFile, 0);
  ::unlinkat(directory_.get(), kEmptyRoot, AT_REMOVEDIR);
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
  return {};
}

void KnownPeers::read() {
  if (std::exchange(opened_, true)) return;
  if (auto done = open(); !done)
    trouble_ = ": " + done.error().message();
  else
    read_file();
}

void KnownPeers::read_file() {
  const Fd file(::openat(directory_.get(), kFile, O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
  if (!file.valid()) return;
  std::array<char, 8> version{};
  (void)::pread(file.get(), version.data(), version.size(), 0);
  if (version == kVersion)
    read_records(file, sizeof version, &known_);
  else
    read_records(file, 0, &earlier_);
  leave_out_the_dead();
  // The list of an earlier vrdmad remains until a process of it has been checked, so that a broker
  // that is started again before that knows them too.
  if (earlier_.empty()) write_all();
}

void KnownPeers::leave_out_the_dead() {
  std::erase_if(known_, [](const Known& each) { return !rdma::exists(each.peer.pid); });
  std::erase_if(earlier_, [](const rdma::Peer& peer) { return !rdma::exists(peer.pid); });
  sweep_at_ = std::max<size_t>(64, 2 * known_.size());
}

// The oldest identity of a process that has too many: each would otherwise cost memory as long as
// it lives, and it can have any number.
void KnownPeers::leave_out_earlier(const Known& now) {
  const auto is_of_it = [&now](const Known& each) {
    return each.peer.pid == now.peer.pid && each.listener == now.listener;
  };
  std::erase_if(known_, [&](const Known& each) {
    return is_of_it(each) && each.peer.start_time != now.peer.start_time;
  });
  if (std::count_if(known_.begin(), known_.end(), is_of_it) >= kMostOfProcess)
    known_.erase(std::find_if(known_.begin(), known_.end(), is_of_it));
}

void KnownPeers::write_all() {
  file_ = Fd();
  written_ = known_.size();
  Fd next(::openat(directory_.get(), kNext,
                   O_RDWR | O_CREAT | O_TRUNC | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0600));
  const size_t size = known_.size() * sizeof(Known);
  if (next.valid() &&
      ::write(next.get(), kVersion.data(), kVersion.size()) == ssize_t{kVersion.size()} &&
      ::write(next.get(), known_.data(), size) == static_cast<ssize_t>(size) &&
      ::renameat(directory_.get(), kNext, directory_.get(), kFile) == 0)
    file_ = std::move(next);
}

Result<Fd> KnownPeers::open_root(int directory, const std::string& path) {
  if (::mkdirat(directory, path.c_str(), 0555) != 0 && errno != EEXIST)
    return fail_errno("make the empty directory " + path);
  Fd root(::openat(directory, path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct stat status {};
  if (!root.valid() || ::fstat(root.get(), &status) != 0)
    return fail_errno("open the empty directory " + path);
  if (status.st_uid != ::geteuid() || (status.st_mode & (S_IWUSR | S_IWGRP | S_IWOTH)) != 0)
    return fail(EPERM, path + " can be changed by another user");
  return root;
}

Result<Fd> KnownPeers::empty_root() {
  if (run_dir_.empty()) {
    std::string path = "/tmp/vrdmad-XXXXXX";
    if (::mkdtemp(path.data()) == nullptr || ::chmod(path.c_str(), 0555) != 0)
      return fail_errno("make the empty directory " + path);
    auto root = open_root(AT_FDCWD, path);
    ::rmdir(path.c_str());
    return root;
  }
  const std::lock_guard lock(mutex_);
  read();
  if (!directory_.valid()) return fail(EPERM, "there is no empty directory" + trouble_);
  return open_root(directory_.get(), kEmptyRoot);
}

void KnownPeers::add(const rdma::Peer& peer, const ListenerName& listener) {
  if (run_dir_.empty()) return;
  const std::lock_guard lock(mutex_);
  read();
  const Known added{peer, listener};
  if (std::find(known_.begin(), known_.end(), added) != known_.end()) return;
  leave_out_earlier(added);
  known_.push_back(added);
  if (!directory_.valid()) return;
  if (++written_ >= sweep_at_) {
    leave_out_the_dead();
    file_ = Fd();
  }
  if (!file_.valid() || ::write(file_.get(), &added, sizeof added) != sizeof added) write_all();
}

Result<void> KnownPeers::find(const rdma::Peer& peer, const ListenerName& listener) {
  if (run_dir_.empty()) return {};
  const std::lock_guard lock(mutex_);
  read();
  if (std::find(known_.begin(), known_.end(), Known{peer, listener}) != known_.end() ||
      std::find(earlier_.begin(), earlier_.end(), peer) != earlier_.end())
    return {};
  const std::string process = "process " + std::to_string(peer.pid);
  for (const Known& each : known_)
    if (each.peer == peer) return fail(EPERM, process + ": it has not connected to that vdevice");
  if (!rdma::exists(peer.pid)) return fail(ESRCH, process + " has ended");
  return fail(EPERM, "no broker has checked " + process + trouble_);
}

}  // namespace vrdma::vrdmad
