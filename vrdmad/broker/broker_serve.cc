#include "vrdmad/broker/broker_serve.h"

#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <thread>
#include <utility>

#include "core/ipc/socket.h"
#include "vrdmad/broker/local_broker.h"
#include "vrdmad/broker/worker_child.h"

namespace vrdma::vrdmad::broker {

using base::Fd;

namespace {

constexpr uint64_t kAllCapabilities = ~uint64_t{0};  // that the daemon has kept

// Until the daemon, which started this process, has ended, or says something that it should not.
void wait_for_channels(const Fd& life, const Fd& daemon, unsigned channels,
                       const std::shared_ptr<LocalBroker>& broker) {
  while (wait_for_message(life, daemon) && channels > 0) {
    uint8_t byte = 0;
    std::vector<Fd> channel;
    if (!ipc::receive_message(life.get(), &byte, sizeof byte, &channel) || channel.size() != 1)
      return;
    --channels;
    try {
      std::thread([broker, fd = std::make_shared<Fd>(std::move(channel[0]))] {
        const AnswerTo answer_to = [&broker](const Request& request, Beside* beside) {
          return broker->serve(request, beside);
        };
        while (serve_request(*fd, answer_to)) {
        }
      }).detach();
    } catch (const std::system_error&) {
      return;
    }
  }
}

}  // namespace

bool serve_request(const Fd& channel, const AnswerTo& answer_to) {
  Request request;
  iovec room{&request, sizeof request};
  msghdr header{};
  header.msg_iov = &room;
  header.msg_iovlen = 1;
  const ssize_t length = ::recvmsg(channel.get(), &header, MSG_TRUNC);
  if (length < 0 && (errno == EAGAIN || errno == EINTR)) return true;
  if (length != sizeof request || (header.msg_flags & MSG_CTRUNC) != 0) return false;
  Beside beside;
  const Answer answer = answer_to(request, &beside);
  return send_answer(channel, answer, beside).has_value();
}

void serve(Fd life, const BrokerPlace& place, unsigned channels, const Confine& confine) {
  life = become_child("vrdmad-broker", std::move(life), kAllCapabilities);
  const Fd daemon = open_parent();
  ::umask(0);  // session sockets are for everybody in their namespace
  ::signal(SIGPIPE, SIG_IGN);
  ::signal(SIGCHLD, SIG_DFL);  // workers are reaped
  const auto ground = std::make_shared<WorkerGround>(place);
  confine(life);
  const auto broker = std::make_shared<LocalBroker>(place, ground);
  if (daemon.valid()) wait_for_channels(life, daemon, channels, broker);
  broker->end();
  ::_exit(0);
}

}  // namespace vrdma::vrdmad::broker
