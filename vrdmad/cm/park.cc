// Sessions of rdma_cm whose program is written to disk, and restored as another process.
//
//   kNot --park()--> kParked --detach()--> kDetached --attach()--> kNot, without a connection
//     ^---go_on_parked()---'
//
// A parked program looks to its peers like one that does not read its events. To its library the
// daemon seems to have ended: it finds its connection and the sockets of its channels closed, and
// reconnects as after a takeover. So its requests need not be whole when it is parked, and what it
// had not read of a channel stays in the old socket, before its end; whoever writes the program to
// disk keeps that.
#include <sys/epoll.h>

#include <utility>

#include "vrdmad/cm/cm.h"
#include "vrdmad/cm/session.h"

namespace vrdma::vrdmad {

using base::fail;
using base::Fd;
using base::pass;
using base::Result;

Result<void> CmSession::park(const std::string& token) {
  if (parked_ != Parked::kNot) return fail(EALREADY, "it is parked already");
  // One without channels has nothing: its program begins anew.
  if (!channels_.empty() && !file_.active())
    return fail(ENOTSUP, "no file keeps the state of its connections of rdma_cm");
  parked_ = Parked::kParked;
  token_ = token;
  user_->requests.leave(*this);
  for (auto& [handle, channel] : channels_) channel.watch.reset();
  watch_end();
  return {};
}

// Instead of reading requests.
void CmSession::watch_end() {
  talk_.stop();
  if (!talk_.socket().valid()) return;
  auto watch = cm_.loop().watch(talk_.socket().get(), EPOLLRDHUP, [this](uint32_t) { end(); });
  if (watch) parked_watch_ = std::move(*watch);
}

std::vector<uint64_t> CmSession::sockets() const {
  std::vector<uint64_t> all;
  for (const auto& [handle, channel] : channels_)
    if (channel.its_end != 0) all.push_back(channel.its_end);
  return all;
}

void CmSession::detach() {
  parked_ = Parked::kDetached;
  parked_watch_.reset();
  death_watch_.reset();
  pidfd_.reset();
  talk_.forget_caller();
  for (const auto& [handle, id] : ids_) id->cm->hold();
}

void CmSession::go_on_parked() {
  if (parked_ != Parked::kParked) return;
  parked_ = Parked::kNot;
  parked_watch_.reset();
  if (talk_.socket().valid() && !talk_.listen()) return end();
  for (auto& [handle, channel] : channels_) {
    if (!channel.socket.valid()) continue;
    channel.full = false;
    watch_channel(handle, channel, 0);
    flush(handle);
  }
}

std::shared_ptr<Caller> CmSession::newcomer(pid_t pid) const {
  const bool is_new = is_of(pid) && parked_ == Parked::kNot && channels_.empty() &&
                      arrives_again_ == base::TimePoint{};
  return is_new ? talk_.caller() : nullptr;
}

void CmSession::attach(const rdma::Peer& process, Fd pidfd) {
  if (channels_.empty()) return end();
  talk_.close();
  for (auto& [handle, channel] : channels_) {
    channel.watch.reset();
    channel.socket.reset();
    channel.full = false;
  }
  parked_ = Parked::kNot;
  who_.process = process;
  file_.put_who(who_);
  file_.commit();
  if (!await_process(std::move(pidfd))) return end();
  for (const auto& [handle, id] : ids_) id->cm->release();
}

std::vector<CmSession*> Cm::parked_as(const std::string& token) const {
  std::vector<CmSession*> all;
  for (const auto& session : sessions_)
    if (session->is_parked_as(token)) all.push_back(session.get());
  return all;
}

Result<std::vector<Cm::ParkedSession>> Cm::park(pid_t pid, const std::string& token) {
  std::vector<ParkedSession> all;
  for (const auto& session : sessions_) {
    if (!session->is_of(pid)) continue;
    if (auto parked = session->park(token); !parked) {
      resume_parked(token);
      return pass(std::move(parked).error());
    }
    all.push_back({socket_path(session->netns()), session->sockets()});
  }
  return all;
}

bool Cm::has_parked(const std::string& token) const {
  return away_.contains(token) || !parked_as(token).empty();
}

void Cm::detach(const std::string& token) {
  for (CmSession* const session : parked_as(token)) session->detach();
}

void Cm::resume_parked(const std::string& token) {
  for (CmSession* const session : parked_as(token)) session->go_on_parked();
}

void Cm::end_parked(const std::string& token) {
  for (CmSession* const session : parked_as(token)) session->end();
  away_.erase(token);
}

std::shared_ptr<Caller> Cm::newcomer(uint64_t netns, pid_t pid) const {
  for (const auto& session : sessions_)
    if (session->netns() == netns)
      if (auto caller = session->newcomer(pid); caller != nullptr) return caller;
  return nullptr;
}

Result<void> Cm::attach(const std::string& token, pid_t pid) {
  if (away_.contains(token)) return fail(ENODEV, "a vdevice of its connections has gone");
  struct Attached {
    CmSession* session;
    rdma::Peer process;
    Fd pidfd;
  };
  std::vector<Attached> all;
  for (CmSession* const session : parked_as(token)) {
    const auto caller = newcomer(session->netns(), pid);
    if (caller == nullptr)
      return fail(ENOTCONN, "it is not connected to " + socket_path(session->netns()));
    auto opened = caller->open(false);
    if (!opened) return pass(std::move(opened).error());
    all.push_back({session, caller->peer(), std::move(opened->pidfd)});
  }
  for (Attached& one : all) one.session->attach(one.process, std::move(one.pidfd));
  return {};
}

}  // namespace vrdma::vrdmad
