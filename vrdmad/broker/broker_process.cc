#include "vrdmad/broker/broker_process.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <utility>

#include "core/base/linger.h"
#include "core/ipc/socket.h"

namespace vrdma::vrdmad {

using base::Fd;
using base::pass;
using base::Result;

namespace {

// Polls for the answer for a moment, which spares this thread a wake-up.
void linger_for_answer(const Fd& channel) {
  base::Linger linger{std::chrono::microseconds(50)};
  linger.begin();
  uint8_t byte = 0;
  while (::recv(channel.get(), &byte, sizeof byte, MSG_PEEK | MSG_DONTWAIT) < 0 &&
         errno == EAGAIN && linger.again()) {
  }
}

}  // namespace

Result<std::shared_ptr<BrokerProcess>> BrokerProcess::attach(Fd socket, unsigned requests) {
  std::shared_ptr<BrokerProcess> process(new BrokerProcess(std::move(socket)));
  for (unsigned i = 0; i < requests; ++i) {
    auto ends = ipc::make_socket_pair();
    if (!ends) return pass(std::move(ends).error(), "start the broker process");
    const uint8_t byte = 0;
    if (auto sent =
            ipc::send_message(process->life_.get(), &byte, sizeof byte, {ends->second.get()});
        !sent)
      return pass(std::move(sent).error(), "start the broker process");
    process->idle_.push_back(std::move(ends->first));
  }
  return process;
}

std::shared_ptr<BrokerProcess> BrokerProcess::over(Fd channel) {
  std::shared_ptr<BrokerProcess> process(new BrokerProcess(Fd()));
  process->idle_.push_back(std::move(channel));
  return process;
}

broker::Answer BrokerProcess::serve(const Request& request, Beside* beside) {
  std::unique_lock lock(mutex_);
  returned_.wait(lock, [this] { return !idle_.empty(); });
  Fd channel = std::move(idle_.back());
  idle_.pop_back();
  lock.unlock();
  Answer answer;
  std::vector<Fd> fds;
  bool served = ipc::send_message(channel.get(), &request, sizeof request).has_value();
  bool lost = false;  // this process had no room for a descriptor
  if (served) {
    linger_for_answer(channel);
    auto received = ipc::receive_any(channel.get(), &answer, sizeof answer, 0);
    served = received.length == sizeof answer;
    lost = received.truncated;
    fds = std::move(received.fds);
  }
  lock.lock();
  idle_.push_back(std::move(channel));
  lock.unlock();
  returned_.notify_one();
  if (!served || fds.size() > beside->size()) {
    answer = {};
    answer.error = EPIPE;
    (void)broker::put("the broker process has ended", answer.reason);
    return answer;
  }
  if (lost) {
    answer = {};
    answer.error = EMFILE;
    (void)broker::put("vrdmad has too many open files", answer.reason);
    return answer;
  }
  std::move(fds.begin(), fds.end(), beside->begin());
  return answer;
}

Result<base::EventLoop::Watch> BrokerProcess::watch(base::EventLoop& loop,
                                                    std::function<void()> died) {
  died_ = std::move(died);
  return loop.watch(life_.get(), EPOLLIN | EPOLLRDHUP | EPOLLET, [this](uint32_t) {
    if (const auto notify = std::exchange(died_, nullptr)) notify();
  });
}

}  // namespace vrdma::vrdmad
