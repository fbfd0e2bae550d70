#include "vrdmad/worker/session.h"

#include <poll.h>
#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#include <iterator>

#include "vrdmad/worker/calls.h"

namespace vrdma::vrdmad {

using base::Fd;
using ipc::Call;

namespace {

// How long requests that were posted before delay the end of their queue pair.
constexpr auto kPostedTime = std::chrono::milliseconds(50);

// The queue pair that the request ends, or all of them.
std::optional<uint32_t> ended_by(const ipc::Request& request) {
  switch (request.call) {
    case Call::kDestroyQp:
      return request.handle.handle;
    case Call::kModifyQp:
      if ((request.modify_qp.mask & verbs::kQpState) == 0 ||
          request.modify_qp.attributes.state != static_cast<uint32_t>(verbs::QpState::kErr))
        return {};
      return request.modify_qp.handle;
    case Call::kGoodbye:
      return SessionObjects::kAllQps;
    default:
      return {};
  }
}

bool may_have_fds(const ipc::Request& request) {
  const CallTraits::Beside beside = traits_of(request.call).beside;
  return beside == CallTraits::kFds ||
         (beside == CallTraits::kFdsIfRaw &&
          request.create_qp.type == static_cast<uint32_t>(verbs::QpType::kRawPacket));
}

// A request of a newer client has something that this daemon does not know.
bool has_zero_tail(const ipc::Request& request) {
  return std::all_of(request.bytes + traits_of(request.call).request, std::end(request.bytes),
                     [](uint8_t byte) { return byte == 0; });
}

}  // namespace

base::Result<std::unique_ptr<Session>> Session::start(Fd socket, std::shared_ptr<Caller> caller,
                                                      std::unique_ptr<Connection> connection,
                                                      std::shared_ptr<Vdevice> vdevice, Host host) {
  std::unique_ptr<Session> session(new Session(std::move(socket), std::move(caller),
                                               std::move(connection), std::move(vdevice),
                                               std::move(host)));
  if (!session->talk_.listen()) return base::fail(ENFILE, "watch a session");
  return session;
}

Session::Session(Fd socket, std::shared_ptr<Caller> caller, std::unique_ptr<Connection> connection,
                 std::shared_ptr<Vdevice> vdevice, Host host)
    : Runnable(vdevice->lane),
      connection_(std::move(connection)),
      vdevice_(std::move(vdevice)),
      host_(std::move(host)),
      talk_(loop(), vdevice_->intake, std::move(socket), std::move(caller), EPOLLET,
            [this] { on_socket(); }),
      heard_at_(loop().now()) {}

Session::~Session() {
  host_.runner.remove(this);
  vdevice_->requests.leave(*this);
  too_soon_.reset();
  death_watch_.reset();
  doorbell_watch_.reset();
  talk_.close();
  if (objects_ != nullptr && !goodbye_) objects_->leave_survivors();
  objects_.reset();
}

void Session::end(bool malformed) {
  if (over_) return;
  over_ = true;
  if (malformed) {
    ++vdevice_->counters.malformed;
    note_refusal(Refused::Why::kProtocol);
  }
  talk_.stop();
  death_watch_.reset();
  doorbell_watch_.reset();
  // Not here: a queue of this session may be running, and it may take long to destroy everything.
  vdevice_->backlog.add([this, alive = std::weak_ptr(alive_)] {
    if (alive.expired()) return;
    const auto ended = host_.ended;  // it destroys this session, and with it host_
    const auto vdevice = vdevice_;
    ended(this);
    vdevice->lane.loop().post([vdevice] {});  // it may be the last, and this is its lane's turn
  });
}

void Session::on_socket() {
  readable_ = true;
  host_.runner.activate(this);
}

// Nobody pays for hearing it ring while the lane rests, so that is not done.
void Session::on_doorbell() {
  rung_ = true;
  if (lane().rests()) doorbell_watch_.reset();
  host_.runner.activate(this);
}

base::Result<base::EventLoop::Watch> Session::watch(const Fd& doorbell) {
  return loop().watch(doorbell.get(), EPOLLIN | EPOLLET, [this](uint32_t) { on_doorbell(); });
}

// Before the look at what was rung for.
bool Session::hear_again() {
  if (doorbell_watch_.active()) return true;
  auto ring = watch(doorbell_);
  if (!ring) return false;
  doorbell_watch_ = std::move(*ring);
  return true;
}

bool Session::run(transport::Turn& turn) {
  if (over_) return false;
  if (parked_ != Parked::kNot && !ending_) return false;
  if (std::exchange(rung_, false)) {
    if (!hear_again()) {
      end(false);
      return false;
    }
    objects_->scan_doorbells();
    turn.spend(transport::kRequestCost);
  }
  if (ending_) {
    if (turn.now() < ending_->latest && objects_->gets_on(*ended_by(ending_->request))) return true;
    const Ending over = *std::exchange(ending_, std::nullopt);
    handle(over.request, {});
    if (over_) return false;
    turn.spend(transport::kRequestCost);
  }
  if (readable_) {
    const base::TimePoint begun = turn.now();
    read_request();
    turn.spend_time(turn.now() - begun);
  }
  if (over_ || parked_ != Parked::kNot) return false;
  return ending_.has_value() || (readable_ && !provisioning::RequestRate::waits(*this));
}

void Session::read_request() {
  ipc::Request request;
  if (talk_.is_busy()) {
    readable_ = false;
    reads_later_ = !talk_.is_awaited();  // its program does not wait, and may have sent more
    return on_heard(talk_.hear_while_busy(), request, {});
  }
  if (vdevice_->requests.admits(*this)) on_heard(talk_.hear(&request), request, {});
}

bool Session::is_silent_for(base::Duration time) const {
  pollfd said{talk_.socket().get(), POLLIN, 0};
  return objects_ == nullptr && !talk_.is_busy() && loop().now() - heard_at_ >= time &&
         ::poll(&said, 1, 0) == 0;
}

void Session::on_heard(Talk::Heard heard, const ipc::Request& request, Fds fds) {
  switch (heard) {
    case Talk::Heard::kNothing:
      readable_ = false;
      return;
    case Talk::Heard::kEnd:
      return end(false);
    case Talk::Heard::kNonsense:
      return end(true);
    case Talk::Heard::kDescriptors:
      provisioning::RequestRate::has_read(*this);
      if (!talk_.hear_by_intake([this](Talk::Heard came, const ipc::Request& late, Fds beside) {
            on_heard(came, late, std::move(beside));
            on_socket();  // there may be more
          }))
        end(true);
      return;  // the end may have come before: it is looked for
    case Talk::Heard::kRequest:
      has_spoken_ = true;
      if (objects_ == nullptr) heard_at_ = loop().now();
      break;
  }
  provisioning::RequestRate::has_read(*this);
  if (!fds.empty() && !may_have_fds(request)) return end(true);
  // Another request may wait for what this program has paused, and then its end of the pause would
  // not be read. The library asks nothing else meanwhile.
  if (objects_ != nullptr && request.call != Call::kReach && request.call != Call::kHold)
    objects_->end_pauses();
  if (comes_too_soon(request) || asks_mappings(request) || waits_for_posted(request)) return;
  handle(request, std::move(fds));
}

// Registrations beyond mr_rate wait here. The program is patient: to it the daemon is busy.
bool Session::comes_too_soon(const ipc::Request& request) {
  if (objects_ == nullptr || !traits_of(request.call).paced) return false;
  const auto now = loop().now();
  auto& bucket = vdevice_->registrations;
  bucket.spend(now, 1);
  const base::Duration wait = bucket.wait(now);
  if (wait.count() == 0) return false;
  vdevice_->ledger.count_refusal(provisioning::Kind::kMrRate);
  talk_.defer();
  too_soon_ = loop().after(wait, [this, request] {
    if (!asks_mappings(request)) handle(request, {});
  });
  return true;
}

// What is reached ignores page protection, so the process's own mappings must permit the
// access of the region. They may take long to read: the answer waits, the worker does not.
// Memory on demand need not be there yet.
bool Session::asks_mappings(const ipc::Request& request) {
  if (objects_ == nullptr || vdevice_->gone ||
      (request.call != Call::kRegMr && request.call != Call::kReregMr))
    return false;
  const ipc::RegMrRequest& region =
      request.call == Call::kRegMr ? request.reg_mr : request.rereg_mr.to;
  if (region.way != static_cast<uint32_t>(ipc::Way::kReached) ||
      (region.access & verbs::kOnDemand) != 0)
    return false;
  rdma::Reach::Job job;
  job.only_asked = true;
  job.write = (region.access & verbs::kLocalWrite) != 0;
  job.parts.push_back({region.addr, region.length});
  job.done = [this, request, alive = std::weak_ptr(alive_)](bool permitted) {
    if (alive.expired() || over_) return;
    if (permitted) return handle(request, {});
    ++vdevice_->counters.refused;
    Answer answer;
    answer.reply.error = EFAULT;
    send_answer(std::move(answer));
  };
  talk_.defer();
  objects_->context().process->reach()->submit(std::move(job));
  return true;
}

// A program may post a last message and disconnect, or destroy its queue pair, without waiting for
// the completion. An adapter has such a message on the wire by then, so the peer gets it. This
// session reads no other request meanwhile.
bool Session::waits_for_posted(const ipc::Request& request) {
  const auto qp = ended_by(request);
  if (objects_ == nullptr || !qp) return false;
  objects_->kick(*qp);
  if (!objects_->gets_on(*qp)) return false;
  ending_ = {request, loop().now() + kPostedTime};
  return true;
}

void Session::handle(const ipc::Request& request, Fds fds) {
  ++vdevice_->counters.requests;
  if (!Talk::is_served(request)) {
    ++vdevice_->counters.refused;
    if (talk_.refuse_version(request, name()) != 0) end(true);
    return;
  }
  Answer answer;
  (void)vdevice_->ledger.take_refused();  // of what nobody waits for
  if (!has_zero_tail(request)) {
    answer.reply.error = E2BIG;
  } else if (request.call == Call::kResume && objects_ == nullptr && greeting_ == nullptr &&
             fds.empty()) {
    answer.reply.error = resume(request);
    if (answer.reply.error == 0) return end(false);
  } else if (journal_ == nullptr) {
    answer.reply.error = dispatch(request, std::move(fds), &answer);
  } else if (!journal_->serve_repeated(request, &answer)) {
    journal_->will_serve(request);
    answer.reply.error = dispatch(request, std::move(fds), &answer);
    answer.reply.sequence = request.sequence;
    if (answer.reply.error == 0) journal_->remember(request, answer.reply);
  }
  if (answer.reply.error != 0) {
    ++vdevice_->counters.refused;
    if (const auto over = vdevice_->ledger.take_refused())
      note_refusal(over->by_pool ? Refused::Why::kCeiling : Refused::Why::kQuota, over->kind);
  }
  if (answer.deferred)
    talk_.defer();
  else
    send_answer(std::move(answer));
  if (talk_.has_failed()) return end(true);
  // Not when the socket closes: a forked child may hold it for long.
  if (goodbye_ && !answer.deferred) end(false);
}

void Session::note_refusal(Refused::Why why, provisioning::Kind kind) {
  if (!host_.refused) return;
  const auto& caller = talk_.caller();
  const pid_t pid = objects_ != nullptr ? objects_->context().process->peer().pid
                    : caller != nullptr ? caller->peer().pid
                                        : 0;
  host_.refused(pid, why, kind);
}

void Session::answer(Answer late) {
  if (over_) return;
  send_answer(std::move(late));
  if (goodbye_) end(false);
}

// The program may have closed its end meanwhile, which is no fault.
void Session::send_answer(Answer answer) {
  const int error = talk_.answer(&answer.reply, answer.fds);
  if (std::exchange(reads_later_, false)) on_socket();
  if (error != 0) end(error != EPIPE && error != ECONNRESET);
}

int Session::dispatch(const ipc::Request& request, Fds fds, Answer* answer) {
  if (traits_of(request.call).needs != CallTraits::kConnection && objects_ == nullptr)
    return ENOTCONN;
  switch (request.call) {
    case Call::kProbe:
      return probe(answer);
    case Call::kHello:
      return hello(request.hello, std::move(fds), answer);
    case Call::kProve:
      return prove(answer);
    case Call::kGoodbye:
      goodbye_ = true;
      objects_->end_traffic(answer);
      return 0;
    default:
      return objects_->serve(request, std::move(fds), answer);
  }
}

// Said on a connection of its own, which becomes that of the session that it names.
int Session::resume(const ipc::Request& request) {
  if (auto who = talk_.check(); !who) return refuse_caller(who.error());
  for (const auto& other : host_.sessions) {
    if (other->journal_ == nullptr || other->over_ ||
        other->journal_->known_as() != request.resume.session ||
        other->objects_->context().process->peer() != talk_.caller()->peer())
      continue;
    if (other->parked_ == Parked::kDetached) return EAGAIN;  // until it is attached, or ends
    other->go_on_at(&talk_);
    return 0;
  }
  return vdevice_->awaits_others || vdevice_->keeps_back ? EAGAIN : ESTALE;
}

const SessionObjects* Session::find(const FileId& arena) const {
  for (const auto& other : host_.sessions)
    if (other->objects_ != nullptr && other->objects_->arena_id() == arena)
      return other->objects_.get();
  return nullptr;
}

void Session::go_on_at(Talk* fresh) {
  if (!talk_.go_on_at(fresh)) return end(false);
  Answer answer;
  answer.reply.resume.epoch = objects_->context().epoch;
  answer.reply.resume.grace_ms = host_.settings.grace_ms;
  send_answer(std::move(answer));
}

}  // namespace vrdma::vrdmad
