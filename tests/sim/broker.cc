#include "tests/sim/broker.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace vrdma::sim {

using vrdmad::broker::get;
using vrdmad::broker::put;

namespace {

vrdmad::Broker::Answer refuse(int error, const std::string& reason) {
  vrdmad::Broker::Answer answer;
  answer.error = error;
  (void)put(reason, answer.reason);
  return answer;
}

}  // namespace

SimBroker::Answer SimBroker::serve(const Request& request, Beside* beside) {
  using Op = Request::Op;
  Answer answer;
  switch (request.op) {
    case Op::kNetns: {
      const std::string name(get(request.text));
      if (name.starts_with("pid:")) {
        const auto process =
            host_.processes.find(static_cast<uint32_t>(std::stoul(name.substr(4))));
        if (process == host_.processes.end()) return refuse(ESRCH, "there is no process " + name);
        answer.number = process->second.netns;
        return answer;
      }
      const auto found = host_.namespaces.find(name);
      if (found == host_.namespaces.end() || found->second.hidden || found->second.of_processes)
        return refuse(ENOENT, "there is no netns '" + name + "'");
      answer.number = found->second.cookie;
      return answer;
    }
    case Op::kListen: {
      Listener listener{std::string(get(request.text)), request.number,
                        base::Fd(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC))};
      auto ready = listener.ready.duplicate();
      if (!ready) return refuse(EMFILE, "no descriptor");
      (*beside)[0] = std::move(*ready);
      answer.entry = ++last_;
      listeners_.emplace(answer.entry, std::move(listener));
      return answer;
    }
    case Op::kAccept: {
      const auto found = listeners_.find(request.entry);
      if (found == listeners_.end()) return refuse(EINVAL, "there is no such listener");
      return accept(found->second, request.first, beside);
    }
    case Op::kForget:
      listeners_.erase(request.entry);
      return answer;
    default:
      return refuse(ENOTSUP, "not simulated");
  }
}

SimBroker::Answer SimBroker::accept(Listener& listener, uint32_t worker, Beside* beside) {
  uint64_t count = 0;
  if (listener.waiting == 0) {
    (void)!::read(listener.ready.get(), &count, sizeof count);
    return refuse(EAGAIN, "nobody waits");
  }
  if (worker != 0 && !workers_.contains(worker)) return refuse(ENXIO, "the worker has ended");
  --listener.waiting;
  Answer answer;
  answer.entry = ++last_;
  answer.peer.pid = 1000;
  answer.peer.netns_cookie = listener.netns;
  (*beside)[0] = base::Fd(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  return answer;
}

std::vector<std::string> SimBroker::session_sockets() const {
  std::vector<std::string> all;
  for (const auto& [entry, listener] : listeners_)
    if (listener.path.ends_with(".sock")) all.push_back(listener.path);
  return all;
}

void SimBroker::connect(const std::string& path) {
  for (auto& [entry, listener] : listeners_) {
    if (listener.path != path) continue;
    ++listener.waiting;
    ::eventfd_write(listener.ready.get(), 1);
  }
}

uint32_t SimBroker::add_worker() {
  workers_.insert(++last_);
  return last_;
}

}  // namespace vrdma::sim
