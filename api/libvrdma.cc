#include "api/libvrdma.h"

#include <pthread.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>

namespace vrdma::api {

namespace {

thread_local std::array<char, 1024> last_error{};

// Constant-initialized, so nothing runs when the library is loaded.
std::atomic<int> users = 0;
std::atomic<bool> forked_in_use = false;
pthread_once_t watch_forks = PTHREAD_ONCE_INIT;

}  // namespace

void set_last_error(int code, const char* sentence) noexcept {
  const size_t length = ::strnlen(sentence, last_error.size() - 1);
  std::memcpy(last_error.data(), sentence, length);
  last_error[length] = '\0';
  errno = code;
}

InUse::InUse() {
  ::pthread_once(&watch_forks, [] {
    ::pthread_atfork(nullptr, nullptr, [] {
      if (users > 0) forked_in_use = true;
    });
  });
  ++users;
}
InUse::~InUse() { --users; }
bool InUse::was_forked() { return forked_in_use; }

base::Result<void> check_not_forked() {
  if (!InUse::was_forked()) return {};
  return base::fail(EDEADLK,
                    "this process was forked while libvrdma was in use: it must execute "
                    "another program first");
}

NoSignals::NoSignals() {
  sigset_t all;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before_);
}
NoSignals::~NoSignals() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

OwnedVdevice::OwnedVdevice(v1::Vdev from) : vrdma_vdevice{}, message_(std::move(from)) {
  for (const auto& gid : message_.gids()) {  // by rising index
    gids_.resize(std::max<size_t>(gids_.size(), gid.index()), "");
    gids_.push_back(gid.gid().c_str());
  }
  for (const auto& permission : message_.allowed()) allowed_.push_back(permission.c_str());
  for (const auto& row : message_.quota())
    quota_.push_back({row.kind().c_str(), row.used(), row.limit()});
  name = message_.name().c_str();
  parent = message_.parent().c_str();
  tenant = message_.tenant().c_str();
  fabric = message_.fabric().c_str();
  netns = message_.netns().c_str();
  netdev = message_.netdev().c_str();
  node_guid = message_.node_guid().c_str();
  port_state = message_.port_state().c_str();
  socket = message_.socket().c_str();
  netns_cookie = message_.netns_cookie();
  ifindex = message_.ifindex();
  active_mtu = message_.active_mtu();
  sessions = message_.sessions();
  gids = gids_.data();
  gid_count = gids_.size();
  quota = quota_.data();
  quota_count = quota_.size();
  allowed = allowed_.data();
  allowed_count = allowed_.size();
  id = message_.id();
  by_key_.insert(message_.labels().begin(), message_.labels().end());
  for (const auto& [key, value] : by_key_) labels_.push_back({key.c_str(), value.c_str()});
  labels = labels_.data();
  label_count = labels_.size();
  owner_pid = message_.owner().pid();
  owner_ended = message_.owner().ended() ? 1 : 0;
  end_with_owner = message_.end_with_owner() ? 1 : 0;
  owner_start_time = message_.owner().start_time();
}

}  // namespace vrdma::api

const char* vrdma_last_error() { return vrdma::api::last_error.data(); }

const char* vrdma_version() { return VRDMA_VERSION; }
