#include "vrdmad/control/declined.h"

#include <sys/epoll.h>

#include <cerrno>

namespace vrdma::vrdmad {

void Declined::add(Arrival arrival) {
  const uint64_t number = ++last_;
  auto one = std::unique_ptr<One>(
      new One{Entrance::Waiting(std::move(arrival.entrance)),
              Talk(loop_, std::move(arrival.account), std::move(arrival.socket),
                   std::move(arrival.caller), EPOLLET, [this, number] { on_readable(number); }),
              loop_.after(kPatience, [this, number] { all_.erase(number); })});
  if (one->talk.listen()) all_[number] = std::move(one);
}

void Declined::on_readable(uint64_t number) {
  Talk& talk = all_.at(number)->talk;
  ipc::Request request;
  if (!talk.is_busy()) on_heard(number, talk.hear(&request), request);
}

void Declined::on_heard(uint64_t number, Talk::Heard heard, const ipc::Request& request) {
  One& one = *all_.at(number);
  switch (heard) {
    case Talk::Heard::kNothing:
      return;
    case Talk::Heard::kDescriptors:
      if (one.talk.hear_by_intake([this, number](Talk::Heard came, const ipc::Request& late,
                                                 const Shown&) { on_heard(number, came, late); }))
        return;
      break;
    case Talk::Heard::kRequest: {
      ipc::Reply reply;
      reply.error = request.call == ipc::Call::kResume ? EAGAIN : ECHILD;
      (void)(Talk::is_served(request) ? one.talk.answer(&reply)
                                      : one.talk.refuse_version(request, "a program"));
      break;
    }
    case Talk::Heard::kEnd:
    case Talk::Heard::kNonsense:
      break;
  }
  // Not here, because the conversation calls this.
  one.talk.stop();
  one.end = loop_.after(base::Duration(0), [this, number] { all_.erase(number); });
}

}  // namespace vrdma::vrdmad
