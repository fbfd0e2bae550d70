#include "vrdmad/worker/session.h"

#include <fcntl.h>
#include <poll.h>
#include <spdlog/spdlog.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <algorithm>
#include <atomic>
#include <iterator>

#include "core/ipc/socket.h"
#include "vrdmad/worker/calls.h"

namespace vrdma::vrdmad {

using base::Fd;
using ipc::Call;

namespace {

// Between a death without goodbye and the errors of its peers: long enough for what the dead had
// delivered to be taken first.
constexpr auto kBereavement = std::chrono::milliseconds(300);

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

base::Result<std::unique_ptr<Session>> Session::start(Arrival arrival,
                                                      std::shared_ptr<Vdevice> vdevice,
                                                      transport::Runner& runner,
                                                      const SessionSettings& settings,
                                                      std::function<void(Session*)> ended) {
  std::unique_ptr<Session> session(new Session(std::move(arrival.socket), std::move(vdevice),
                                               runner, settings, std::move(ended)));
  session->caller_ = std::move(arrival.caller);
  auto watch = runner.loop().watch(session->socket_.get(), EPOLLIN | EPOLLRDHUP | EPOLLET,
                                   [raw = session.get()](uint32_t) { raw->on_socket(); });
  if (!watch) return base::pass(std::move(watch.error()));
  session->socket_watch_ = std::move(*watch);
  return session;
}

Session::Session(Fd socket, std::shared_ptr<Vdevice> vdevice, transport::Runner& runner,
                 const SessionSettings& settings, std::function<void(Session*)> ended)
    : Runnable(vdevice->lane),
      socket_(std::move(socket)),
      vdevice_(std::move(vdevice)),
      runner_(runner),
      settings_(settings),
      ended_(std::move(ended)) {}

Session::~Session() {
  runner_.remove(this);
  vdevice_->requests.leave(*this);
  socket_watch_.reset();
  too_soon_.reset();
  unsent_.reset();
  death_watch_.reset();
  doorbell_watch_.reset();
  close_connection(vdevice_->intake, std::move(socket_));
  if (context_ == nullptr) return;
  if (!goodbye_) leave_survivors();
  context_.reset();
}

// The peers that were linked to us learn of our death after a moment, unless they have gone on to
// another life (RESET) by then.
void Session::leave_survivors() {
  struct Survivor {
    rdma::Qp* qp;
    std::weak_ptr<int> alive;
  };
  std::vector<Survivor> survivors;
  const auto bereave = [&](rdma::Qp& qp) {
    for (rdma::Qp* peer : {qp.out, qp.in}) {
      if (peer == nullptr || peer->context == context_.get()) continue;
      peer->bereaved = true;  // which is written down when the link is cut
      survivors.push_back({peer, peer->alive});
    }
  };
  context_->qps.each(bereave);
  context_->targets.each([&](rdma::Target& target) {
    if (target.qp->openers.size() == 1) bereave(*target.qp);
  });
  if (survivors.empty()) return;
  auto timer = std::make_shared<base::EventLoop::Timer>();
  *timer = loop().after(kBereavement, [survivors, timer] {
    for (const auto& survivor : survivors)
      if (!survivor.alive.expired() && (survivor.qp->in_used || survivor.qp->out_used))
        survivor.qp->fail();
    timer->reset();
  });
}

void Session::end(bool malformed) {
  if (over_) return;
  over_ = true;
  if (malformed) ++vdevice_->counters.malformed;
  socket_watch_.reset();
  death_watch_.reset();
  doorbell_watch_.reset();
  // Not here: a queue of ours may be running. And to take all apart may be work.
  vdevice_->backlog.add([this, alive = std::weak_ptr(alive_)] {
    if (alive.expired()) return;
    const auto ended = ended_;  // it destroys this session, and with it ended_
    const auto vdevice = vdevice_;
    ended(this);
    vdevice->lane.loop().post([vdevice] {});  // it may be the last, and this is its lane's turn
  });
}

void Session::device_gone() {
  if (context_ == nullptr) return;
  context_->raise(verbs::Event::kDeviceFatal, 0);
  const auto fail = [](rdma::Qp& qp) {
    if (qp.state() != verbs::QpState::kReset) qp.fail();
  };
  context_->qps.each(fail);
  context_->targets.each([&](rdma::Target& target) { fail(*target.qp); });
}

void Session::on_socket() {
  readable_ = true;
  runner_.activate(this);
}

// Nobody pays for hearing it ring while the lane rests, so that is not done.
void Session::on_doorbell() {
  rung_ = true;
  if (lane().rests()) doorbell_watch_.reset();
  runner_.activate(this);
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
  if (std::exchange(rung_, false)) {
    if (!hear_again()) {
      end(false);
      return false;
    }
    scan_doorbells();
    turn.spend(transport::kRequestCost);
  }
  if (readable_) {
    const base::TimePoint begun = turn.now();
    read_request();
    turn.spend_time(turn.now() - begun);
  }
  return readable_ && !over_ && !provisioning::RequestRate::waits(*this);
}

void Session::read_request() {
  if (busy_) {  // a client of ours waits for the answer
    char first = 0;
    const ssize_t waits = ::recv(socket_.get(), &first, sizeof first, MSG_PEEK | MSG_DONTWAIT);
    readable_ = false;
    if (waits >= 0) end(waits > 0);
    return;
  }
  if (with_intake_) {  // nothing is read here, but the end is noticed
    pollfd ended{socket_.get(), POLLRDHUP, 0};
    readable_ = false;
    if (::poll(&ended, 1, 0) > 0) end(false);
    return;
  }
  if (!vdevice_->requests.admits(*this)) return;
  switch (look_at_next(socket_.get())) {
    case Next::kNothing:
      readable_ = false;
      return;
    case Next::kDescriptors:
      return hand_over();
    case Next::kError:
      return end(false);
    case Next::kMessage:
      break;
  }
  ipc::Request request;
  std::vector<Fd> none;
  const auto received = ipc::receive(socket_.get(), &request, &none, &sender_);
  if (!received) return end(received.error().code() == EBADMSG);
  provisioning::RequestRate::has_read(*this);
  on_request(request, {});
}

// What came beside the next message may hang whoever closes it, so the intake receives it.
void Session::hand_over() {
  readable_ = false;
  Intake* const intake = vdevice_->intake->intake();
  if (intake == nullptr) return end(true);
  with_intake_ = true;
  provisioning::RequestRate::has_read(*this);
  handed_over_ = intake->receive(vdevice_->intake, socket_, loop(),
                                 [this, alive = std::weak_ptr(alive_)](Intake::Received received) {
                                   if (!alive.expired() && !over_)
                                     on_handed_over(std::move(received));
                                 });
  readable_ = true;  // the end may have come before
}

void Session::on_handed_over(Intake::Received received) {
  handed_over_.reset();
  with_intake_ = false;
  const intake::Report report = received.report;
  Fds fds(vdevice_->intake, std::move(received));
  sender_ = {report.sender.pid, report.sender.uid, report.sender.gid};
  ipc::Request request;
  if (report.error != 0 || report.truncated != 0 || report.count > ipc::kMaxFds ||
      !ipc::decode_sized(report.bytes.data(), report.bytes.size(), report.length, &request,
                         sizeof request, ipc::versions_of(&request)))
    return end(true);
  on_request(request, std::move(fds));
  on_socket();  // there may be more
}

void Session::on_request(const ipc::Request& request, Fds fds) {
  if (request.magic != ipc::kMagic || (!fds.empty() && !may_have_fds(request))) return end(true);
  if (comes_too_soon(request) || asks_mappings(request)) return;
  handle(request, std::move(fds));
}

// Registrations beyond mr_rate wait here. The program is patient: to it the daemon is busy.
bool Session::comes_too_soon(const ipc::Request& request) {
  if (context_ == nullptr || !traits_of(request.call).paced) return false;
  const auto now = base::EventLoop::now();
  auto& bucket = vdevice_->registrations;
  bucket.spend(now, 1);
  const base::Duration wait = bucket.wait(now);
  if (wait.count() == 0) return false;
  vdevice_->ledger.count_refusal(provisioning::Kind::kMrRate);
  busy_ = true;
  too_soon_ = loop().after(wait, [this, request] {
    busy_ = false;
    if (!asks_mappings(request)) handle(request, {});
  });
  return true;
}

// What is reached ignores page protection, so the process's own mappings must permit what the
// region is to be used for. They may take long to read: the answer waits, the worker does not.
// Memory on demand need not be there yet.
bool Session::asks_mappings(const ipc::Request& request) {
  if (context_ == nullptr || vdevice_->gone ||
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
    busy_ = false;
    if (permitted) return handle(request, {});
    ++vdevice_->counters.refused;
    sequence_ = request.sequence;
    Answer answer;
    answer.reply.error = EFAULT;
    send_answer(std::move(answer));
  };
  busy_ = true;
  context_->process->reach()->submit(std::move(job));
  return true;
}

void Session::handle(const ipc::Request& request, Fds fds) {
  ++vdevice_->counters.requests;
  sequence_ = request.sequence;
  Answer answer;
  if (request.version < ipc::kOldestVersion || request.version > ipc::kVersion) {
    ++vdevice_->counters.refused;
    return refuse_version(request);
  }
  if (!has_zero_tail(request)) {
    answer.reply.error = E2BIG;
  } else if (request.call == Call::kResume && context_ == nullptr && greeting_ == nullptr &&
             fds.empty()) {
    answer.reply.error = resume(request);
    if (answer.reply.error == 0) return end(false);
  } else if (!serve_repeated(request, &answer)) {
    will_serve(request);
    answer.reply.error = dispatch(request, std::move(fds), &answer);
    answer.reply.sequence = sequence_;
    if (answer.reply.error == 0) remember(request, answer.reply);
  }
  if (answer.reply.error != 0) ++vdevice_->counters.refused;
  if (!answer.deferred) send_answer(std::move(answer));
  if (failures_ >= kMostFailures) return end(true);
  // Not when the socket closes: a forked child may hold it for long.
  if (goodbye_) end(false);
}

// Logged once: a program may try again and again. A client of an unknown version learns no more
// than this, in a reply of the length that it expects.
void Session::refuse_version(const ipc::Request& request) {
  static std::atomic<bool> said = false;
  if (!said.exchange(true))
    spdlog::warn(
        "vdevice {}: a program speaks version {} of the session protocol; this vrdmad serves "
        "{} to {}",
        vdevice_->device.name, request.version, ipc::kOldestVersion, ipc::kVersion);
  if (request.sequence == 0) return;
  ipc::Reply reply;
  reply.sequence = request.sequence;
  reply.error = EPROTONOSUPPORT;
  const bool unsized = request.version < ipc::kOldestVersion;
  if (unsized) reply.version = request.version;
  const size_t length = unsized ? ipc::kUnsizedReplyLength : sizeof reply;
  if (!ipc::send_message(socket_.get(), &reply, length)) end(true);
}

void Session::send_answer(Answer answer) {
  busy_ = false;
  if (sequence_ == 0) return;  // nobody waits for it
  answer.reply.sequence = sequence_;
  // A client reads each answer before it asks again, so there is always room; one that does not
  // loses its session.
  if (!ipc::send_message(socket_.get(), &answer.reply, sizeof answer.reply, answer.fds)) end(true);
}

int Session::dispatch(const ipc::Request& request, Fds fds, Answer* answer) {
  const CallTraits& call = traits_of(request.call);
  if (call.needs != CallTraits::kConnection && context_ == nullptr) return ENOTCONN;
  if (call.needs == CallTraits::kVdevice && vdevice_->gone) return EIO;
  switch (request.call) {
    case Call::kProbe:
      return probe(answer);
    case Call::kHello:
      return hello(request.hello, std::move(fds), answer);
    case Call::kGoodbye:
      goodbye_ = true;
      return 0;
    case Call::kQueryDevice:
      return query_device(answer);
    case Call::kQueryPort:
      return query_port(answer);
    case Call::kQueryGids:
      return query_gids(request.gids, answer);
    case Call::kAllocPd:
      return alloc_pd(answer);
    case Call::kDeallocPd:
      return dealloc_pd(request.handle.handle);
    case Call::kRegMr:
      return reg_mr(request.reg_mr, answer);
    case Call::kDeregMr:
      return dereg_mr(request.handle.handle, answer);
    case Call::kReregMr:
      return rereg_mr(request.rereg_mr, answer);
    case Call::kAllocMw:
      return alloc_mw(request.alloc_mw, answer);
    case Call::kImportDevice:
      return import_device(std::move(fds));
    case Call::kImportPd:
      return import_pd(request.handle.handle, answer);
    case Call::kImportMr:
      return import_mr(request.import_mr, answer);
    case Call::kDeallocMw:
      return dealloc_mw(request.handle.handle, answer);
    case Call::kCreateChannel:
      return create_channel(answer);
    case Call::kDestroyChannel:
      return destroy_channel(request.handle.handle);
    case Call::kCreateCq:
      return create_cq(request.create_cq, answer);
    case Call::kResizeCq:
      return resize_cq(request.resize_cq, answer);
    case Call::kDestroyCq:
      return destroy_cq(request.handle.handle);
    case Call::kCreateSrq:
      return create_srq(request.create_srq, answer);
    case Call::kModifySrq:
      return modify_srq(request.modify_srq);
    case Call::kQuerySrq:
      return query_srq(request.handle.handle, answer);
    case Call::kDestroySrq:
      return destroy_srq(request.handle.handle);
    case Call::kCreateQp:
      return create_qp(request.create_qp, std::move(fds), answer);
    case Call::kModifyQp:
      return modify_qp(request.modify_qp, answer);
    case Call::kQueryQp:
      return query_qp(request.handle.handle, answer);
    case Call::kDestroyQp:
      return destroy_qp(request.handle.handle);
    case Call::kCreateAh:
      return create_ah(request.create_ah, answer);
    case Call::kDestroyAh:
      return destroy_ah(request.handle.handle);
    case Call::kAttachMcast:
      return mcast(request.mcast, true);
    case Call::kDetachMcast:
      return mcast(request.mcast, false);
    case Call::kOpenXrcd:
      return open_xrcd(request.open_xrcd, std::move(fds), answer);
    case Call::kCloseXrcd:
      return close_xrcd(request.handle.handle);
    case Call::kOpenQp:
      return open_qp(request.open_qp, answer);
    case Call::kCreateFlow:
      return create_flow(request.create_flow, answer);
    case Call::kDestroyFlow:
      return destroy_flow(request.handle.handle);
    case Call::kResume:
      break;  // of an open session, or of one that has said hello
    case Call::kProve:
      return prove(answer);
    case Call::kHold:
      return hold(request.hold, answer);
  }
  return EOPNOTSUPP;
}

int Session::charge(provisioning::Kind kind, uint64_t amount, rdma::Charges* charges) {
  auto charge = vdevice_->ledger.charge(kind, amount, cgroup_);
  if (!charge) return charge.error().code();
  charges->push_back(std::make_shared<provisioning::Charge>(std::move(*charge)));
  return 0;
}

// The caller holds the command descriptor of another session of this vdevice, and is of its user.
int Session::import_device(Fds fds) {
  const intake::Verdict* wanted = fds.only();
  if (wanted == nullptr || wanted->passed == 0 || context_->exporter != 0) return EINVAL;
  const rdma::Process& self = *context_->process;
  for (const auto& session : vdevice_->sessions) {
    const rdma::Context* const other = session->context();
    if (other == nullptr || session->arena_id_ != FileId{wanted->device, wanted->inode}) continue;
    if (!other->process->may_share_with(self)) return EPERM;
    context_->exporter = other->id;
    return 0;
  }
  return ENODEV;
}

// The program published work in a queue that nobody executed, or a receive that somebody waits
// for. The bits say where; what they say is only a hint.
void Session::scan_doorbells() {
  auto* kicks =
      reinterpret_cast<std::atomic<uint64_t>*>(context_->arena.bytes() + ipc::kKickOffset);
  const size_t slots = context_->qps.capacity();
  for (size_t word = 0; word * 64 < slots; ++word) {
    uint64_t bits = kicks[word].exchange(0, std::memory_order_acquire);
    while (bits != 0) {
      const auto slot =
          static_cast<uint32_t>(word * 64) + static_cast<uint32_t>(__builtin_ctzll(bits));
      bits &= bits - 1;
      rdma::Qp* qp = context_->qps.find(slot + 1);
      if (qp == nullptr) continue;
      if (qp->sender) qp->sender->kick();
      for (rdma::Sender* waiter : std::list(qp->waiters)) waiter->receive_posted();
    }
  }
  context_->srqs.each([](rdma::Srq& srq) {
    for (rdma::Sender* waiter : std::list(srq.waiters)) waiter->receive_posted();
  });
}

}  // namespace vrdma::vrdmad
